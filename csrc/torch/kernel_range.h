// Tells torch's profiler which kernel runs, by a RecordFunction around it, named for example
// "fastgemm.gemm[microkernel]". torch.profiler shows it, and torch.autograd.profiler.emit_nvtx makes it an
// NVTX range. Without an active profiler it costs 0.1 us.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <array>
#include <string_view>

#include "core/names.h"
#include "core/table.h"

namespace fastgemm::torch_ops {

class KernelRange {
 public:
  explicit KernelRange(const Kernel& kernel) {
    // The name is not on the heap, which would double the cost. No name of the table is too long for it.
    std::array<char, 96> name;
    char* end = name.data();
    for (const std::string_view part : {std::string_view("fastgemm."), to_string(kernel.op),
                                        std::string_view("["), kernel.name, std::string_view("]")})
      end += part.copy(end, size_t(name.data() + name.size() - 1 - end));
    *end = '\0';
    // If this fails, the handle stays null and the call goes on unrecorded.
    aoti_record_function_start(name.data(), nullptr, nullptr, 0, &handle_);
  }
  ~KernelRange() {
    if (handle_) aoti_record_function_end(handle_);
  }
  KernelRange(const KernelRange&) = delete;
  KernelRange& operator=(const KernelRange&) = delete;

 private:
  AtenRecordFunctionHandle handle_ = nullptr;
};

}  // namespace fastgemm::torch_ops
