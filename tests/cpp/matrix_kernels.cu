// The list of cases. Compiled by nvcc for the GPU and as C++ for the simulator.
#include <stdexcept>

#include "cuda/device/launch.cuh"
#include "matrix_kernels.cuh"
#include "matrix_wgmma.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

using test::MatrixCase;
using test::Number;

// On the stream 0.
class PlainContext final : public Context {
 public:
  void* allocate(size_t) override { throw std::logic_error("no scratch memory here"); }
  void torch_gemm(const GemmProblem&) override { throw std::logic_error("no torch here"); }
  void torch_transpose(const TransposeProblem&) override { throw std::logic_error("no torch here"); }
};

template <auto kernel, class... Arguments>
void run(dim3 grid, int threads, int shared_bytes, const Arguments&... arguments) {
  PlainContext context;
  launch<kernel>("matrix case", {grid, dim3(unsigned(threads)), size_t(shared_bytes)}, context)(arguments...);
}

template <class T>
struct Named;
#define FASTGEMM_NAMED(T, number)                     \
  template <>                                         \
  struct Named<T> {                                   \
    static constexpr Number kNumber = Number::number; \
    static constexpr const char* kText = " " #number; \
  };
FASTGEMM_NAMED(Half, f16)
FASTGEMM_NAMED(BFloat16, bf16)
FASTGEMM_NAMED(Tf32, tf32)
FASTGEMM_NAMED(double, f64)
FASTGEMM_NAMED(int8_t, s8)
FASTGEMM_NAMED(uint8_t, u8)
FASTGEMM_NAMED(uint16_t, bits16)
#undef FASTGEMM_NAMED

template <class T>
MatrixCase case_of(const std::string& name, int m, int n, int k) {
  MatrixCase c;
  c.name = name + " m" + std::to_string(m) + "n" + std::to_string(n) + (k ? "k" + std::to_string(k) : "") +
           Named<T>::kText;
  c.number = Named<T>::kNumber, c.m = m, c.n = n, c.k = k;
  return c;
}

template <class T, int M = 16, int K = 32 / int(sizeof(T))>
MatrixCase mma_case() {
  using Layout = MmaLayout<T, M, K>;
  MatrixCase c = case_of<T>("mma", M, 8, K);
  c.swaps[Swap::a] = Layout::kA / Layout::kPacked, c.swaps[Swap::b] = Layout::kB / Layout::kPacked;
  c.swaps[Swap::d] = Layout::kC;
  c.run = [](const void* a, const void* b, void* c, Swap swap) {
    run<mma_kernel<T, M, K>>(1, 32, 0, static_cast<const T*>(a), static_cast<const T*>(b),
                             static_cast<Accumulator<T>*>(c), swap);
  };
  return c;
}

template <int matrices, bool transposed, bool load>
MatrixCase move_case() {
  MatrixCase c = case_of<uint16_t>(
      std::string(load ? "ldmatrix" : "stmatrix") + (transposed ? " transposed" : ""), 8 * matrices, 8, 0);
  c.swaps[Swap::a] = matrices;
  c.run = [](const void* a, const void*, void* c, Swap swap) {
    run<matrix_move_kernel<matrices, transposed, load>>(
        1, 32, matrices * 128, static_cast<const uint16_t*>(a), static_cast<uint16_t*>(c), swap);
  };
  return c;
}

template <class T, Order order_a, Order order_b>
MatrixCase wmma_case() {
  using Shape = WmmaShape<T>;
  using Element = typename Shape::Element;
  MatrixCase c = case_of<T>("wmma", Shape::kM, Shape::kN, Shape::kK);
  c.a_by_columns = order_a == Order::column_major, c.b_by_columns = order_b == Order::column_major;
  c.name += std::string(c.a_by_columns ? " a by columns" : "") + (c.b_by_columns ? " b by columns" : "");
  c.accumulates = false, c.rounds = true;
  c.run = [](const void* a, const void* b, void* c, Swap) {
    run<wmma_kernel<T, order_a, order_b, Order::row_major>>(1, 32, 0, static_cast<const Element*>(a),
                                                            static_cast<const Element*>(b),
                                                            static_cast<Accumulator<T>*>(c));
  };
  return c;
}

std::string text(Swizzle s) { return s == Swizzle::none ? "plain" : "swizzle " + std::to_string(int(s)); }

template <Swizzle swizzle, bool load>
MatrixCase box_case() {
  constexpr int kColumns = kBoxWidth<swizzle> / 2, kRows = 61;
  MatrixCase c =
      case_of<uint16_t>(std::string(load ? "load_box " : "store_box ") + text(swizzle), kRows, kColumns, 0);
  c.run = [](const void* a, const void*, void* c, Swap) {
    const int64_t row = 2 * kColumns;
    run<box_kernel<swizzle, load>>(
        1, 128, 64 * kColumns * 2,
        make_tensor_map({load ? a : c, 2, kColumns, kRows, 1, row, row * kRows, kColumns, 64, swizzle}),
        static_cast<const uint16_t*>(a), static_cast<uint16_t*>(c), int(kRows));
  };
  return c;
}

template <class Kind>
std::string text() {
  if (Kind::kRegisters) return "registers";
  return text(Kind::kSwizzle) + (Kind::kMajor == Major::mn ? " mn" : " k");
}

template <class T, int N, class A, class B, bool accumulate = true>
MatrixCase wgmma_case() {
  constexpr int kK = 128 / int(sizeof(T));
  MatrixCase c = case_of<T>("wgmma", 64, N, kK);
  c.name += ", a " + text<A>() + ", b " + text<B>();
  c.a_by_columns = A::kMajor == Major::mn, c.b_by_columns = B::kMajor == Major::k;
  c.accumulates = accumulate;
  c.swaps[Swap::a] = A::kRegisters ? 4 : 0, c.swaps[Swap::d] = N <= 64 ? N / 2 : 0;
  c.run = [](const void* a, const void* b, void* c, Swap swap) {
    const TensorMap map_b = OperandBoxes<T, B, N>::map(b);
    TensorMap map_a = map_b;  // unused if a goes to registers
    if constexpr (!A::kRegisters) map_a = OperandBoxes<T, A, 64>::map(a);
    run<wgmma_kernel<T, N, A, B, accumulate>>(1, 128, 64 * 128 + N * 128, map_a, map_b,
                                              static_cast<const T*>(a), static_cast<Accumulator<T>*>(c),
                                              swap);
  };
  return c;
}

constexpr Order kRows = Order::row_major, kColumns = Order::column_major;
constexpr Swizzle kPlain = Swizzle::none, k32 = Swizzle::bytes32, k64 = Swizzle::bytes64,
                  k128 = Swizzle::bytes128;
template <Swizzle s>
using K = Boxes<Major::k, s>;
template <Swizzle s>
using MN = Boxes<Major::mn, s>;

template <Mistake mistake, Swizzle swizzle = Swizzle::bytes128>
void run_pipeline(const void* a, const void* b, float* c, int m, int n, int k) {
  const auto map = [&](const void* data, int rows) {
    const int64_t row = 2 * int64_t{k};
    return make_tensor_map({data, 2, k, rows, 1, row, row * rows, 64, 64, swizzle});
  };
  run<pipeline_kernel<mistake>>(dim3(unsigned(n) / 64, unsigned(m) / 64), 128, 4 * 64 * 128, map(a, m),
                                map(b, n), c, n, k);
}

}  // namespace

std::vector<MatrixCase> matrix_cases() {
  return {
      move_case<1, false, true>(),
      move_case<2, false, true>(),
      move_case<4, false, true>(),
      move_case<1, true, true>(),
      move_case<2, true, true>(),
      move_case<4, true, true>(),
      move_case<1, false, false>(),
      move_case<2, false, false>(),
      move_case<4, false, false>(),
      move_case<1, true, false>(),
      move_case<2, true, false>(),
      move_case<4, true, false>(),
      mma_case<Half>(),
      mma_case<BFloat16>(),
      mma_case<Tf32>(),
      mma_case<int8_t>(),
      mma_case<uint8_t>(),
      mma_case<double, 8, 4>(),
      mma_case<double, 16, 4>(),
      mma_case<double, 16, 8>(),
      mma_case<double, 16, 16>(),
      wmma_case<Half, kRows, kRows>(),
      wmma_case<BFloat16, kRows, kColumns>(),
      wmma_case<BFloat16, kColumns, kRows>(),
      wmma_case<Tf32, kRows, kRows>(),
      wmma_case<Tf32, kColumns, kColumns>(),
      wmma_case<int8_t, kRows, kColumns>(),
      wmma_case<int8_t, kColumns, kRows>(),
      wmma_case<double, kRows, kRows>(),
      wmma_case<double, kColumns, kColumns>(),
      box_case<kPlain, true>(),
      box_case<k32, true>(),
      box_case<k64, true>(),
      box_case<k128, true>(),
      box_case<kPlain, false>(),
      box_case<k32, false>(),
      box_case<k64, false>(),
      box_case<k128, false>(),
      wgmma_case<BFloat16, 64, K<kPlain>, K<k32>>(),
      wgmma_case<BFloat16, 64, K<k32>, K<kPlain>>(),
      wgmma_case<BFloat16, 64, K<k64>, K<k64>, false>(),
      wgmma_case<BFloat16, 128, K<k128>, K<k128>>(),
      wgmma_case<BFloat16, 128, MN<kPlain>, MN<k32>>(),
      wgmma_case<BFloat16, 128, MN<k32>, MN<kPlain>>(),
      wgmma_case<BFloat16, 128, MN<k64>, MN<k64>>(),
      wgmma_case<BFloat16, 256, MN<k128>, MN<k128>, false>(),
      wgmma_case<BFloat16, 192, K<k128>, MN<k128>>(),
      wgmma_case<BFloat16, 256, MN<k128>, K<k128>>(),
      wgmma_case<BFloat16, 16, K<k128>, K<k128>>(),
      wgmma_case<BFloat16, 64, Registers, K<k128>>(),
      wgmma_case<BFloat16, 256, Registers, MN<k128>>(),
      wgmma_case<Half, 32, K<k128>, K<k64>>(),
      wgmma_case<Half, 96, MN<k64>, MN<k32>>(),
      wgmma_case<Half, 160, K<k128>, K<k128>>(),
      wgmma_case<Half, 224, Registers, K<k128>>(),
      wgmma_case<Tf32, 64, K<k128>, K<k128>>(),
      wgmma_case<Tf32, 128, K<kPlain>, K<k64>>(),
      wgmma_case<Tf32, 192, K<k32>, K<k128>, false>(),
      wgmma_case<Tf32, 256, Registers, K<k128>>(),
      wgmma_case<int8_t, 64, K<k128>, K<k128>>(),
      wgmma_case<int8_t, 128, K<k64>, K<k32>>(),
      wgmma_case<int8_t, 192, K<kPlain>, K<k128>, false>(),
      wgmma_case<int8_t, 256, K<k128>, K<k128>>(),
      wgmma_case<int8_t, 128, Registers, K<k128>>(),
      wgmma_case<uint8_t, 192, K<k128>, K<k128>>(),
      wgmma_case<uint8_t, 64, Registers, K<kPlain>>(),
  };
}

#if defined(__CUDACC__)

void pipelined_product(const void* a, const void* b, float* c, int m, int n, int k) {
  run_pipeline<Mistake::none>(a, b, c, m, n, k);
}

#else

void pipelined_product(const void* a, const void* b, float* c, int m, int n, int k, Mistake mistake) {
  switch (mistake) {
    case Mistake::none:
      return run_pipeline<Mistake::none>(a, b, c, m, n, k);
    case Mistake::no_barrier_wait:
      return run_pipeline<Mistake::no_barrier_wait>(a, b, c, m, n, k);
    case Mistake::no_wgmma_wait:
      return run_pipeline<Mistake::no_wgmma_wait>(a, b, c, m, n, k);
    case Mistake::early_refill:
      return run_pipeline<Mistake::early_refill>(a, b, c, m, n, k);
    case Mistake::no_wgmma_fence:
      return run_pipeline<Mistake::no_wgmma_fence>(a, b, c, m, n, k);
    case Mistake::wrong_swizzle:
      return run_pipeline<Mistake::none, Swizzle::none>(a, b, c, m, n, k);
  }
}

#endif

}  // namespace fastgemm::FASTGEMM_TARGET
