// cuBLASLt: we describe a product, and its heuristics name candidate algorithms.
//
// cuBLASLt is column-major, so it computes out^T = b^T a^T: its first operand is b, its second a.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cuda/available.h"
#include "library/rows.h"
#include "library/vendor.h"

namespace fastgemm {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;

const std::string& soname() {
  static const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  return name;
}

struct Lt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

const Lt& lt() {
  static const Lt functions = [] {
    void* library = loaded_library(soname());
    Lt f;
    find_function(library, "cublasLtCreate", f.create);
    find_function(library, "cublasLtMatmul", f.matmul);
    find_function(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic);
    find_function(library, "cublasLtMatmulDescCreate", f.desc_create);
    find_function(library, "cublasLtMatmulDescDestroy", f.desc_destroy);
    find_function(library, "cublasLtMatmulDescSetAttribute", f.desc_set);
    find_function(library, "cublasLtMatrixLayoutCreate", f.layout_create);
    find_function(library, "cublasLtMatrixLayoutDestroy", f.layout_destroy);
    find_function(library, "cublasLtMatrixLayoutSetAttribute", f.layout_set);
    find_function(library, "cublasLtMatmulPreferenceCreate", f.preference_create);
    find_function(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy);
    find_function(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set);
    return f;
  }();
  return functions;
}

// Threads may share a handle. There is one per device. It is created while the device is current, and never
// destroyed.
cublasLtHandle_t handle_of(int device) {
  static std::mutex mutex;
  static auto* handles = new std::array<cublasLtHandle_t, 64>{};
  std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles->at(size_t(device));
  if (!handle) {
    RelaxedCapture relaxed;
    check_vendor(lt().create(&handle), "cublasLtCreate");
  }
  return handle;
}

// The storage of a matrix, as the column-major cuBLASLt sees it.
struct Storage {
  bool transposed;  // stored by rows
  int64_t ld;
};
template <class M>
std::optional<Storage> storage_of(const M& m, int64_t rows, int64_t cols) {
  if ((cols == 1 || m.col_stride == 1) && (rows == 1 || m.row_stride >= cols))
    return Storage{true, std::max(m.row_stride, cols)};
  if ((rows == 1 || m.row_stride == 1) && (cols == 1 || m.col_stride >= rows))
    return Storage{false, std::max(m.col_stride, rows)};
  return std::nullopt;
}

struct Types {
  cudaDataType_t in, out, scale;
  cublasComputeType_t compute;
};
Types types_of(const GemmProblem& p) {
  const bool tf32 = p.precision == Precision::tf32;  // all other precisions get IEEE products
  const auto out_of = [&](cudaDataType_t same) { return p.out_type == DType::f32 ? CUDA_R_32F : same; };
  switch (p.type) {
    case DType::f64:
      return {CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::f16:
      return {CUDA_R_16F, out_of(CUDA_R_16F), CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::bf16:
      return {CUDA_R_16BF, out_of(CUDA_R_16BF), CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::i8:
      return {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I};
    default:
      return {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
  }
}

// Whether c is one row that is added to every row of the result. cuBLASLt's epilogue can add it, which saves
// reading a matrix of the result's size. It has no such epilogue for float64 and integers, and must not write
// the memory that it reads.
bool is_bias(const GemmProblem& p) {
  return is_bias_row(p) && p.c.data != p.out.data && p.type != DType::f64 && !is_integer(p.type);
}

// Everything that the choice of an algorithm depends on.
using Key = std::array<int64_t, 22>;

int64_t alignment_of(const void* p) {  // the heuristics use at most 256 bytes
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address == 0 ? 256 : int64_t(std::min<uintptr_t>(address & (~address + 1), 256));
}

// The alignment that every member of a batch has. It may be smaller than that of the first member, because it
// depends on the batch stride: for example, one row of 24 elements every 25 elements.
template <class M>
uint32_t member_alignment(const M& m, DType type, int64_t batch) {
  const int64_t first = alignment_of(m.data), step = batch > 1 ? m.batch_stride * element_size(type) : 0;
  return uint32_t(step == 0 ? first : std::min(first, alignment_of(reinterpret_cast<const void*>(step))));
}

// The alignment that every row of c or out has, limited to the widest access of an algorithm.
template <class M>
int64_t row_alignment(const M& m, int64_t ld, const GemmProblem& p) {
  constexpr int64_t kMost = 16;
  const int64_t step = p.m > 1 ? ld * element_size(p.out_type) : kMost;
  return std::min({kMost, int64_t(member_alignment(m, p.out_type, p.batch)),
                   alignment_of(reinterpret_cast<const void*>(step))});
}

Key key_of(const GemmProblem& p) {
  return {current_cuda_device(),
          int64_t(p.type) | int64_t(p.out_type) << 8 | int64_t(p.precision) << 16 |
              int64_t(p.beta != 0) << 24 | int64_t(is_bias(p)) << 25,
          p.batch,
          p.m,
          p.n,
          p.k,
          p.a.row_stride,
          p.a.col_stride,
          p.a.batch_stride,
          p.b.row_stride,
          p.b.col_stride,
          p.b.batch_stride,
          p.out.row_stride,
          p.out.col_stride,
          p.out.batch_stride,
          p.beta != 0 ? p.c.row_stride : 0,
          p.beta != 0 ? p.c.col_stride : 0,
          p.beta != 0 ? p.c.batch_stride : 0,
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          alignment_of(p.out.data),
          p.beta != 0 ? alignment_of(p.c.data) : 256};
}
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = 0xcbf29ce484222325u;
    for (const int64_t v : key) h = (h ^ uint64_t(v)) * 0x100000001b3u, h ^= h >> 29;
    return h;
  }
};

// The descriptors of a problem and the algorithms for it. If there are none, `problem` is the reason.
class Plan {
 public:
  explicit Plan(const GemmProblem& p) { build(p); }
  ~Plan() {
    for (const auto layout : {a_, b_, c_, out_})
      if (layout) lt().layout_destroy(layout);
    if (desc_) lt().desc_destroy(desc_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const char* problem = nullptr;
  int candidates() const { return int(found_.size()); }

  void run(const GemmProblem& p, Context& context, int candidate) const {
    const cublasLtMatmulHeuristicResult_t& algorithm = found_[size_t(candidate)];
    void* workspace = algorithm.workspaceSize ? context.allocate(algorithm.workspaceSize) : nullptr;
    const bool reads_c = p.beta != 0 && !bias_;
    const Scalar alpha(p.alpha, p.type), beta(reads_c ? p.beta : 0.0, p.type);
    const void* c = reads_c ? p.c.data : p.out.data;
    if (bias_) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.c.data);
    check_vendor(lt().matmul(handle_of(current_cuda_device()), desc_, alpha.bytes, p.b.data, b_, p.a.data, a_,
                             beta.bytes, c, c_, p.out.data, out_, &algorithm.algo, workspace,
                             algorithm.workspaceSize, static_cast<cudaStream_t>(context.stream())),
                 "cublasLtMatmul");
  }

 private:
  struct Scalar {
    alignas(8) unsigned char bytes[8];
    Scalar(double x, DType type) {
      const float f = float(x);
      const int32_t i = int32_t(uint32_t(int64_t(x)));
      if (type == DType::f64)
        std::memcpy(bytes, &x, 8);
      else if (type == DType::i8)
        std::memcpy(bytes, &i, 4);
      else
        std::memcpy(bytes, &f, 4);
    }
  };

  template <class T>
  void set(cublasLtMatmulDescAttributes_t name, T value) const {
    check_vendor(lt().desc_set(desc_, name, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld,
                                       int64_t batch, int64_t batch_stride) {
    cublasLtMatrixLayout_t made = nullptr;
    check_vendor(lt().layout_create(&made, type, uint64_t(rows), uint64_t(cols), ld),
                 "cublasLtMatrixLayoutCreate");
    const auto count = int32_t(batch);
    lt().layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    lt().layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof(batch_stride));
    return made;
  }
  // The layout of an operand as cuBLASLt sees it.
  static cublasLtMatrixLayout_t operand(cudaDataType_t type, const Storage& s, int64_t rows, int64_t cols,
                                        const GemmProblem& p, int64_t batch_stride) {
    return layout(type, s.transposed ? cols : rows, s.transposed ? rows : cols, s.ld, p.batch, batch_stride);
  }

  void build(const GemmProblem& p) {
    const auto a = storage_of(p.a, p.m, p.k), b = storage_of(p.b, p.k, p.n),
               out = storage_of(p.out, p.m, p.n);
    bias_ = is_bias(p);
    const bool reads_c = p.beta != 0 && !bias_;
    const auto c = reads_c ? storage_of(p.c, p.m, p.n) : out;
    if (!a || !b) return void(problem = "cuBLASLt takes row-major and column-major operands only");
    // In cuBLAS 13.1 the heuristics name an algorithm, but running it fails with CUBLAS_STATUS_NOT_SUPPORTED.
    if (p.type == DType::i8 && !(starts_at_word(p.a) && starts_at_word(p.b)))
      return void(problem = "cuBLASLt reads int8 matrices in words of 4 bytes");
    if (bias_ && rounds_before_bias(p)) return void(problem = kRoundsBeforeBias);
    if (!out || !out->transposed || !c || !c->transposed)
      return void(problem =
                      "cuBLASLt takes c and out with contiguous rows only, and a row as c with beta = 1");
    // In cuBLAS 13.1, if the rows of c start at multiples of 16 bytes and the rows of out do not, the
    // heuristics name algorithms that write to misaligned addresses.
    if (reads_c && row_alignment(p.c, c->ld, p) != row_alignment(p.out, out->ld, p))
      return void(problem = "cuBLASLt takes c and out whose rows are aligned alike");
    const Types t = types_of(p);
    check_vendor(lt().desc_create(&desc_, t.compute, t.scale), "cublasLtMatmulDescCreate");
    // cuBLASLt sees a row-major matrix as its transpose, which out^T = b^T a^T needs.
    set(CUBLASLT_MATMUL_DESC_TRANSA, b->transposed ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, a->transposed ? CUBLAS_OP_N : CUBLAS_OP_T);
    b_ = operand(t.in, *b, p.k, p.n, p, p.b.batch_stride);
    a_ = operand(t.in, *a, p.m, p.k, p, p.a.batch_stride);
    out_ = operand(t.out, *out, p.m, p.n, p, p.out.batch_stride);
    c_ = operand(t.out, *c, p.m, p.n, p, reads_c ? p.c.batch_stride : p.out.batch_stride);
    if (bias_) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, cublasLtEpilogue_t{CUBLASLT_EPILOGUE_BIAS});
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.c.data);
    }
    ask(p);
    if (found_.empty()) problem = "cuBLASLt has no algorithm for it";
  }

  void ask(const GemmProblem& p) {
    cublasLtMatmulPreference_t wish = nullptr;
    check_vendor(lt().preference_create(&wish), "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      lt().preference_set(wish, name, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspace});
    // Partial sums stay in the compute type, so that a result is rounded once.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    const uint32_t out = member_alignment(p.out, p.out_type, p.batch);
    const bool reads_c = p.beta != 0 && !bias_;
    const uint32_t written = bias_ ? std::min(out, uint32_t(alignment_of(p.c.data))) : out;
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, member_alignment(p.b, p.type, p.batch));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, member_alignment(p.a, p.type, p.batch));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        reads_c ? member_alignment(p.c, p.out_type, p.batch) : out);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        written);  // there is no attribute for the bias row of the epilogue
    found_.resize(kCublasLtCandidates);
    int count = 0;
    const cublasStatus_t status = lt().heuristic(handle_of(current_cuda_device()), desc_, b_, a_, c_, out_,
                                                 wish, kCublasLtCandidates, found_.data(), &count);
    lt().preference_destroy(wish);
    found_.resize(status == CUBLAS_STATUS_SUCCESS ? size_t(count) : 0);
  }

  bool bias_ = false;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr, out_ = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found_;
};

// The heuristics take 20 us or more, so each thread keeps its last plans.
const Plan& plan_of(const GemmProblem& p) {
  constexpr size_t kMostPlans = 1024;
  thread_local std::unordered_map<Key, Plan, KeyHash> plans;
  const Key key = key_of(p);
  if (const auto it = plans.find(key); it != plans.end()) return it->second;
  if (plans.size() >= kMostPlans) plans.clear();
  return plans.try_emplace(key, p).first->second;
}

// The problem itself if the rows of out are contiguous, else its transpose.
GemmProblem by_rows(const GemmProblem& p) { return p.out.col_stride == 1 || p.n == 1 ? p : p.transposed(); }

}  // namespace

std::string cublas_version() {
  void* library = loaded_library(soname());
  if (!library) return "none";
  decltype(&cublasLtGetVersion) version;
  find_function(library, "cublasLtGetVersion", version);
  const size_t number = version();  // 10000 * major + 100 * minor + patch since 13.0
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

const char* cublaslt_unavailable() {
  if (const char* why = cuda::unavailable_library()) return why;
  static const std::string missing = soname() + " is not loaded: torch uses another version of cuBLASLt";
  static const bool loaded = loaded_library(soname()) != nullptr;
  return loaded ? nullptr : missing.c_str();
}

const char* cublaslt_rejects(const GemmProblem& problem, int candidate) {
  if (problem.batch <= 0 || problem.m <= 0 || problem.n <= 0) return nullptr;
  if (problem.k <= 0) return "cuBLASLt takes no empty sums";
  const Plan& plan = plan_of(by_rows(problem));
  if (plan.problem) return plan.problem;
  return candidate < plan.candidates() ? nullptr : "cuBLASLt's heuristics name fewer candidates for it";
}

void cublaslt(const GemmProblem& problem, Context& context, int candidate) {
  if (problem.batch <= 0 || problem.m <= 0 || problem.n <= 0) return;
  const GemmProblem p = by_rows(problem);
  plan_of(p).run(p, context, candidate);
}

}  // namespace fastgemm
