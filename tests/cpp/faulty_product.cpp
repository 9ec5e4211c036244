// Textbook matrix products with the mistakes of docs/pitfalls.md that give wrong results.
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "faulty_kernels.h"

namespace fastgemm::simt::faults {
namespace {

constexpr int kTile = 8, kThreads = kTile * kTile, kB = 128;  // b begins at in[kB]

enum class Mistake { none, early_return, loop_to_grid };

// out (m, n) = a (m, k) b (k, n), row-major.
template <Mistake mistake, int m, int n, int k>
void product(Arguments x) {
  FASTGEMM_SHARED int a[kTile][kTile];
  FASTGEMM_SHARED int b[kTile][kTile];
  const int tx = int(threadIdx.x) % kTile, ty = int(threadIdx.x) / kTile;
  const int row = int(blockIdx.y) * kTile + ty, col = int(blockIdx.x) * kTile + tx;
  if (mistake == Mistake::early_return && (row >= m || col >= n)) return;

  const int tiles = mistake == Mistake::loop_to_grid ? int(gridDim.x) : (k + kTile - 1) / kTile;
  int sum = 0;
  for (int k0 = 0; k0 < tiles * kTile; k0 += kTile) {
    a[ty][tx] = row < m && k0 + tx < k ? x.in[row * k + k0 + tx] : 0;
    b[ty][tx] = k0 + ty < k && col < n ? x.in[kB + (k0 + ty) * n + col] : 0;
    __syncthreads();                                                  // fault: early_return
    for (int kk = 0; kk < kTile; ++kk) sum += a[ty][kk] * b[kk][tx];  // fault: early_return
    __syncthreads();                                                  // fault: early_return
  }
  if (row < m && col < n) x.out[row * n + col] = sum;
}

template <int m, int n, int k>
int product_at(int i) {
  int sum = 0;
  for (int kk = 0; kk < k; ++kk) sum += input(i / n * k + kk) * input(kB + kk * n + i % n);
  return sum;
}

template <int m, int n>
constexpr Shape shape{
    .threads = kThreads, .grid = {(n + kTile - 1) / kTile, (m + kTile - 1) / kTile}, .results = m * n};

template <Mistake mistake, int m, int n, int k>
constexpr Case product_case(const char* name, const char* check) {
  return {name,  product<mistake, m, n, k>, product<Mistake::none, m, n, k>,
          check, product_at<m, n, k>,       shape<m, n>};
}

// Four products of signed bytes.
constexpr uint32_t kSmall = 0x07070707, kAll = 0xffffffff;

template <bool with_signs, uint32_t of>
void byte_products(Arguments x) {
  const int i = int(threadIdx.x);
  const uint32_t a = uint32_t(x.in[i]) & of, b = uint32_t(x.in[32 + i]) & of;
  uint32_t sum = 0;
  if (with_signs) {
    sum = dot4(a, b, 0);
  } else {
    for (int byte = 0; byte < 32; byte += 8) sum += (a >> byte & 0xff) * (b >> byte & 0xff);
  }
  x.out[i] = int(sum);
}

template <uint32_t of>
int byte_products_at(int i) {
  int sum = 0;
  for (int byte = 0; byte < 32; byte += 8)
    sum += int8_t((input(i) & of) >> byte) * int8_t((input(32 + i) & of) >> byte);
  return sum;
}

// One tensor-core tile, out (8, 8) = a (8, 4) b (4, 8): lane l holds out[l / 4][2 (l % 4) + 0, 1].
template <bool faulty, bool ones>
void fragment_layout(Arguments x) {
  const int lane = int(threadIdx.x), row = lane / 4, col = lane % 4;
  const double a[] = {ones ? 1.0 : x.in[4 * row + col]}, b[] = {ones ? 1.0 : x.in[kB + 8 * col + row]};
  double d[2] = {};
  mma_f64<8, 4>(d, a, b);
  const int first = faulty ? 8 * (lane % 8) + 2 * (lane / 8) : 8 * row + 2 * col;
  x.out[first] = int(d[0]), x.out[first + 1] = int(d[1]);
}

int four(int) { return 4; }
constexpr Shape kFragment{.results = 64};

constexpr Case kCases[] = {
    product_case<Mistake::early_return, 9, 9, 9>("early_return at odd sizes", "barrier divergence"),
    product_case<Mistake::early_return, 16, 16, 8>("early_return at whole tiles", kNothing),
    product_case<Mistake::loop_to_grid, 8, 8, 16>("loop_to_grid with a longer k", kWrongResult),
    product_case<Mistake::loop_to_grid, 11, 11, 11>("loop_to_grid of squares", kNothing),
    {"unsigned_bytes of any value", byte_products<false, kAll>, byte_products<true, kAll>, kWrongResult,
     byte_products_at<kAll>},
    {"unsigned_bytes, small and positive", byte_products<false, kSmall>, byte_products<true, kSmall>,
     kNothing, byte_products_at<kSmall>},
    {"fragment_layout", fragment_layout<true, false>, fragment_layout<false, false>, kWrongResult,
     product_at<8, 8, 4>, kFragment},
    {"fragment_layout of ones", fragment_layout<true, true>, fragment_layout<false, true>, kNothing, four,
     kFragment},
};

}  // namespace

std::span<const Case> product_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
