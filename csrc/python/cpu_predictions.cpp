#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/cpu.h"
#include "core/table.h"
#include "cpu/gemm/predict/points.h"
#include "cpu/gemm/predict/predict.h"
#include "python/predictions.h"
#include "python/problem.h"

namespace nb = nanobind;

namespace fastgemm {
namespace {

using cpu_predict::Counts;
using Changes = std::optional<nb::dict>;

constexpr const char* kIsas[] = {"baseline", "avx2", "avx512"};

// Calls f(name, field) for every field.
template <class C, class F>
void for_fields(C& c, F&& f) {
  f("model", c.model), f("cores", c.cores), f("clock", c.clock), f("vnni", c.vnni);
  f("dot_bf16", c.dot_bf16), f("amx_bf16", c.amx_bf16), f("amx_int8", c.amx_int8), f("fp16", c.fp16);
  f("mmla_bf16", c.mmla_bf16), f("mmla_int8", c.mmla_int8);
  f("vector_issue", c.vector_issue), f("mkl_avx2", c.mkl_avx2), f("l2", c.l2), f("l3", c.l3);
  f("core_bandwidth", c.core_bandwidth), f("bandwidth", c.bandwidth);
}

nb::dict to_dict(const Cpu& c) {
  nb::dict d;
  for_fields(c, [&](const char* name, const auto& value) { d[name] = value; });
  d["isa"] = kIsas[int(c.isa)];
  return d;
}

// The current processor with the changes of the dictionary. Changed units apply to libraries, too.
Cpu to_cpu(const Changes& changes) {
  Cpu c = current_cpu();
  if (!changes) return c;
  auto left = nb::cast<nb::dict>(changes->attr("copy")());
  const auto take = [&](const char* name) { return left.attr("pop")(name, nb::none()); };
  for_fields(c, [&]<class T>(const char* name, T& to) {
    if (const nb::object value = take(name); !value.is_none()) to = nb::cast<T>(value);
  });
  if (const nb::object value = take("isa"); !value.is_none()) {
    const auto* found = std::ranges::find(kIsas, nb::cast<std::string>(value));
    if (found == std::end(kIsas)) throw std::invalid_argument("isa is baseline, avx2 or avx512");
    c.isa = Isa(found - kIsas);
  }
  const Units &before = current_cpu(), &after = c;
  if (!(after == before)) c.library = after;
  if (left.size() > 0) throw std::invalid_argument("unknown: " + std::string(nb::str(left).c_str()));
  return c;
}

cpu_predict::Row row_of(const std::string& kernel) {
  const auto row = cpu_predict::row_of(kernel);
  if (!row) throw std::invalid_argument("kernel '" + kernel + "' is not predicted");
  return *row;
}

void check_threads(int threads) {
  if (threads < 1) throw std::invalid_argument("threads: " + std::to_string(threads));
}

std::vector<std::pair<std::string, double>> predictions(const Problem& problem, int threads,
                                                        const Changes& changes) {
  const GemmProblem p = to_problem(problem);
  check_threads(threads);
  const Cpu cpu = to_cpu(changes);
  std::vector<std::pair<std::string, double>> found;
  for (const Kernel& k : kernels()) {
    if (!k.predict_on_cpu || !contains(k.dtypes, p.type) || !k.takes(p.packed) || (k.rejects && k.rejects(p)))
      continue;
    if (const double s = k.predict_on_cpu(p, cpu, threads); s < std::numeric_limits<double>::infinity())
      found.emplace_back(k.name, s);
  }
  std::ranges::stable_sort(found, {}, [](const auto& x) { return x.second; });
  return found;
}

}  // namespace

void define_cpu_predictions(nb::module_& m) {
  const auto here = nb::arg("cpu") = nb::none();
  m.attr("CPU_COUNTS") =
      std::vector<std::string>(cpu_predict::kCountNames.begin(), cpu_predict::kCountNames.end());
  m.def(
      "cpu_properties", [] { return to_dict(current_cpu()); },
      "The properties of the processor that predictions use.");
  m.def(
      "set_cpu",
      [](const Changes& changes) {
        if (!changes) return set_current_cpu(nullptr);
        const Cpu cpu = to_cpu(changes);
        set_current_cpu(&cpu);
      },
      nb::arg("cpu"),
      "From now on, predicts for a processor with these properties, and reads the static tables of its "
      "model. None: predicts for this processor again.");
  m.def(
      "cpu_counts",
      [](const std::string& kernel, const Problem& problem, int threads, const Changes& cpu) {
        check_threads(threads);
        return cpu_predict::count(row_of(kernel), to_problem(problem), to_cpu(cpu), threads);
      },
      nb::arg("kernel"), nb::arg("problem"), nb::arg("threads"), here,
      "The work of a kernel, or torch, for a problem, in seconds at the processor's rates; in the order of "
      "CPU_COUNTS.");
  m.def("cpu_predictions", &predictions, nb::arg("problem"), nb::arg("threads"), here,
        "Names and predicted seconds of the kernels that a processor can run, and of torch, fastest first.");
  m.def(
      "cpu_costs",
      [](const std::string& kernel, const std::string& type, const Changes& cpu) {
        return cpu_predict::costs_of(row_of(kernel), parse<DType>(type, kArithmeticTypes, "dtype"),
                                     to_cpu(cpu));
      },
      nb::arg("kernel"), nb::arg("dtype"), here, "The constants in use; None: there are none.");
  m.def(
      "set_cpu_costs",
      [](const std::string& kernel, const std::string& type, const Counts& costs) {
        cpu_predict::set_costs(row_of(kernel), parse<DType>(type, kArithmeticTypes, "dtype"), costs);
      },
      nb::arg("kernel"), nb::arg("dtype"), nb::arg("costs"),
      "Sets the constants of a kernel, or torch, on this processor, in the order of CPU_COUNTS.");
  m.def(
      "add_cpu_point",
      [](const Problem& problem, int threads, const std::vector<std::pair<std::string, double>>& measured) {
        for (const auto& [kernel, seconds] : measured)
          if (!(seconds > 0 && seconds < std::numeric_limits<double>::infinity()))
            throw std::invalid_argument("seconds of '" + kernel + "': " + std::to_string(seconds));
        check_threads(threads);
        for (const auto& [kernel, seconds] : measured)
          if (const auto row = cpu_predict::row_of(kernel))
            cpu_predict::add_point(*row, to_problem(problem), threads, seconds);
      },
      nb::arg("problem"), nb::arg("threads"), nb::arg("measured"),
      "Adds the seconds that kernels, and torch, took here, by name. Predictions of similar products follow "
      "them. Kernels that are not predicted are ignored.");
  m.def(
      "cpu_place",
      [](const Problem& problem, int threads) { return cpu_predict::place_of(to_problem(problem), threads); },
      nb::arg("problem"), nb::arg("threads"),
      "The coordinates of a product, for distances between measured points.");
  m.def(
      "cpu_knowledge",
      [](const Changes& cpu) {
        constexpr const char* kNames[] = {"predicted", "measured", "tuned"};
        return kNames[int(cpu_predict::knowledge_of(to_cpu(cpu)))];
      },
      here, "How predictions for a processor are made: predicted, measured or tuned.");
  m.def(
      "cpu_family",
      [](const Changes& cpu) {
        constexpr const char* kNames[] = {"zen3", "zen4", "granite_rapids", "without_tiles"};
        return kNames[int(cpu_predict::family_of(cpu_predict::Row::pipelined, DType::f32, to_cpu(cpu)))];
      },
      here, "The measured family whose constants are used for the kernels of this library.");
  m.def("reset_cpu_costs", &cpu_predict::reset_costs, "Returns to the constants that ship with the library.");
}

}  // namespace fastgemm
