// Matrices of 8-bit floating-point numbers on a CPU: read as wider numbers, and made (core/fp8.h). The loops
// that make them are plain; encode() has no branches, so the compiler makes vectors of them.
#include "core/fp8.h"

#include "cpu/gemm/activation.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/parallel.h"
#include "cpu/gemm/weight_vectors.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

constexpr int64_t kTask = 1 << 16;  // numbers: tens of microseconds

// Decodes one code for each float of a vector. An e5m2 code is the upper byte of a float16.
template <Fp8 code>
FASTGEMM_INLINE Vector<float> decode_vector(const uint8_t* codes) {
  if constexpr (code == Fp8::e4m3) return weights::e4m3_to_float(load_extended<uint32_t>(codes));
  Half halves[kLanes<float>];
  for (int i = 0; i < kLanes<float>; ++i) halves[i] = {uint16_t(codes[i] << 8)};
  return load_widened(halves);
}

template <Fp8 code, class T>
FASTGEMM_INLINE void widen_run(const uint8_t* codes, int64_t n, float scale, T* out) {
  constexpr int N = kLanes<float>;
  int64_t j = 0;
#if defined(__AVX512BW__)
  if constexpr (code == Fp8::e4m3 && std::is_same_v<T, BFloat16>)
    for (; scale == 1.0f && j + 32 <= n; j += 32) store(out + j, weights::e4m3_to_bf16(codes + j));
#endif
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
        widen_run<code>(codes + j, min(run, g.cols - j), fp8::scale_of_code(g.scales, i, j), out + j);
    }
  });
}

// The bits of the largest modulus. If there is a NaN, its bits win, because they are larger than those of
// infinity.
template <class T>
FASTGEMM_INLINE uint32_t largest_of(const T* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = fp8::bits_of_float(widen(x[i])) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// out = activation(x) + residual of n numbers; with a second half `up`, silu(x) * up + residual.
template <class T>
FASTGEMM_INLINE void activate_run(Activation activation, const T* x, const T* up, const T* residual,
                                  int64_t n, float* out) {
  const auto activated = [&](auto vector, int64_t j) {
    Vector<float> v = activate_vector(up ? Activation::silu : activation, vector.load(x + j));
    if (up) v = v * vector.load(up + j);
    if (residual) v = v + vector.load(residual + j);
    vector.store(out + j, v);
  };
  constexpr int N = kLanes<float>;
  int64_t j = 0;
  for (; j + N <= n; j += N) activated(WholeVector{}, j);
  if (j < n) activated(PartOfVector{int(n - j)}, j);
}

template <Fp8 code, class T, bool as_it_is>
struct Quantizer {
  const QuantizeFp8& g;
  int64_t scale_cols = g.scale_cols();

  int64_t width(int64_t block) const { return min(g.block_cols, g.cols - block * g.block_cols); }
  // Calls body(numbers, column, count) for the parts of a block's row: x where it lies, or its activation.
  template <class Body>
  FASTGEMM_INLINE void each_part(int64_t i, int64_t block, Body&& body) const {
    const int64_t begin = block * g.block_cols, n = width(block);
    const T* const x = static_cast<const T*>(g.x) + i * g.row_stride;
    if constexpr (as_it_is) {
      body(x + begin, begin, n);
    } else {
      constexpr int64_t kPart = 256;
      float part[kPart];
      for (int64_t j = begin; j < begin + n; j += kPart) {
        const int64_t count = min(kPart, begin + n - j);
        const T* const residual = static_cast<const T*>(g.residual);
        activate_run(g.activation, x + j, g.gated ? x + g.cols + j : nullptr,
                     residual ? residual + i * g.residual_row_stride + j : nullptr, count, part);
        body(static_cast<const float*>(part), j, count);
      }
    }
  }

  // Updates `largest`, which has the largest modulus of each block of columns, by rows [begin, end).
  void find(int64_t begin, int64_t end, uint32_t* largest) const {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t b = 0; b < scale_cols; ++b)
        each_part(i, b,
                  [&](const auto* x, int64_t, int64_t n) { largest[b] = max(largest[b], largest_of(x, n)); });
  }
  void store_scales(int64_t block_row, const uint32_t* largest) const {
    for (int64_t b = 0; b < scale_cols; ++b)
      fp8::store_scale(g.scale, g.scales, block_row * scale_cols + b,
                       fp8::scale_of<code>(largest[b], g.scale));
  }
  void round(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t b = 0; b < scale_cols; ++b) {
        const float scale = packed::scale_at(g.scale, g.scales, i / g.block_rows * scale_cols + b);
        each_part(i, b, [&](const auto* x, int64_t column, int64_t n) {
          uint8_t* const codes = static_cast<uint8_t*>(g.codes) + i * g.cols + column;
          for (int64_t j = 0; j < n; ++j) codes[j] = uint8_t(fp8::quantized<code>(widen(x[j]), scale));
        });
      }
    }
  }
};

template <Fp8 code, class T, bool as_it_is>
void quantize_matrix(const QuantizeFp8& g, Context& ctx, uint32_t* largest) {
  const Quantizer<code, T, as_it_is> q{g};
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
  // A block has many rows, for example if one scale serves the whole tensor.
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

template <class Body>
void with_number(DType type, Body&& body) {
  if (type == DType::f16) return body.template operator()<Half>();
  if (type == DType::bf16) return body.template operator()<BFloat16>();
  body.template operator()<float>();
}

}  // namespace

void widen_fp8(const WidenFp8& g, Context& ctx) {
  with_code(g.code,
            [&]<Fp8 code>() { with_number(g.type, [&]<class T>() { widen_matrix<code, T>(g, ctx); }); });
}
void quantize_fp8(const QuantizeFp8& g, Context& ctx, uint32_t* largest) {
  with_code(g.code, [&]<Fp8 code>() {
    with_number(g.type, [&]<class T>() {
      g.as_it_is() ? quantize_matrix<code, T, true>(g, ctx, largest)
                   : quantize_matrix<code, T, false>(g, ctx, largest);
    });
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
