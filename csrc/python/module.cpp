// fastgemm._introspect: the kernel table, tuning memory and build information for Python. Loading this module
// also loads the op library, which registers the ops in torch.ops.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/budget.h"
#include "core/interrupt.h"
#include "core/nearest.h"
#include "core/select.h"
#include "core/simulator.h"
#include "core/tuning.h"
#include "cpu/peak/peak.h"
#include "library/rows.h"
#include "python/keys.h"
#include "python/predictions.h"
#include "torch/build_info.h"
#include "torch/first_call_hook.h"
#include "torch/patch.h"
#include "torch/queries.h"

namespace nb = nanobind;
using namespace fastgemm;

namespace {

std::vector<std::string> type_names(DTypeSet set) {
  std::vector<std::string> names;
  const auto is_element = [](DType t) { return t <= DType::bits128 || t == DType::e4m3 || t == DType::e5m2; };
  for (int i = 0; i < kDTypes; ++i)
    if (is_element(DType(i)) && contains(set, DType(i))) names.emplace_back(to_string(DType(i)));
  return names;
}

// For each product type that is not an element type (such as u8i8): the GPU kernels that take it.
std::map<std::string, std::vector<std::string>> product_kernels() {
  std::map<std::string, std::vector<std::string>> names;
  for (int i = int(DType::u8i8); i < kDTypes; ++i) {
    auto& rows = names[std::string(to_string(DType(i)))];
    for (const Kernel& k : kernels())
      if (contains(k.dtypes, DType(i))) rows.emplace_back(k.name);
  }
  return names;
}

constexpr const char* role_name(Role r) {
  constexpr const char* names[] = {"rung", "shortcut", "companion", "pitfall"};
  return names[int(r)];
}

nb::list code_names(CodeSet set) {
  constexpr const char* names[] = {"none", "int4", "nf4", "e2m1", "int8", "e4m3"};
  static_assert(std::size(names) == kCodes);
  nb::list found;
  for (int i = 0; i < kCodes; ++i)
    if (set & codes(static_cast<Code>(i))) found.append(names[i]);
  return found;
}

nb::list groups_names(GroupedBySet set) {
  constexpr const char* names[] = {"none", "m", "n", "k"};
  nb::list found;
  for (size_t i = 0; i < std::size(names); ++i)
    if (set & groups_by(static_cast<GroupedBy>(i))) found.append(names[i]);
  return found;
}

nb::list table() {
  nb::list rows;
  for (const Kernel& k : kernels()) {
    nb::dict row;
    row["op"] = to_string(k.op), row["device"] = to_string(k.device), row["level"] = k.level;
    row["name"] = k.name, row["dtypes"] = type_names(k.dtypes), row["needs"] = k.needs;
    row["summary"] = k.summary, row["role"] = role_name(k.role);
    row["precision"] = to_string(k.precision), row["codes"] = code_names(k.codes);
    row["groups"] = groups_names(k.groups);
    const char* why = k.why_unavailable();
    row["unavailable"] = why ? nb::cast(why) : nb::none();
    rows.append(row);
  }
  return rows;
}

// The kernel that select() picks at a level (0: the fastest known) for a problem without data.
std::string chosen(const KeyTuple& tuple, int level) {
  const TuningKey key = to_key(tuple);
  const Choice choice{.level = level};
  if (key.op == Op::transpose) {
    TransposeProblem p;
    p.type = key.type, p.batch = key.batch, p.rows = key.m, p.cols = key.n;
    p.src.row_stride = key.a_transposed ? 1 : key.n, p.src.col_stride = key.a_transposed ? key.m : 1;
    return std::string(select(p, key.device, key.threads, choice).name);
  }
  if (key.op == Op::add) {
    AddProblem p;
    p.type = key.type, p.rows = key.m, p.cols = key.n;
    return std::string(select(p, key.device, key.threads, choice).name);
  }
  GemmProblem p;
  p.type = key.type, p.out_type = key.out_type, p.precision = key.precision,
  p.beta = key.accumulates ? 1.0 : 0.0;
  p.batch = key.batch, p.m = key.m, p.n = key.n, p.k = key.k;
  p.a.row_stride = key.a_transposed ? 1 : key.k, p.a.col_stride = key.a_transposed ? key.m : 1;
  p.b.row_stride = key.b_transposed ? 1 : key.n, p.b.col_stride = key.b_transposed ? key.k : 1;
  p.a.batch_stride = key.m * key.k, p.b.batch_stride = key.k * key.n;
  p.out.row_stride = p.c.row_stride = key.n, p.out.col_stride = p.c.col_stride = 1;
  p.out.batch_stride = p.c.batch_stride = key.m * key.n;
  return std::string(select(p, key.device, key.threads, choice).name);
}

// A tensor as Python describes it: (address, sizes, strides).
using LayoutTuple = std::tuple<uintptr_t, std::vector<int64_t>, std::vector<int64_t>>;
torch_ops::Layout to_layout(LayoutTuple t) {
  return {std::get<0>(t), std::move(std::get<1>(t)), std::move(std::get<2>(t))};
}
// The kernels that the static tables of a device name for a problem with contiguous matrices. The device need
// not be in this machine.
std::vector<std::string> ranked(const KeyTuple& tuple, const std::string& device) {
  TuningKey key = to_key(tuple);
  key.alignment = contiguous_alignment(key);
  std::vector<std::string> names;
  if (const StaticTable* table = static_table_for(key, device)) {
    const Ranking ranking = rank(*table, key);
    for (size_t i = 0; i < ranking.count; ++i) names.emplace_back(table->kernels[ranking.kernels[i]]);
  }
  return names;
}

nb::dict info() {
  nb::dict d;
  for (const auto& [name, value] : build_info()) {
    d[name.c_str()] = value;
    // CUDA rows have launchers in every build, because the simulator runs them without CUDA.
    if (name == "cuda_archs") d["cuda_kernels"] = !value.empty();
  }
  return d;
}

// The Python function that reads the framework's flags. The function and the names of its arguments are never
// destroyed, because a late call may need them while the interpreter shuts down.
PyObject*& kept_probe() {
  static PyObject* probe = nullptr;
  return probe;
}

template <class Enum>
PyObject* name_of(Enum value) {
  static std::array<PyObject*, 16> names{};
  PyObject*& name = names.at(size_t(value));
  if (!name) name = PyUnicode_InternFromString(std::string(to_string(value)).c_str());
  return name;
}

// Calls the probe through CPython's API, which takes 0.2 us. nanobind's conversion of each argument would
// take 0.6 us, too long for a call that every small product may need.
bool ask_probe(Device device, DType type, Precision precision) {
  const nb::gil_scoped_acquire held;
  PyObject* arguments[] = {name_of(device), name_of(type), name_of(precision)};
  PyObject* answer = PyObject_Vectorcall(kept_probe(), arguments, std::size(arguments), nullptr);
  if (!answer) throw nb::python_error();
  const int yes = PyObject_IsTrue(answer);
  Py_DECREF(answer);
  if (yes < 0) throw nb::python_error();
  return yes != 0;
}

PyObject*& kept_measure() {
  static PyObject* function = nullptr;
  return function;
}

// Calls Python's measure(key, details, kernels, bytes, device_index, run). An exception of run() that Python
// does not handle is thrown again unchanged. Any other leaves the op as it is, for example that of a signal's
// handler. Where that is impossible, a std::runtime_error is thrown, which torch turns into a RuntimeError,
// and Ctrl-C takes effect when the product is done.
bool ask_measure(const torch_ops::FirstCall& call) {
  const nb::gil_scoped_acquire held;
  std::exception_ptr met;
  const std::function<void(const std::string&)> run = [&](const std::string& kernel) {
    const nb::gil_scoped_release released;
    met = nullptr;
    try {
      call.run(kernel);
    } catch (const CannotRun&) {  // Python goes on with the next kernel
      throw;
    } catch (const TimeLimitPassed&) {
      throw;
    } catch (...) {
      met = std::current_exception();
      throw;
    }
  };
  std::vector<std::string> kernels;
  for (const Kernel* k : call.kernels) kernels.emplace_back(k->name);
  try {
    return nb::cast<bool>(nb::handle(kept_measure())(from_key(call.key), details_of(call.key), kernels,
                                                     call.bytes, call.device_index, nb::cpp_function(run)));
  } catch (nb::python_error& error) {
    if (met) std::rethrow_exception(met);
    const nb::object value = nb::borrow(error.value());
    error.restore();
    raise_pending();
    PyErr_Clear();
    if (!PyErr_GivenExceptionMatches(value.ptr(), PyExc_KeyboardInterrupt))
      throw std::runtime_error(nb::str(value).c_str());
    PyErr_SetInterrupt();
    return false;
  }
}

using Frame = std::shared_ptr<const PatchFrame>;

// The counts as a Python object. Frames share the counts, not this object, because a thread without Python's
// interpreter lock may destroy a frame.
struct SharedCounts {
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
};

// The frame that a capsule of capsule_of() keeps alive.
Frame frame_in(const nb::object& capsule) {
  return *static_cast<Frame*>(nb::cast<nb::capsule>(capsule).data(kPatchSlot));
}

Frame make_frame(int level, std::string kernel, const std::optional<std::string>& precision,
                 const SharedCounts* counts, const nb::object& outer, bool tune, bool extends) {
  auto frame = std::make_shared<PatchFrame>();
  frame->level = level, frame->kernel = std::move(kernel), frame->counts = counts ? counts->counts : nullptr;
  if (precision) frame->precision = parse<Precision>(*precision, kPrecisions, "precision");
  if (!outer.is_none()) frame->outer = frame_in(outer);
  frame->tune = tune, frame->extends = extends;
  return frame;
}

// The capsule for the slot of torch's thread-local state. It keeps a frame alive.
nb::capsule capsule_of(Frame frame) {
  return nb::capsule(new Frame(std::move(frame)), kPatchSlot,
                     [](void* kept) noexcept { delete static_cast<Frame*>(kept); });
}

void define_patches(nb::module_& m) {
  m.attr("PATCH_SLOT") = kPatchSlot;
  nb::class_<SharedCounts>(m, "Counts")
      .def(nb::init<>())
      .def(
          "add",
          [](const SharedCounts& c, bool routed, std::string_view op, std::string_view by, uint64_t n) {
            c.counts->add(routed ? Counts::What::routed : Counts::What::passed_on, op, by, n);
          },
          nb::arg("routed"), nb::arg("op"), nb::arg("by"), nb::arg("calls") = 1)
      .def("rows", [](const SharedCounts& c, bool routed) {
        nb::dict rows;
        for (const auto& [op, by] : c.counts->rows(routed ? Counts::What::routed : Counts::What::passed_on))
          for (const auto& [name, calls] : by) rows[nb::make_tuple(op, name)] = calls;
        return rows;
      });
  m.def(
      "patch_frame",
      [](int level, std::string kernel, const std::optional<std::string>& precision,
         const SharedCounts* counts, const nb::object& outer, bool tune, bool extends) {
        return capsule_of(make_frame(level, std::move(kernel), precision, counts, outer, tune, extends));
      },
      nb::arg("level"), nb::arg("kernel"), nb::arg("precision").none(), nb::arg("counts").none(),
      nb::arg("outer").none(), nb::arg("tune") = false, nb::arg("extends") = false,
      "One entry of a patch, in a capsule. Level 0 and an empty kernel leave the choice open; counts may be "
      "None. outer is the capsule of the entry that gets the calls that this one does not take, or None.");
  m.def(
      "set_everywhere",
      [](bool by_environment, const nb::object& frame) {
        Frame made;
        if (!frame.is_none()) made = frame_in(frame);
        set_everywhere(by_environment ? Everywhere::environment : Everywhere::enabled, std::move(made));
      },
      nb::arg("by_environment"), nb::arg("frame").none(),
      "Enables an entry for the whole process; None disables it.");
}

}  // namespace

NB_MODULE(_introspect, m) {
  nb::set_leak_warnings(false);  // the probe is never destroyed
  m.doc() = "Kernel table, tuning memory and build information of the fastgemm op library.";
  define_patches(m);
  define_predictions(m);
  define_cpu_predictions(m);
  m.def("table", &table, "Rows of the kernel table, as dictionaries.");
  m.def("build_info", &info);
  m.def(
      "measure_peak",
      [](const std::string& type, int threads, double seconds) {
        return measure_peak(parse<DType>(type, kDTypes, "dtype"), threads, seconds);
      },
      nb::arg("dtype"), nb::arg("threads"), nb::arg("seconds") = 0.05,
      nb::call_guard<nb::gil_scoped_release>(),
      "Multiply-add operations per second of the CPU in a dtype; 0 where it is not measured.");
  m.def("simulating", &simulating, "Whether ops on CPU tensors run simulated CUDA kernels in this thread.");
  m.def("cuda_device", &cuda_device);
  m.def("product_kernels", &product_kernels,
        "The kernels for product types that are not element types (such as u8i8), by the name of the type.");
  m.def("ranked", &ranked, nb::arg("key"), nb::arg("device"),
        "Names of the kernels that the static tables of a device name for a tuning key, best first.");
  m.def("chosen", &chosen, nb::arg("key"), nb::arg("level") = 0,
        "Name of the kernel that a level, by default level=None, picks for a tuning key.");
  m.def("decisions_made", &decisions_made,
        "How often this thread had to search for the fastest known kernel.");
  m.def("take_last_gemm_kernel", &torch_ops::take_last_gemm_kernel,
        "The kernel that this thread's last product ran; empty in a second call, or if nothing was "
        "multiplied.");
  m.def(
      "gemm_key",
      [](const std::string& device, int threads, LayoutTuple a, LayoutTuple b,
         const std::array<std::string, 3>& types, bool accumulates) {
        GemmProblem p = torch_ops::problem_of(to_layout(std::move(a)), to_layout(std::move(b)),
                                              parse<DType>(types[0], kDTypes, "dtype"));
        p.out_type = parse<DType>(types[1], kDTypes, "dtype"),
        p.precision = parse<Precision>(types[2], kPrecisions, "precision");
        p.beta = accumulates ? 1.0 : 0.0;
        return from_key(tuning_key(p, parse<Device>(device, 3, "device"), threads));
      },
      "The tuning key of a product, on the current GPU or with `threads` CPU threads; operands as (address, "
      "sizes, strides); types: those of operands and result, and the precision.");
  m.def(
      "transpose_key",
      [](const std::string& device, int threads, LayoutTuple a, const std::string& width) {
        const TransposeProblem p =
            torch_ops::problem_of(to_layout(std::move(a)), parse<DType>(width, kDTypes, "dtype"));
        return from_key(tuning_key(p, parse<Device>(device, 3, "device"), threads));
      },
      "The tuning key of a transposition.");
  m.def(
      "remember",
      [](const KeyTuple& tuple, const std::string& kernel, const std::string& gpu,
         std::optional<int> details) {
        remember(to_detailed_key(tuple, gpu, details), kernel, details.has_value());
      },
      nb::arg("key"), nb::arg("kernel"), nb::arg("gpu") = "", nb::arg("details") = nb::none());
  m.def(
      "remembered",
      [](const KeyTuple& tuple, const std::string& gpu, int details) -> std::optional<std::string> {
        const Kernel* kernel = remembered(to_detailed_key(tuple, gpu, details));
        return kernel ? std::optional<std::string>(kernel->name) : std::nullopt;
      },
      "The kernel that is remembered for a product, by autotune or since its first call.");
  m.def(
      "measure_first_calls",
      [](nb::callable function) {
        Py_XDECREF(std::exchange(kept_measure(), function.release().ptr()));
        torch_ops::set_measure(&ask_measure);
      },
      "The function that measures products where they first run (csrc/torch/first_calls.h).");
  m.def("set_tunes_all", &torch_ops::set_tunes_all, nb::arg("on"),
        "Whether every product of the process is measured where it first runs.");
  m.def("gpu", &current_gpu_name, "Name and size of the current GPU in tuning keys; empty without one.");
  m.def("forget_all", &forget_all);
  m.def("set_workspace_limit",
        [](std::optional<size_t> bytes) { set_workspace_limit(bytes.value_or(kNoLimit)); });
  m.def("set_time_limit", &set_time_limit, nb::arg("seconds"),
        "The seconds that all calls of this thread on the CPU may take together from now on.");
  m.def("remembered_count", &remembered_count);
  m.def("set_framework_probe", [](nb::callable probe) {
    kept_probe() = probe.release().ptr();
    set_framework_probe(&ask_probe);
  });
}
