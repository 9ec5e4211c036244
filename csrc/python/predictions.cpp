#include "python/predictions.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "core/tuning.h"
#include "cuda/gemm/predict/predict.h"
#include "python/problem.h"

namespace nb = nanobind;

namespace fastgemm {
namespace {

using predict::Costs;
using predict::Counts;
using Values = std::array<double, predict::kCounts>;

nb::dict to_dict(const Gpu& g) {
  nb::dict d;
  d["capability"] = g.capability, d["multiprocessors"] = g.multiprocessors;
  d["shared_bytes"] = g.shared_bytes, d["l2_bytes"] = g.l2_bytes;
  d["clock"] = g.clock, d["bandwidth"] = g.bandwidth, d["wgmma"] = g.wgmma, d["number"] = g.number;
  return d;
}

// The current GPU with the changes of the dictionary; for another capability, the nominal GPU with the
// changes. If the dictionary names capability and size, the driver is not asked for a GPU, because a process
// that has asked cannot fork.
Gpu to_gpu(const std::optional<nb::dict>& d) {
  if (!d) return current_gpu();
  const auto get = [&]<class T>(const char* name, T& to) {
    if (d->contains(name)) to = nb::cast<T>((*d)[name]);
  };
  const bool named = d->contains("capability") && d->contains("multiprocessors");
  Gpu g = named ? Gpu{} : current_gpu();
  int capability = g.capability;
  get("capability", capability);
  if (named || capability != g.capability) g = nominal_gpu(capability, g.multiprocessors);
  get("multiprocessors", g.multiprocessors), get("clock", g.clock), get("bandwidth", g.bandwidth);
  get("shared_bytes", g.shared_bytes), get("l2_bytes", g.l2_bytes), get("wgmma", g.wgmma);
  get("number", g.number);
  return g;
}

const predict::PredictedRow& row_of(const std::string& kernel) {
  const predict::PredictedRow* row = predict::predicted_row(kernel);
  if (!row) throw std::invalid_argument("kernel '" + kernel + "' is not predicted");
  return *row;
}

Values counts(const std::string& kernel, const Problem& problem, const std::optional<nb::dict>& gpu) {
  const GemmProblem p = to_problem(problem);
  if (kernel == "library") return std::bit_cast<Values>(predict::count_library(p, to_gpu(gpu)));
  return std::bit_cast<Values>(row_of(kernel).count(p, to_gpu(gpu)));
}

// The times that level=None compares, fastest first: of the rows that the GPU could run, and of the library.
std::vector<std::pair<std::string, double>> predictions(const Problem& problem,
                                                        const std::optional<nb::dict>& gpu) {
  const GemmProblem p = to_problem(problem);
  const Gpu g = to_gpu(gpu);
  if (g.capability == 0) throw std::invalid_argument("there is no GPU here, and gpu= does not name one");
  std::vector<std::pair<std::string, double>> found;
  for (const Kernel& k : cuda_gemm_kernels()) {
    if (!k.predict || k.role != Role::rung || !contains(k.dtypes, p.type)) continue;
    if (!k.takes(p.packed) || !k.takes(p.groups)) continue;
    if (p.type == DType::f32 && k.precision != Precision::ieee && k.precision != p.precision) continue;
    if ((k.needs == "sm_90a" && !g.wgmma) || (k.rejects && k.rejects(p))) continue;
    if (const double s = k.predict(p, g); s < std::numeric_limits<double>::infinity())
      found.emplace_back(k.name, s);
  }
  found.emplace_back("library", predict::library_to_beat(p, g));
  std::ranges::stable_sort(found, {}, [](const auto& x) { return x.second; });
  return found;
}

const char* knowledge(const std::optional<nb::dict>& gpu) {
  switch (predict::knowledge_of(to_gpu(gpu))) {
    case predict::Knowledge::tuned:
      return "tuned";
    case predict::Knowledge::measured:
      return "measured";
    default:
      return "predicted";
  }
}

using MeasuredPoint = std::pair<Problem, double>;

void set_library(const std::string& gpu, const std::string& type, const std::string& precision,
                 const Values& costs, const std::vector<MeasuredPoint>& points,
                 const std::optional<nb::dict>& here) {
  predict::Series series{std::bit_cast<Costs>(costs), {}};
  for (const auto& [problem, seconds] : points) {
    const GemmProblem p = to_problem(problem);
    const double model = predict::time_before_limit(predict::count_library(p, to_gpu(here)), series.costs);
    series.points.add(predict::place_of(p), {float(std::log(seconds / model))});
  }
  predict::set_series({gpu_number(gpu), std::nullopt, parse<DType>(type, kArithmeticTypes, "dtype"),
                       parse<Precision>(precision, kPrecisions, "precision")},
                      std::move(series));
}

}  // namespace

void define_predictions(nb::module_& m) {
  m.attr("COUNTS") =
      std::vector<std::string>(std::begin(predict::kCountNames), std::end(predict::kCountNames));
  const auto here = nb::arg("gpu") = nb::none();
  m.def(
      "gpu_properties", [] { return to_dict(current_gpu()); },
      "The properties of the current GPU that predictions use; capability 0 without one.");
  m.def("knowledge", &knowledge, here, "How predictions for a GPU are made: predicted, measured or tuned.");
  m.def("counts", &counts, nb::arg("kernel"), nb::arg("problem"), here,
        "The work of a kernel, or \"library\", for a problem, in seconds at the GPU's rates; in the order of "
        "COUNTS.");
  m.def(
      "place", [](const Problem& p) { return predict::place_of(to_problem(p)); },
      "The coordinates of a problem, for distances between measured points.");
  m.def("predictions", &predictions, nb::arg("problem"), here,
        "Names and predicted seconds of the kernels that a GPU can run, fastest first.");
  m.def(
      "costs",
      [](const std::string& kernel, const std::string& type, const std::optional<nb::dict>& gpu) {
        const auto found =
            predict::costs_of(row_of(kernel).row, parse<DType>(type, kArithmeticTypes, "dtype"), to_gpu(gpu));
        return found ? std::optional(std::bit_cast<Values>(*found)) : std::nullopt;
      },
      nb::arg("kernel"), nb::arg("dtype"), here);
  m.def(
      "set_costs",
      [](const std::string& gpu, const std::string& kernel, const std::string& type, const Values& costs) {
        predict::set_series(
            {gpu_number(gpu), row_of(kernel).row, parse<DType>(type, kArithmeticTypes, "dtype")},
            {std::bit_cast<Costs>(costs), {}});
      },
      nb::arg("gpu"), nb::arg("kernel"), nb::arg("dtype"), nb::arg("costs"),
      "Sets the constants of a kernel on the GPU of this name, as gpu() returns it.");
  m.def("set_library", &set_library, nb::arg("gpu"), nb::arg("dtype"), nb::arg("precision"), nb::arg("costs"),
        nb::arg("points"), nb::arg("here") = nb::none(),
        "Sets the model and the points of the library on the GPU of this name.");
  m.def("reset_predictions", &predict::reset_series);
}

}  // namespace fastgemm
