#include "torch/cuda_context.h"

#include <dlfcn.h>

#include <stdexcept>

#include "torch/framework.h"

namespace fastgemm::torch_ops {
namespace {

// Functions of libtorch_cuda are looked up at run time, so that this library also links against a torch
// without CUDA. A handle of the loaded library is needed: Python loads libraries locally, so RTLD_DEFAULT
// does not find their symbols.
struct TorchCuda {
  AOTITorchError (*current_stream)(int32_t device_index, void** stream);
  AOTITorchError (*allocate)(uint64_t bytes, void** data);
  AOTITorchError (*free)(void* data);
  Backend backend;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw std::runtime_error(std::string("fastgemm: this torch has no ") + name);
}

const TorchCuda& torch_cuda() {
  static const TorchCuda functions = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
      throw std::runtime_error("fastgemm: libtorch_cuda.so is not loaded; is this a CUDA build of torch?");
    TorchCuda t;
    find(library, "aoti_torch_get_current_cuda_stream", t.current_stream);
    find(library, "aoti_torch_cuda_caching_allocator_raw_alloc", t.allocate);
    find(library, "aoti_torch_cuda_caching_allocator_raw_delete", t.free);
    t.backend.device_type = aoti_torch_device_type_cuda();
    find(library, "aoti_torch_cuda_mm_out", t.backend.mm);
    find(library, "aoti_torch_cuda_bmm_out", t.backend.bmm);
    find(library, "aoti_torch_cuda__int_mm_out", t.backend.int_mm);
    find(library, "aoti_torch_cuda_addmm_out", t.backend.addmm);
    find(library, "aoti_torch_cuda_baddbmm_out", t.backend.baddbmm);
    return t;
  }();
  return functions;
}

}  // namespace

CudaContext::CudaContext(int device_index) : guard_(device_index), device_index_(device_index) {
  check(torch_cuda().current_stream(device_index, &stream_), "get_current_cuda_stream");
}

void CudaContext::release() {
  for (void* scratch : scratch_) torch_cuda().free(scratch);
  scratch_.clear();
}

void* CudaContext::obtain(size_t bytes) {
  scratch_.reserve(scratch_.size() + 1);  // before the allocation, which would leak if this failed
  void* data = nullptr;
  if (bytes > 0 && torch_cuda().allocate(bytes, &data) != AOTI_TORCH_SUCCESS) throw std::bad_alloc();
  if (data) scratch_.push_back(data);
  return data;
}

void CudaContext::callers_gemm(const GemmProblem& p) { framework_gemm(torch_cuda().backend, operands(), p); }
void CudaContext::callers_transpose(const TransposeProblem& p) {
  framework_transpose(torch_cuda().backend, device_index_, p);
}

}  // namespace fastgemm::torch_ops
