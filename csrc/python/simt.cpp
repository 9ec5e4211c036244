// fastgemm._simt: the simulator for Python. When it is loaded, CPU tensors can use the CUDA kernels. Calls
// between begin() and end() run on it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "core/simulator.h"
#include "simt/resources.h"
#include "simt/rows.h"
#include "simt/session.h"
#include "simt/symbols.h"

namespace nb = nanobind;
using namespace fastgemm;

namespace {

nb::tuple triple(const dim3& d) { return nb::make_tuple(d.x, d.y, d.z); }

nb::dict to_dict(const simt::Site& s) {
  nb::dict d;
  d["pc"] = s.pc, d["space"] = to_string(s.space), d["kind"] = to_string(s.kind), d["bytes"] = s.bytes;
  d["instruction"] = s.instruction, d["buffer"] = s.buffer;
  d["requests"] = s.requests, d["lanes"] = s.lanes, d["sectors"] = s.sectors;
  d["wavefronts"] = s.wavefronts, d["ideal_wavefronts"] = s.ideal_wavefronts;
  d["bytes_used"] = s.bytes_used, d["flops"] = s.flops;
  nb::list example;
  if (s.example_cost >= 0)
    for (const int64_t offset : s.example)
      example.append(offset < 0 ? nb::object(nb::none()) : nb::object(nb::int_(offset)));
  d["example"] = example;
  return d;
}

nb::dict to_dict(const simt::Problem& p) {
  nb::dict d;
  d["check"] = p.check, d["message"] = p.message, d["sites"] = p.sites, d["count"] = p.count;
  d["block"] = triple(p.block), d["thread"] = triple(p.thread);
  return d;
}

nb::dict to_dict(const simt::Launch& l) {
  nb::dict d;
  d["row"] = l.row, d["kernel"] = l.kernel, d["function"] = l.function;
  d["grid"] = triple(l.grid), d["block"] = triple(l.block), d["cluster"] = l.cluster;
  d["dynamic_shared"] = l.dynamic_shared, d["static_shared"] = l.static_shared;
  d["blocks"] = l.blocks, d["blocks_counted"] = l.blocks_counted, d["complete"] = l.complete;
  d["barriers"] = l.barriers, d["bytes_in_flight"] = l.bytes_in_flight;
  nb::list buffers, sites, problems;
  for (const simt::Buffer& b : l.buffers) {
    nb::dict buffer;
    buffer["name"] = b.name, buffer["bytes"] = b.bytes, buffer["bytes_touched"] = b.bytes_touched;
    buffers.append(buffer);
  }
  for (const auto& [key, site] : l.sites) sites.append(to_dict(site));
  for (const simt::Problem& p : l.problems) problems.append(to_dict(p));
  d["buffers"] = buffers, d["sites"] = sites, d["problems"] = problems;
  return d;
}

void begin(bool count, bool raise_problems, int multiprocessors, int64_t max_blocks, int capability,
           bool run) {
  if (simulating()) throw std::runtime_error("fastgemm: a simulation is already running in this thread");
  simt::session() = {};
  simt::session().options = {count, raise_problems, multiprocessors, max_blocks, run};
  set_simulated_gpu(nominal_gpu(capability, multiprocessors));
  set_simulating(true);
}

void install() {
  static const std::vector<Kernel> rows = simt::rows();
  install_simulator(rows, simt::passes());
}

nb::list end() {
  set_simulating(false);
  nb::list launches;
  for (const simt::Launch& launch : simt::session().launches) launches.append(to_dict(launch));
  simt::session() = {};
  return launches;
}

}  // namespace

NB_MODULE(_simt, m) {
  m.doc() = "Runs the CUDA kernels on the CPU, and counts and checks their memory accesses.";
  install();
  m.def("install", &install,
        "Makes simulations run the kernels of this module; loading the module does so, too.");
  m.def("begin", &begin, nb::arg("count"), nb::arg("raise_problems"), nb::arg("multiprocessors"),
        nb::arg("max_blocks"), nb::arg("capability") = 90, nb::arg("run") = true,
        "From here on, ops on CPU tensors in this thread run simulated CUDA kernels.");
  m.def("end", &end, "Ends the simulation, and returns what was recorded for each kernel launch.");
  m.def("resources", &simt::resources,
        "Registers and static shared memory of the kernels, as nvcc compiled them: JSON.");
  m.def("path", &simt::symbols::path,
        "The path of the shared object to which program counters are relative.");
}
