// Numbers in registers on their way to codes of 8 bits: runs of eight, read from a block of x, activated, and
// divided by its scale. Contract: load_runs() reads runs, of which Run::largest() is the largest modulus and
// Run::store() stores the codes (fp8/quantize.cu, fp8/quantize_tiles.cu).
//
// A quotient is computed without a division: from the reciprocal of the scale, by two corrections whose
// remainders are exact, it is rounded as a division would round it (Markstein, IBM Journal of Research and
// Development 34-1, 1990).
#pragma once

#include "core/fp8.h"
#include "core/min_max.h"
#include "cuda/device/activation.cuh"
#include "cuda/device/dispatch.cuh"
#include "cuda/device/fp8.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kEach = 8;  // numbers of a run
inline constexpr int kThreads = 256;

// Whether a matrix is rounded by tiles of 128 x 128, and the launcher that does it (fp8/quantize_tiles.cu).
bool is_for_tiles(const QuantizeFp8&);
void quantize_tiles(const QuantizeFp8&, Context&);

// The larger ones of two numbers of 16 bits each.
__device__ __forceinline__ uint32_t larger_halves(uint32_t x, uint32_t y) {
#if defined(__CUDACC__)
  return __vmaxu2(x, y);
#else
  return max(x & 0xffffu, y & 0xffffu) | max(x >> 16, y >> 16) << 16;
#endif
}

// The largest of a team's numbers, in every thread of it. All threads of the block call it.
template <int TEAM>
__device__ __forceinline__ uint32_t largest_of_team(uint32_t x) {
  FASTGEMM_UNROLL
  for (int step = (TEAM < 32 ? TEAM : 32) / 2; step > 0; step /= 2)
    x = max(x, __shfl_xor_sync(0xffffffffu, x, step));
  if constexpr (TEAM > 32) {
    FASTGEMM_SHARED uint32_t warps[kThreads / 32];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    FASTGEMM_UNROLL
    for (int i = 0; i < kThreads / 32; ++i) x = max(x, warps[i]);
  }
  return x;
}

// What numbers are divided by. Where remainders could underflow, or the scale is 0 or NaN, `exact` is false.
struct Divisor {
  float scale, reciprocal;
  bool exact;

  explicit __device__ __forceinline__ Divisor(float s) : Divisor(s, 1.0f / s) {}
  __device__ __forceinline__ Divisor(float s, float one_by_s)
      : scale(s), reciprocal(one_by_s), exact(s >= 0x1p-80f && s <= 0x1p80f) {}
  // The correctly rounded quotient, if `exact` is set and it is finite.
  __device__ __forceinline__ float quotient(float x) const {
    float q = x * reciprocal;
    q = fmaf(-fmaf(q, scale, -x), reciprocal, q);  // with these signs, -0 remains -0
    return fmaf(-fmaf(q, scale, -x), reciprocal, q);
  }
};

// Numbers up to this have finite quotients by each exact divisor.
inline constexpr uint32_t kModerate = 0x53800000;  // the bits of 2^40

// A rectangle of x, read in runs of 8 numbers.
struct Rectangle {
  int64_t row, column;
  int64_t rows, cols;

  __device__ __forceinline__ int64_t runs_of_a_row() const { return (cols + kEach - 1) / kEach; }
  __device__ __forceinline__ int64_t runs() const { return rows * runs_of_a_row(); }
};

// Block `index`, below 2^32, because a division of 64 bits would be a call. `across`: the blocks of a row of
// them.
__device__ __forceinline__ Rectangle block_of(const QuantizeFp8& g, uint32_t index, uint32_t across) {
  const uint32_t down = across == 1 ? index : index / across;
  Rectangle r{down * g.block_rows, (index - down * across) * g.block_cols, 0, 0};
  r.rows = min(g.block_rows, g.rows - r.row), r.cols = min(g.block_cols, g.cols - r.column);
  return r;
}

// How a kernel reads its blocks. `lines`: each is a part of a row, of whole runs at multiples of 16 bytes.
enum class Form { lines, any };

// Whether x has whole runs only, at multiples of 16 bytes.
template <class T>
bool is_in_vectors(const QuantizeFp8& g) {
  return g.cols % kEach == 0 && g.row_stride % kPer16Bytes<T> == 0 &&
         is_aligned(static_cast<const T*>(g.x), 16) &&
         (g.residual == nullptr ||
          (g.residual_row_stride % kPer16Bytes<T> == 0 && is_aligned(static_cast<const T*>(g.residual), 16)));
}

// Where a run lies, and how many numbers it has.
struct Place {
  int64_t row, column;
  int count;
};
template <Form form, class Index>
__device__ __forceinline__ Place place_of(const Rectangle& r, Index run) {
  if constexpr (form == Form::lines) return {r.row, r.column + int64_t(run) * kEach, kEach};
  const Index across = Index(r.runs_of_a_row()), down = r.rows == 1 ? 0 : run / across;
  const int64_t first = int64_t(run - down * across) * kEach;
  return {r.row + down, r.column + first, int(min(int64_t(kEach), r.cols - first))};
}

// What is rounded: x as it is, its activation, or silu of one half of a row times the other half.
enum class Source { x, activated, gated };

// Eight numbers in registers, as they lie in memory: two of 16 bits share a register.
template <class T>
struct Eight {
  static constexpr int kUnits = kEach * int(sizeof(T)) / 16;
  Unit units[kUnits];

  // `aligned`: there are eight, at a multiple of 16 bytes. Those beyond `count` are 0.
  __device__ __forceinline__ void load(const T* from, bool aligned, int count) {
    if (aligned) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kUnits; ++i) units[i] = load_vector<Unit>(from + i * kPer16Bytes<T>);
      return;
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < kUnits * 4; ++i) {
      if constexpr (sizeof(T) == 4)
        word(i) = i < count ? fp8::bits_of_float(from[i]) : 0;
      else
        word(i) = (2 * i < count ? from[2 * i].bits : 0) |
                  uint32_t(2 * i + 1 < count ? from[2 * i + 1].bits : 0) << 16;
    }
  }
  __device__ __forceinline__ uint32_t& word(int i) { return units[i / 4][i % 4]; }
  __device__ __forceinline__ float operator[](int i) {
    if constexpr (sizeof(T) == 4)
      return packed::reinterpret_bits<float>(word(i));
    else
      return widen(T{uint16_t(word(i / 2) >> (i % 2 * 16))});
  }
};

// Two codes, the first in the low byte. `quickly`: the divisor is exact, and all quotients are finite.
template <Fp8 code, bool quickly>
__device__ __forceinline__ uint32_t codes_of(float x, float y, const Divisor& by) {
  if constexpr (quickly) return encode_finite_pair<code>(by.quotient(x), by.quotient(y));
  return fp8::quantized<code>(x, by.scale) | fp8::quantized<code>(y, by.scale) << 8;
}

using RunOfCodes = Vector<uint32_t, kEach / 4>;
__device__ __forceinline__ void store_codes(uint8_t* to, const RunOfCodes& codes, int count) {
  if (count == kEach && is_aligned(to, kEach)) return store_vector_whole(to, codes);
  FASTGEMM_UNROLL
  for (int i = 0; i < kEach; ++i)
    if (i < count) to[i] = uint8_t(codes[i / 4] >> (i % 4 * 8));
}

// A run of numbers: those of x as they lie in memory, their activations as float32.
template <class T, Source source>
class Run {
 public:
  template <Form form>
  __device__ __forceinline__ void load(const QuantizeFp8& g, const Place& p) {
    const T* const from = static_cast<const T*>(g.x) + p.row * g.row_stride + p.column;
    load_eight<form>(x_, from, p);
    if constexpr (source == Source::gated) load_eight<form>(up_, from + g.cols, p);
  }
  template <Activation activation>
  __device__ __forceinline__ void activate() {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) {
      activated_[i] = short_activation<activation>(x_[i]);
      if constexpr (source == Source::gated) activated_[i] *= up_[i];
    }
  }
  template <Form form>
  __device__ __forceinline__ void add_residual(const QuantizeFp8& g, const Place& p) {
    Eight<T> residual;
    load_eight<form>(residual, static_cast<const T*>(g.residual) + p.row * g.residual_row_stride + p.column,
                     p);
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) activated_[i] += residual[i];
  }
  __device__ __forceinline__ void clear() {
    FASTGEMM_UNROLL
    for (int i = 0; i < Eight<T>::kUnits * 4; ++i) x_.word(i) = up_.word(i) = 0;
  }
  // The bits of the largest modulus, as float32. Moduli are ordered as their bits are.
  __device__ __forceinline__ uint32_t largest() {
    uint32_t bits = 0;
    if constexpr (source != Source::x || sizeof(T) == 4) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kEach; ++i) bits = max(bits, fp8::bits_of_float(at(i)) & 0x7fffffffu);
      return bits;
    } else {
      FASTGEMM_UNROLL
      for (int i = 0; i < kEach / 2; ++i) bits = larger_halves(bits, x_.word(i) & 0x7fff7fffu);
      return fp8::bits_of_float(widen(T{uint16_t(max(bits & 0xffffu, bits >> 16))}));
    }
  }
  // The largest moduli of several runs, number by number, in words as those of x.
  static constexpr int kWords = Eight<T>::kUnits * 4, kOfAWord = kEach / kWords;
  __device__ __forceinline__ void add_moduli(uint32_t (&largest)[kWords]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kWords; ++i)
      largest[i] = larger(largest[i], x_.word(i) & (kOfAWord == 1 ? 0x7fffffffu : 0x7fff7fffu));
  }
  static __device__ __forceinline__ uint32_t larger(uint32_t x, uint32_t y) {
    return kOfAWord == 1 ? max(x, y) : larger_halves(x, y);
  }
  // One of them, as the bits of a float32.
  static __device__ __forceinline__ uint32_t modulus_of(uint32_t word, int i) {
    if constexpr (kOfAWord == 1)
      return word;
    else
      return fp8::bits_of_float(widen(T{uint16_t(word >> (16 * i))}));
  }
  // `quickly`: the divisor is exact, and all quotients are finite.
  template <Fp8 code, bool quickly, Form form>
  __device__ __forceinline__ void store(const QuantizeFp8& g, const Place& p, const Divisor& by) {
    RunOfCodes codes{};
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; i += 2) {
      const float x = at(i), y = at(i + 1);
      const uint32_t pair = codes_of<code, quickly>(x, y, by);
      codes[i / 4] |= pair << (i % 4 * 8);
    }
    uint8_t* const to = static_cast<uint8_t*>(g.codes) + p.row * g.cols + p.column;
    form == Form::lines ? store_vector_whole(to, codes) : store_codes(to, codes, p.count);
  }
  __device__ __forceinline__ float at(int i) {
    if constexpr (source == Source::x)
      return x_[i];
    else
      return activated_[i];
  }

 private:
  template <Form form>
  __device__ __forceinline__ void load_eight(Eight<T>& to, const T* from, const Place& p) {
    to.load(from, form == Form::lines || (p.count == kEach && is_aligned(from, 16)), p.count);
  }
  Eight<T> x_, up_;
  float activated_[kEach];
};

// Loads the runs at place(0), place(1), ..., those that are inside of x. Others are 0, which activations
// keep.
template <int RUNS, Form form, class T, Source source, class Inside, class PlaceOf>
__device__ __forceinline__ void load_runs(Run<T, source>* run, const QuantizeFp8& g, Inside&& inside,
                                          PlaceOf&& place) {
  FASTGEMM_UNROLL
  for (int i = 0; i < RUNS; ++i) {
    inside(i) ? run[i].template load<form>(g, place(i)) : run[i].clear();
  }
  if constexpr (source == Source::gated) {
    FASTGEMM_UNROLL
    for (int i = 0; i < RUNS; ++i) run[i].template activate<Activation::silu>();
  } else if constexpr (source == Source::activated) {
    with_activation(g.activation, [&]<Activation activation>() {
      FASTGEMM_UNROLL
      for (int i = 0; i < RUNS; ++i) run[i].template activate<activation>();
    });
  }
  if constexpr (source != Source::x) {
    if (g.residual == nullptr) return;
    FASTGEMM_UNROLL
    for (int i = 0; i < RUNS; ++i)
      if (inside(i)) run[i].template add_residual<form>(g, place(i));
  }
}

// Calls body.operator()<code, T>() with the type T of the numbers. Kernels for e5m2 are like those for e4m3.
template <class Body>
void with_code_and_element(const QuantizeFp8& g, Body&& body) {
  with_code(g.code, [&]<Fp8 code>() {
    if constexpr (kIsBuilt<Half> || code == Fp8::e4m3)
      with_element<Half, BFloat16, float>(g.type, [&]<class T>() { body.template operator()<code, T>(); });
    else
      not_built();
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
