// Matrices of 8-bit floating-point numbers on a CPU: read as wider numbers, and made (core/fp8.h). The loops
// that make them are plain; encode() has no branches, so the compiler makes vectors of them.
#include "core/fp8.h"

#include "cpu/gemm/levels.h"
#include "cpu/gemm/parallel.h"
#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

constexpr int64_t kTask = 1 << 16;  // numbers: tens of microseconds

// fp8::decode() for as many codes as a vector has floats.
template <Fp8 code>
FASTGEMM_INLINE Vector<float> decode_vector(const uint8_t* codes) {
  using F = fp8::Format<code>;
  using Bits = Vector<uint32_t>;
  const Bits bytes = load_extended<uint32_t>(codes), magnitude = bytes & 0x7fu, sign = (bytes & 0x80u) << 24;
  Bits bits = (magnitude << (23 - F::kMantissa)) + (uint32_t(F::kRebias) << 23);
  const Vector<float> small =
      __builtin_convertvector((Vector<int32_t>)magnitude, Vector<float>) * F::kSmallest;
  bits = magnitude < (1u << F::kMantissa) ? (Bits)small : bits;
  if constexpr (F::kE4M3)
    bits = magnitude == 0x7fu ? Bits{} + 0x7fc00000u : bits;
  else
    bits = magnitude >= 0x7cu ? bits + (uint32_t(F::kRebias) << 23) : bits;
  return (Vector<float>)(bits | sign);
}

template <Fp8 code, class T>
FASTGEMM_INLINE void widen_run(const uint8_t* codes, int64_t n, float scale, T* out) {
  constexpr int N = kLanes<float>;
  int64_t j = 0;
  for (; j + N <= n; j += N) store_narrowed<T, float>(out + j, decode_vector<code>(codes + j) * scale);
  for (; j < n; ++j) out[j] = round_to<T>(fp8::decode<code>(codes[j]) * scale);
}

template <Fp8 code, class T>
void widen_matrix(const WidenFp8& g, Context& ctx) {
  const bool scaled = g.scales.type != ScaleType::none;
  const int64_t run = scaled ? g.scales.block_cols : g.cols;
  const int64_t rows = max<int64_t>(kTask / g.cols, 1);
  parallel(ctx, ceil_div(g.rows, rows), [&](int64_t task) {
    for (int64_t i = task * rows; i < min(g.rows, (task + 1) * rows); ++i) {
      const uint8_t* codes = static_cast<const uint8_t*>(g.codes) + i * g.row_stride;
      T* out = static_cast<T*>(g.out) + i * g.out_row_stride;
      for (int64_t j = 0; j < g.cols; j += run)
        widen_run<code>(codes + j, min(run, g.cols - j), g.scales.at(i, j), out + j);
    }
  });
}

// The bits of the largest modulus, of NaN if there is one: its bits are larger than those of infinity.
template <class T>
FASTGEMM_INLINE uint32_t largest_of(const T* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = fp8::bits_of_float(widen(x[i])) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

template <Fp8 code, class T>
struct Quantizer {
  const QuantizeFp8& g;
  int64_t scale_cols = g.scale_cols();

  const T* row_of_x(int64_t i) const { return static_cast<const T*>(g.x) + i * g.row_stride; }
  int64_t width(int64_t block) const { return min(g.block_cols, g.cols - block * g.block_cols); }

  // Adds the moduli of rows [begin, end) to `largest`, which has a number for each block of columns.
  void find(int64_t begin, int64_t end, uint32_t* largest) const {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t b = 0; b < scale_cols; ++b)
        largest[b] = max(largest[b], largest_of(row_of_x(i) + b * g.block_cols, width(b)));
  }
  void store_scales(int64_t block_row, const uint32_t* largest) const {
    for (int64_t b = 0; b < scale_cols; ++b)
      fp8::store_scale(g, block_row * scale_cols + b, fp8::scale_of<code>(largest[b], g.scale));
  }
  void round(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t b = 0; b < scale_cols; ++b) {
        const float scale = packed::scale_at(g.scale, g.scales, i / g.block_rows * scale_cols + b);
        const T* x = row_of_x(i) + b * g.block_cols;
        uint8_t* codes = static_cast<uint8_t*>(g.codes) + i * g.cols + b * g.block_cols;
        const int64_t n = width(b);
        for (int64_t j = 0; j < n; ++j) codes[j] = uint8_t(fp8::quantized<code>(widen(x[j]), scale));
      }
    }
  }
};

template <Fp8 code, class T>
void quantize_matrix(const QuantizeFp8& g, Context& ctx, uint32_t* largest) {
  const Quantizer<code, T> q{g};
  // Tasks are strips of rows: whole blocks, or parts of one.
  const int64_t strip = max<int64_t>(kTask / g.cols, 1);
  if (g.block_rows <= max<int64_t>(strip, 128)) {
    const int64_t blocks = max<int64_t>(strip / g.block_rows, 1), rows = blocks * g.block_rows;
    parallel(ctx, ceil_div(g.rows, rows), [&](int64_t task) {
      for (int64_t i = task * rows; i < min(g.rows, (task + 1) * rows); i += g.block_rows) {
        const int64_t end = min(g.rows, i + g.block_rows);
        uint32_t* const found = largest + i / g.block_rows * q.scale_cols;
        if (!g.scale_is_given) q.find(i, end, found), q.store_scales(i / g.block_rows, found);
        q.round(i, end);
      }
    });
    return;
  }
  // A block has many rows, as that of a whole tensor.
  for (int64_t first = 0; first < g.rows; first += g.block_rows) {
    const int64_t last = min(g.rows, first + g.block_rows), strips = ceil_div(last - first, strip);
    const auto each = [&](auto&& body) {
      parallel(ctx, strips, [&](int64_t s) {
        const int64_t begin = first + s * strip;
        body(largest + s * q.scale_cols, begin, min(last, begin + strip));
      });
    };
    if (!g.scale_is_given) {
      for (int64_t i = 0; i < strips * q.scale_cols; ++i) largest[i] = 0;
      each([&](uint32_t* found, int64_t begin, int64_t end) { q.find(begin, end, found); });
      for (int64_t i = q.scale_cols; i < strips * q.scale_cols; ++i)
        largest[i % q.scale_cols] = max(largest[i % q.scale_cols], largest[i]);
      q.store_scales(first / g.block_rows, largest);
    }
    each([&](uint32_t*, int64_t begin, int64_t end) { q.round(begin, end); });
  }
}

template <Fp8 code>
void quantize_code(const QuantizeFp8& g, Context& ctx, uint32_t* largest) {
  switch (g.type) {
    case DType::f16:
      return quantize_matrix<code, Half>(g, ctx, largest);
    case DType::bf16:
      return quantize_matrix<code, BFloat16>(g, ctx, largest);
    default:
      return quantize_matrix<code, float>(g, ctx, largest);
  }
}
template <Fp8 code>
void widen_code(const WidenFp8& g, Context& ctx) {
  switch (g.type) {
    case DType::f16:
      return widen_matrix<code, Half>(g, ctx);
    case DType::bf16:
      return widen_matrix<code, BFloat16>(g, ctx);
    default:
      return widen_matrix<code, float>(g, ctx);
  }
}

}  // namespace

void widen_fp8(const WidenFp8& g, Context& ctx) {
  g.code == Fp8::e4m3 ? widen_code<Fp8::e4m3>(g, ctx) : widen_code<Fp8::e5m2>(g, ctx);
}
void quantize_fp8(const QuantizeFp8& g, Context& ctx, uint32_t* largest) {
  g.code == Fp8::e4m3 ? quantize_code<Fp8::e4m3>(g, ctx, largest) : quantize_code<Fp8::e5m2>(g, ctx, largest);
}

}  // namespace fastgemm::FASTGEMM_ISA
