// Level 7: vendor libraries and the framework as rows of the table. torch's own operators (which call MKL,
// oneDNN or cuBLAS, as torch was built) are called through the context, so that this folder does not depend
// on torch.
#include "core/table.h"

#include "cpu/gemm/predict/predict.h"
#include "cuda/available.h"
#include "cuda/gemm/predict/predict.h"
#include "library/rows.h"

namespace fastgemm {
namespace {

void torch_gemm(const GemmProblem& p, Context& c) { c.callers_gemm(p); }
void torch_transpose(const TransposeProblem& p, Context& c) { c.callers_transpose(p); }

bool has_leading_dimension(const ConstMatrix& m, int64_t rows, int64_t cols) {
  return (m.col_stride == 1 && (rows == 1 || m.row_stride >= cols)) ||
         (m.row_stride == 1 && (cols == 1 || m.col_stride >= rows));
}

// torch 2.13's _int_mm gives wrong sums for other strides, and refuses other results.
const char* int8_rejects(const GemmProblem& p) {
  if (!has_leading_dimension(p.a, p.m, p.k) || !has_leading_dimension(p.b, p.k, p.n))
    return "torch._int_mm takes row-major and column-major operands only";
  const bool contiguous = (p.m == 1 || p.out.row_stride == p.n) && (p.n == 1 || p.out.col_stride == 1);
  return p.out.data && !contiguous ? "torch._int_mm writes contiguous results only" : nullptr;
}

const char* torch_cpu_rejects(const GemmProblem& p) {
  if (p.precision != Precision::ieee) return "torch's CPU product follows its own global flags";
  if (p.type != DType::i8 && p.out_type != p.type) return "torch's CPU product has no out_dtype";
  if (is_integer(p.type) && (p.alpha != 1.0 || p.beta != 0.0))
    return "torch's C interface has no integer alpha and beta";
  if (p.type == DType::i8) return int8_rejects(p);
  return nullptr;
}

// Whether cuBLAS can read an int8 matrix: it reads words of 4 bytes.
bool in_words(const ConstMatrix& m) {
  const int64_t ld = m.col_stride == 1 ? m.row_stride : m.col_stride;
  return ld % 4 == 0 && m.batch_stride % 4 == 0 && starts_at_word(m);
}

// With cuBLAS 13.1 under torch 2.11, a 16-bit product is rounded before a whole matrix is added. This was
// seen at every size with aligned rows.
const char* half_rejects(const GemmProblem& p) {
  if (p.beta == 0.0 || (p.type != DType::f16 && p.type != DType::bf16)) return nullptr;
  const bool bias = is_bias_row(p) && p.c.col_stride == 1 && p.batch == 1;  // others are expanded to a matrix
  if (!bias) return "torch's 16-bit product is rounded before a matrix is added";
  return rounds_before_bias(p) ? kRoundsBeforeBias : nullptr;
}

const char* torch_cuda_rejects(const GemmProblem& p) {
  if (p.out_type != p.type && p.type != DType::i8) return "torch's C interface has no out_dtype on CUDA";
  if (p.type != DType::i8) return half_rejects(p);
  if (p.alpha != 1.0 || p.beta != 0.0) return "torch's C interface has no integer alpha and beta";
  if (p.batch <= 0 || p.m <= 0 || p.n <= 0) return nullptr;
  if (p.m <= 16 || p.k % 8 != 0 || p.n % 8 != 0 || p.k == 0)
    return "torch._int_mm on CUDA takes more than 16 rows, and n and k that are multiples of 8";
  if (!in_words(p.a) || !in_words(p.b))
    return "torch._int_mm on CUDA takes addresses and leading dimensions that are multiples of 4 bytes";
  const bool along_k = p.a.col_stride == 1 && p.b.row_stride == 1;
  // cuBLAS 13.1 fails for NN with CUBLAS_STATUS_NOT_SUPPORTED, for example at 193 x 32 x 64 and 1296 x 224 x
  // 104.
  if (!along_k)
    return "torch._int_mm on CUDA takes row-major A and column-major B; others fail in cuBLAS at some sizes";
  return int8_rejects(p);
}

constexpr DTypeSet kFloats = dtypes(DType::f64, DType::f32, DType::f16, DType::bf16);
constexpr DTypeSet kTensorCoreTypes = dtypes(DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8);

constexpr Kernel torch_gemm_row(Device device, DTypeSet types, std::string_view needs,
                                std::string_view summary, const char* (*unavailable)(),
                                const char* (*rejects)(const GemmProblem&),
                                double (*predict)(const GemmProblem&, const Gpu&),
                                double (*predict_on_cpu)(const GemmProblem&, const Cpu&, int)) {
  return {.op = Op::gemm,
          .device = device,
          .level = 7,
          .name = "torch",
          .dtypes = types,
          .needs = needs,
          .summary = summary,
          .gemm = torch_gemm,
          .unavailable = unavailable,
          .predict = predict,
          .predict_on_cpu = predict_on_cpu,
          .rejects = rejects};
}

constexpr Kernel torch_transpose_row(Device device, std::string_view needs, const char* (*unavailable)()) {
  return {.op = Op::transpose,
          .device = device,
          .level = 7,
          .name = "torch",
          .dtypes = kTransposeTypes,
          .needs = needs,
          .summary = "copy_ of a transposed view",
          .transpose = torch_transpose,
          .unavailable = unavailable};
}

#if FASTGEMM_HAS_CUBLAS
template <int candidate>
void run_candidate(const GemmProblem& p, Context& c) {
  cublaslt(p, c, candidate);
}
template <int candidate>
const char* candidate_rejects(const GemmProblem& p) {
  return cublaslt_rejects(p, candidate);
}
#define FASTGEMM_CANDIDATE(index, ...)                               \
  .gemm = run_candidate<index>, .unavailable = cublaslt_unavailable, \
  __VA_OPT__(__VA_ARGS__, ).rejects = candidate_rejects<index>
#define FASTGEMM_GEAM .transpose = cublas_geam, .unavailable = cublas_unavailable
#else
const char* without_cublas() {
  if (const char* why = cuda::unavailable_library()) return why;
  return "this build has no cuBLAS rows: cublasLt.h was not found (a full CUDA toolkit has it, and the "
         "package nvidia-cublas)";
}
#define FASTGEMM_CANDIDATE(index, ...) .unavailable = without_cublas __VA_OPT__(, __VA_ARGS__)
#define FASTGEMM_GEAM .unavailable = without_cublas
#endif
#define FASTGEMM_CUBLASLT_ROW(index, row_name, row_summary, ...)                                      \
  Kernel {                                                                                            \
    .op = Op::gemm, .device = Device::cuda, .level = 7, .name = row_name, .dtypes = kTensorCoreTypes, \
    .needs = "cuBLASLt", .summary = row_summary, FASTGEMM_CANDIDATE(index, __VA_ARGS__)               \
  }

constexpr Kernel rows[] = {
    torch_gemm_row(Device::cpu, kFloats | dtypes(DType::i8, DType::i32, DType::i64), "any CPU",
                   "torch.mm: MKL or oneDNN, whichever torch links", nullptr, torch_cpu_rejects, nullptr,
                   cpu_predict::seconds_of<cpu_predict::Row::torch>),
    torch_transpose_row(Device::cpu, "any CPU", nullptr),
    torch_gemm_row(Device::cuda, kFloats | dtypes(DType::i8), "a CUDA build of torch", "torch.mm: cuBLAS",
                   cuda::unavailable_library, torch_cuda_rejects, predict::library_to_beat, nullptr),
    FASTGEMM_CUBLASLT_ROW(0, "cublaslt_1", "cuBLASLt's first candidate", .predict = predict::library_to_beat),
    FASTGEMM_CUBLASLT_ROW(1, "cublaslt_2", "cuBLASLt's second candidate"),
    FASTGEMM_CUBLASLT_ROW(2, "cublaslt_3", "cuBLASLt's third candidate"),
    FASTGEMM_CUBLASLT_ROW(3, "cublaslt_4", "cuBLASLt's fourth candidate"),
    torch_transpose_row(Device::cuda, "a CUDA build of torch", cuda::unavailable_library),
    // geam does arithmetic and may change the bits of a NaN, so it is not a rung.
    Kernel{.op = Op::transpose,
           .device = Device::cuda,
           .level = 7,
           .name = "cublas_geam",
           .dtypes = dtypes(DType::bits32, DType::bits64, DType::bits128),
           .needs = "cuBLAS",
           .summary = "cublas geam with alpha 1 and beta 0: arithmetic on floats, which may change NaNs",
           .role = Role::companion,
           FASTGEMM_GEAM},
};

}  // namespace

std::span<const Kernel> library_kernels() { return rows; }

#if !FASTGEMM_HAS_CUBLAS
std::string cublas_version() { return "none"; }
#endif

}  // namespace fastgemm
