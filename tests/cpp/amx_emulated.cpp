// The AMX kernels, compiled over a model of the tile unit (cpu/gemm/amx_emulation.h) so that they can be
// proved on any processor: every layout, odd sizes, several k-blocks, batches, alpha and beta, NaN and
// infinity, int8 over its full range, sums beyond 2^31. Exits 1 on the first wrong result.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "core/context.h"
#include "core/cpu_features.h"
#include "cpu/gemm/levels.h"

namespace fastgemm {
namespace {

// Every task on a thread of its own: tile configuration belongs to a thread.
class ThreadContext : public Context {
 public:
  explicit ThreadContext(int threads) : threads_(threads) {}
  ~ThreadContext() override { std::free(scratch_); }
  int threads() const override { return threads_; }
  void parallel(int64_t tasks, const std::function<void(int64_t)>& task) override {
    std::vector<std::thread> pool;
    for (int64_t i = 0; i < tasks; ++i) pool.emplace_back(task, i);
    for (std::thread& t : pool) t.join();
  }
  void* allocate(size_t bytes) override {
    std::free(scratch_);
    bytes = (bytes + 63) / 64 * 64;
    scratch_ = std::aligned_alloc(64, bytes);
    std::memset(scratch_, 0xff, bytes);  // NaN, so that a read of what was never written shows
    return scratch_;
  }
  void torch_gemm(const GemmProblem&) override {}
  void torch_transpose(const TransposeProblem&) override {}

 private:
  int threads_;
  void* scratch_ = nullptr;
};

float from_bf16(uint16_t x) {
  const uint32_t bits = uint32_t{x} << 16;
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

struct Case {
  DType type, out_type;
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed;
  double alpha, beta;
  bool special;  // bf16: with NaN and infinity; int8: all elements -128
};

class Operand {
 public:
  // Random elements, with a gap after every row and every batch.
  Operand(const Case& c, DType type, int64_t rows, int64_t cols, bool transposed, std::mt19937& random)
      : type_(type) {
    const int64_t ld = (transposed ? rows : cols) + 3;
    view = {nullptr, transposed ? 1 : ld, transposed ? ld : 1, ld * (transposed ? cols : rows) + 5};
    bytes_.resize(c.batch * view.batch_stride * element_size(type));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < c.batch * view.batch_stride; ++i) {
      if (type == DType::i8) {
        put<int8_t>(i, static_cast<int8_t>(c.special ? -128 : static_cast<int>(random() % 256) - 128));
      } else if (type == DType::i32) {
        put<uint32_t>(i, static_cast<uint32_t>(random()));
      } else {
        float x = normal(random);
        if (c.special && random() % 97 == 0) x = random() % 2 ? INFINITY : NAN;
        uint32_t bits;
        std::memcpy(&bits, &x, sizeof(bits));
        type == DType::bf16 ? put<uint16_t>(i, static_cast<uint16_t>(bits >> 16)) : put<float>(i, x);
      }
    }
    view.data = bytes_.data();
  }
  template <class T>
  T get(int64_t batch, int64_t i, int64_t j) const {
    T x;
    const int64_t at = batch * view.batch_stride + i * view.row_stride + j * view.col_stride;
    std::memcpy(&x, bytes_.data() + at * sizeof(T), sizeof(T));
    return x;
  }
  double value(int64_t batch, int64_t i, int64_t j) const {
    if (type_ == DType::i8) return get<int8_t>(batch, i, j);
    if (type_ == DType::i32) return static_cast<int32_t>(get<uint32_t>(batch, i, j));
    return type_ == DType::bf16 ? from_bf16(get<uint16_t>(batch, i, j)) : get<float>(batch, i, j);
  }
  Matrix view;

 private:
  template <class T>
  void put(int64_t i, T x) {
    std::memcpy(bytes_.data() + i * sizeof(T), &x, sizeof(T));
  }
  DType type_;
  std::vector<char> bytes_;
};

ConstMatrix read_only(const Matrix& m) { return {m.data, m.row_stride, m.col_stride, m.batch_stride}; }

// Integers: equal modulo 2^32. Floats: within the rounding of k products, and of the result's type.
bool right(const Case& c, const Operand& out, int64_t batch, int64_t i, int64_t j, double sum,
           double magnitude, double addend) {
  if (c.type == DType::i8) {
    const int64_t want = static_cast<int64_t>(c.alpha) * static_cast<int64_t>(sum) +
                         static_cast<int64_t>(c.beta) * static_cast<int64_t>(addend);
    return out.get<uint32_t>(batch, i, j) == static_cast<uint32_t>(want);
  }
  if (c.beta == 0) addend = 0;
  const double want = c.alpha * sum + c.beta * addend, got = out.value(batch, i, j);
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  const double scale = std::fabs(c.alpha) * magnitude + std::fabs(c.beta * addend);
  const double rounding = c.out_type == DType::bf16 ? 0x1.01p-8 * std::fabs(want) : 0;
  return std::fabs(got - want) <= rounding + 0x1p-24 * (std::sqrt(double(c.k)) + 8) * scale + 1e-30;
}

bool check(const Case& c, int threads) {
  std::mt19937 random(static_cast<unsigned>(c.m * 31 + c.n * 7 + c.k));
  const Operand a(c, c.type, c.m, c.k, c.a_transposed, random),
      b(c, c.type, c.k, c.n, c.b_transposed, random);
  const Operand addend(c, c.out_type, c.m, c.n, c.a_transposed, random);
  Operand out(c, c.out_type, c.m, c.n, false, random);
  GemmProblem p;
  p.type = c.type, p.out_type = c.out_type;
  p.batch = c.batch, p.m = c.m, p.n = c.n, p.k = c.k;
  p.a = read_only(a.view), p.b = read_only(b.view), p.out = out.view;
  p.alpha = c.alpha, p.beta = c.beta;
  if (c.beta != 0) p.c = read_only(addend.view);
  ThreadContext context(threads);
  c.type == DType::i8 ? gemm_amx_int8(p, context) : gemm_amx_bf16(p, context);

  for (int64_t batch = 0; batch < c.batch; ++batch)
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < c.k; ++k) {
          const double product = a.value(batch, i, k) * b.value(batch, k, j);
          sum += product;
          magnitude += std::fabs(product);
        }
        if (right(c, out, batch, i, j, sum, magnitude, addend.value(batch, i, j))) continue;
        std::printf(
            "wrong: type %d out %d batch %d of %d, %d x %d x %d at (%d, %d), trans %d %d, alpha %g beta %g\n",
            int(c.type), int(c.out_type), int(batch), int(c.batch), int(c.m), int(c.n), int(c.k), int(i),
            int(j), c.a_transposed, c.b_transposed, c.alpha, c.beta);
        return false;
      }
  return true;
}

bool check_all() {
  constexpr int64_t sizes[][3] = {{1, 1, 1},    {1, 33, 3},   {7, 1, 64},    {16, 16, 32},  {31, 33, 65},
                                  {32, 32, 64}, {33, 40, 31}, {70, 65, 129}, {64, 96, 1100}};
  int checked = 0;
  const auto run = [&](const Case& c) {
    ++checked;
    return check(c, 1) && check(c, 3);
  };
  for (const auto& s : sizes)
    for (int layout = 0; layout < 4; ++layout)
      for (const auto& [alpha, beta] : {std::pair{1.0, 0.0}, {-3.0, 2.0}})
        for (const DType out : {DType::bf16, DType::f32, DType::i32}) {
          const DType type = out == DType::i32 ? DType::i8 : DType::bf16;
          const bool a_transposed = layout & 1, b_transposed = layout & 2;
          if (!run({type, out, 1, s[0], s[1], s[2], a_transposed, b_transposed, alpha, beta, false}))
            return false;
          if (s[2] < 100 &&
              !run({type, out, 3, s[0], s[1], s[2], a_transposed, b_transposed, alpha, beta, true}))
            return false;
        }
  // Deep enough for several k-blocks, for a split of k over the threads, and for int32 to wrap.
  for (const DType out : {DType::bf16, DType::i32}) {
    const DType type = out == DType::i32 ? DType::i8 : DType::bf16;
    if (!run({type, out, 1, 5, 40, 8300, false, true, 1, 0, false})) return false;
    if (!run({type, out, 1, 2, 3, 140000, true, false, 1, 1, type == DType::i8})) return false;
  }
  std::printf("%d problems right\n", checked);
  return true;
}

}  // namespace
}  // namespace fastgemm

int main() {
#if defined(__AVX512F__)
  if (!fastgemm::cpu_features().avx512) {
    std::printf("skipped: packs with AVX-512, which this processor lacks\n");
    return 77;  // ctest counts that as skipped
  }
#endif
  return fastgemm::check_all() ? 0 : 1;
}
