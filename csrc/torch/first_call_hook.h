// The function that measures a product where it first runs. The module of Python (csrc/python) sets it, so
// this header includes nothing of torch.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "core/tuning.h"

namespace fastgemm::torch_ops {

// A product that is to be measured. `run` computes it by one of the kernels, with a result in scratch memory;
// it throws CannotRun if the kernel turns out not to take it.
struct FirstCall {
  const TuningKey& key;
  std::span<const Kernel* const> kernels;  // at least two; the first is the one taken without a measurement
  size_t bytes;                            // of the result
  int device_index;
  std::function<void(std::string_view kernel)> run;
};

// Measures, and remembers what it found. Returns whether the kernel is known now. It is not known if nothing
// may be measured at present, for example during the capture of a graph.
using Measure = bool (*)(const FirstCall&);
void set_measure(Measure);

// Whether all products of this process are measured, not only those of some patches.
void set_tunes_all(bool);
bool tunes_all();

}  // namespace fastgemm::torch_ops
