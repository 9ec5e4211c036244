// cublas<t>geam as a transposing copy.
#include <cublas_v2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>

#include "cuda/available.h"
#include "library/rows.h"
#include "library/vendor.h"

namespace fastgemm {
namespace {

const std::string& soname() {
  static const std::string name = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
  return name;
}

struct Cublas {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSgeam) sgeam;
  decltype(&cublasDgeam) dgeam;
  decltype(&cublasZgeam) zgeam;
};

const Cublas& cublas() {
  static const Cublas functions = [] {
    void* library = loaded_library(soname());
    Cublas c;
    find_function(library, "cublasCreate_v2", c.create);
    find_function(library, "cublasSetStream_v2", c.set_stream);
    find_function(library, "cublasSgeam", c.sgeam);
    find_function(library, "cublasDgeam", c.dgeam);
    find_function(library, "cublasZgeam", c.zgeam);
    return c;
  }();
  return functions;
}

// One handle per device, used by one thread at a time. It is never destroyed, because the driver may be
// unloaded before the process exits.
struct Handle {
  std::mutex mutex;
  cublasHandle_t handle = nullptr;
};
Handle& handle_of(int device) {
  static auto* handles = new std::array<Handle, 64>;
  return handles->at(size_t(device));
}

int as_int(int64_t x, const char* what) {
  if (x > std::numeric_limits<int>::max())
    throw std::runtime_error(std::string("fastgemm: cublas geam takes 32-bit sizes; ") + what + " is " +
                             std::to_string(x));
  return int(x);
}

// cuBLAS is column-major. The (rows x cols) matrix that it writes is dst: (cols x rows) in row-major order.
template <class T, class Geam>
void geam(Geam function, cublasHandle_t handle, const TransposeProblem& p) {
  const bool transposes = p.src.col_stride == 1;
  const int64_t src_ld =
      std::max(transposes ? p.src.row_stride : p.src.col_stride, transposes ? p.cols : p.rows);
  const int m = as_int(p.rows, "rows"), n = as_int(p.cols, "cols");
  const int lda = as_int(src_ld, "a leading dimension"),
            ldc = as_int(p.dst.row_stride, "a leading dimension");
  const T one{1}, zero{0};
  for (int64_t i = 0; i < p.batch; ++i) {
    const T* src = static_cast<const T*>(p.src.data) + i * p.src.batch_stride;
    T* dst = static_cast<T*>(p.dst.data) + i * p.dst.batch_stride;
    check_vendor(function(handle, transposes ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, m, n, &one, src, lda,
                          &zero, dst, ldc, dst, ldc),
                 "cublas geam");
  }
}

}  // namespace

const char* cublas_unavailable() {
  if (const char* why = cuda::unavailable_library()) return why;
  static const std::string missing = soname() + " is not loaded: torch uses another version of cuBLAS";
  static const bool loaded = loaded_library(soname()) != nullptr;
  return loaded ? nullptr : missing.c_str();
}

void cublas_geam(const TransposeProblem& p, Context& context) {
  if (p.batch <= 0 || p.rows <= 0 || p.cols <= 0) return;
  Handle& h = handle_of(current_cuda_device());
  std::lock_guard lock(h.mutex);
  if (!h.handle) {
    RelaxedCapture relaxed;
    check_vendor(cublas().create(&h.handle), "cublasCreate");
  }
  check_vendor(cublas().set_stream(h.handle, static_cast<cudaStream_t>(context.stream())), "cublasSetStream");
  if (p.type == DType::bits32) return geam<float>(cublas().sgeam, h.handle, p);
  if (p.type == DType::bits64) return geam<double>(cublas().dgeam, h.handle, p);
  geam<cuDoubleComplex>(cublas().zgeam, h.handle, p);
}

}  // namespace fastgemm
