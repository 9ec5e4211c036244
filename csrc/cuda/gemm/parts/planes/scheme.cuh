// Schemes: how tensor cores compute a product of a type that they do not multiply, or not accurately enough.
// A scheme cuts each element into planes of a narrower type. It says which planes are multiplied, and in
// which order the products are summed. The rest is the same for every scheme (cut.cuh, multiply.cuh,
// engine.cuh).
//
//             planes, bits of x in all     products of planes
//   Bf16x6    3 x bf16, 24 bits            6 of 9: those left out are below 2^-24 of the whole
//   Bf16x3    2 x bf16, 16 bits            3 of 4: below 2^-16
//   Fp16x3    2 x fp16, 22 bits            3 of 4: below 2^-22
//   Int8x10   4 x unsigned byte, 32 bits   10 of 16: those left out are multiples of 2^32
//   Int16x4   2 x byte, 16 bits            4 of 4
//
//   Bf16x6:  x = p0 + p1 + p2                    Int8x10:  x = p0 + 2^8 p1 + 2^16 p2 + 2^24 p3
//     24 bits  |<- 8 ->|<- 8 ->|<- 8 ->|           32 bits  |  p3   |  p2   |  p1   |  p0   |
//              |  p0   |  p1   |  p2   |
//
//            q0  q1  q2     S: summed first           q0  q1  q2  q3    digits: index of the sum
//        p0  L   S   S      L: summed last        p0   0   1   2   3    S0 to S3 that the product
//        p1  S   S   .      .: left out           p1   1   2   3   .    belongs to
//        p2  S   .   .                            p2   2   3   .   .
//                                                 p3   3   .   .   .
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Plane a of A times plane b of B; and a list of such products, which are summed in order.
struct Product {
  int a, b;
};
template <Product... products>
struct Products {};

// A ring in shared memory, through which some planes are copied together. A slot holds these planes of one
// stage of A and of B.
struct Ring {
  int first_plane, planes;
  int sweeps;               // how often a tile's stages pass through the ring
  int slots, narrow_slots;  // with wide tiles (kWideN columns), and with narrow tiles (128)
};

// What a consumer does with the stages of a tile (multiply.cuh).
enum class Loop { promoting, sweeping, once };

// Which rows of A and columns of B are multiplied by powers of two before they are cut.
enum class Scaling { none, small_elements, all_rows };

// The largest and the smallest magnitude in a row, as bits of float32. The smallest one does not count zeros:
// they become the largest unsigned number when 1 is subtracted.
struct Magnitudes {
  uint32_t largest = 0, smallest_less_1 = ~0u;

  template <bool smallest>
  __device__ __forceinline__ void add(uint32_t bits) {
    const uint32_t magnitude = bits & 0x7fffffffu;
    largest = max(largest, magnitude);
    if constexpr (smallest) smallest_less_1 = min(smallest_less_1, magnitude - 1);
  }
  __device__ __forceinline__ void add(const Magnitudes& other) {
    largest = max(largest, other.largest);
    smallest_less_1 = min(smallest_less_1, other.smallest_less_1);
  }
};

// The elements of a plane in the 16 bytes that a thread cuts at a time.
template <class Scheme>
inline constexpr int kPerUnit = 16 / int(sizeof(typename Scheme::Element));

// Every scheme also has: kSums, the number of sums of an element of C before they are joined; kTiles, which
// decides between wide and narrow tiles; Multiplied<product>, the element type of the instruction for a
// product; and Tiles, which says which tiles are computed: all of them (EveryTile), or those that
// FallbackTiles names (parts/residues/fallback.cuh).
struct EveryTile {
  static constexpr bool kEvery = true;
  __device__ __forceinline__ bool skips(int, int) const { return false; }
  EveryTile panel(int64_t, int64_t) const { return {}; }
};

// float32 as a sum of planes of 16 bits, x = p0 + p1 / step + p2 / step^2. Each plane is the remainder after
// the planes before it, rounded to nearest.
//
// The tensor cores truncate the sum at each step, which biases it towards zero (docs/precision.md). So sums
// in the tensor cores are short: after a chunk of few stages a sum is added to a sum in registers, which is
// rounded to nearest (register promotion). Within a chunk the small products come first and p0 * p0 last, so
// that only the last ones are added to a sum of full size.
template <class Plane, int planes, int step>
struct FloatPlanes {
  using Operand = float;
  using Element = Plane;
  using Tiles = EveryTile;
  static constexpr int kPlanes = planes, kStageK = plans::kPlaneStage, kWideN = plans::kWidePlanes;
  static constexpr Loop kLoop = Loop::promoting;
  static constexpr int kSums = 1;
  template <Product>
  using Multiplied = Plane;
  static constexpr float kSmallUnit = 1.f / step;  // the factor of the sum of the small products

  __device__ __forceinline__ static void cut(const uint32_t (&x)[8], uint32_t (&to)[kPlanes][4]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      float first = __uint_as_float(x[2 * i]), second = __uint_as_float(x[2 * i + 1]);
      FASTGEMM_UNROLL
      for (int p = 0; p < kPlanes; ++p) {
        const uint32_t pair = to[p][i] = round_pair<Plane>(first, second);
        first = (first - widen(Plane{uint16_t(pair)})) * float(step);
        second = (second - widen(Plane{uint16_t(pair >> 16)})) * float(step);
      }
    }
  }

  // bf16 has float32's range, but its smallest number is 2^-133, and the last bit of x is 2^-23 of its first
  // one. So an element below 2^-110 would lose bits. They matter where the larger elements of its row are
  // multiplied by zeros. Hence rows with such elements are multiplied by 2^24, which makes the smallest
  // float32 2^-125. A row with all elements below 2^-86 is scaled further up: otherwise products of its
  // planes would lose bits, because float32 ends at 2^-149. If a row's range is so large that no power of two
  // fits, its scale is NaN. Then all its sums become NaN, and repair_kernel computes them (repair.cuh).
  static constexpr Scaling kScaling = Scaling::small_elements;
  static constexpr uint32_t kTiny = uint32_t(127 - 86) << 23, kSmall = uint32_t(127 - 110) << 23;
  __device__ __forceinline__ static float scale_of(const Magnitudes& row) {
    constexpr float kUp = 16777216.f, kFarUp = 18446744073709551616.f;  // 2^24, 2^64
    constexpr uint32_t kLarge = uint32_t(127 + 103) << 23, kNaN = 0x7fffffffu;
    if (row.largest < kTiny) return row.largest != 0 ? kFarUp : 1.f;
    if (row.smallest_less_1 >= kSmall - 1) return 1.f;
    return row.largest < kLarge ? kUp : __uint_as_float(kNaN);
  }
  // If this holds for all parts of a row, the row's scale is 1.
  __device__ __forceinline__ static bool needs_no_scale(const Magnitudes& part) {
    return part.smallest_less_1 >= kSmall - 1 && (part.largest >= kTiny || part.largest == 0);
  }
};

// float32 at float32 accuracy: the planes hold all bits of x. docs/precision.md compares its errors with
// cuBLAS SGEMM's. The length of the chunks is chosen so that its errors are not larger:
//
//   - Numbers spread over many decades are the hardest data. Few terms dominate such a sum, and float32 sums,
//     which are rounded to nearest, have small errors there. Hence chunks of one stage for short k; and the
//     row rejects k below 80.
//   - Where C has few tiles, cuBLAS splits k, and its errors are smaller the shorter the parts are. So chunks
//     of one stage are used for small products, too. A stage then takes longer, but a multiprocessor has few
//     of them.
//   - Where C is large, cuBLAS does not split k, and its errors are larger. So chunks of 3 stages are used,
//     which are faster than chunks of 2.
//
// Both the order and the promotion are needed. If each stage summed its large products before the next
// stage's small ones, or if the tensor cores summed all of k, the error would be a multiple of cuBLAS's.
struct Bf16x6 : FloatPlanes<BFloat16, 3, 1> {
  static constexpr Ring kRings[] = {{0, 1, 1, 5, 7}, {1, 2, 1, 3, 3}};
  static constexpr plans::PlaneScheme kTiles = plans::kBf16x6;
  static constexpr int kMostChunk = 3;
  // The number of stages by which the second warpgroup's chunks are ahead. So it multiplies while the first
  // one adds.
  static constexpr int kStagger = 1;
  // The stages of a chunk, for a k of `stages` stages and `waves` tiles per multiprocessor.
  static int chunk(int stages, double waves) {
    const bool is_small = stages <= 32 && stages * waves <= 12;  // cuBLAS splits k
    return stages <= 14 || is_small ? 1 : waves < 4 ? 2 : 3;
  }
  using Small = Products<Product{2, 0}, Product{0, 2}, Product{1, 1}, Product{1, 0}, Product{0, 1}>;
};

// The same where a row's bits must not depend on other rows (fast/invariant.cu). Only k decides the chunks,
// which begin at the same stages in both warpgroups. No tile is shared. In a strip to be repaired only the
// elements that are not finite are computed again.
struct Bf16x6Invariant : Bf16x6 {
  static constexpr bool kInvariant = true;
  static constexpr int kStagger = 0;
  static int chunk(int stages, double) { return stages <= 14 ? 1 : stages <= 64 ? 2 : 3; }
};
template <class Scheme>
inline constexpr bool kIsInvariant = requires { Scheme::kInvariant; };

// Half the products of Bf16x6, with 16 bits: the error of a product is 2^-16 |A||B|.
struct Bf16x3 : FloatPlanes<BFloat16, 2, 1> {
  static constexpr Ring kRings[] = {{0, 1, 1, 7, 8}, {1, 1, 1, 4, 5}};
  static constexpr plans::PlaneScheme kTiles = plans::kThreePlanes;
  static constexpr int kMostChunk = 4, kStagger = 2;
  static int chunk(int, double) { return kMostChunk; }
  using Small = Products<Product{1, 0}, Product{0, 1}>;
};

// Takes as many products as Bf16x3, three, and keeps 22 bits; but the range of fp16 is narrow. Every row is
// scaled so that its largest magnitude is in [2^14, 2^15), and p1 is multiplied by 2^11. So elements down to
// 2^-28 of the largest keep all 22 bits.
struct Fp16x3 : FloatPlanes<Half, 2, 1 << 11> {
  static constexpr Ring kRings[] = {{0, 1, 1, 7, 8}, {1, 1, 1, 4, 5}};
  static constexpr plans::PlaneScheme kTiles = plans::kThreePlanes;
  static constexpr int kMostChunk = 4, kStagger = 2;
  static int chunk(int, double) { return kMostChunk; }
  using Small = Products<Product{1, 0}, Product{0, 1}>;

  static constexpr Scaling kScaling = Scaling::all_rows;
  __device__ __forceinline__ static float scale_of(const Magnitudes& row) {
    const int exponent = 14 + 127 - int(row.largest >> 23);
    const int representable = max(min(exponent, 126), -112);
    return row.largest == 0 ? 1.f : __uint_as_float(uint32_t(127 + representable) << 23);
  }
};

// int32 modulo 2^32, exactly. x = p0 + 2^8 p1 + 2^16 p2 + 2^24 p3 with unsigned bytes. Products of planes i
// and j with i + j > 3 are multiples of 2^32 and are not computed. The tensor cores' int32 sums wrap.
//
// There are two sweeps over k. The first computes S3 (i + j = 3) and S2, which are joined to S = 2^16 S3 +
// 2^8 S2. The second sweep needs only planes 0 and 1: it adds S1 to S and computes S0. The result is 2^8 S +
// S0. Two sweeps load 12 planes instead of 8. But the tensor cores wait for shifts only twice per tile
// instead of four times per chunk of k, which is faster in all. Planes 0 and 1, which are read twice, have
// the rings with the most slots.
struct Int8x10 {
  using Operand = int32_t;
  using Element = uint8_t;
  using Tiles = EveryTile;
  static constexpr int kPlanes = 4, kStageK = plans::kPlaneStage, kWideN = plans::kWidePlanes;
  static constexpr Loop kLoop = Loop::sweeping;
  static constexpr int kSums = 1;
  template <Product>
  using Multiplied = Element;
  static constexpr Ring kRings[] = {{0, 1, 2, 8, 9}, {1, 1, 2, 7, 9}, {2, 1, 1, 4, 5}, {3, 1, 1, 3, 5}};
  static constexpr plans::PlaneScheme kTiles = plans::kInt8x10;
  using S3 = Products<Product{3, 0}, Product{0, 3}, Product{1, 2}, Product{2, 1}>;
  using S2 = Products<Product{2, 0}, Product{0, 2}, Product{1, 1}>;
  using S1 = Products<Product{1, 0}, Product{0, 1}>;
  using S0 = Products<Product{0, 0}>;

  __device__ __forceinline__ static void cut(const uint32_t (&x)[16], uint32_t (&planes)[kPlanes][4]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {  // 4 x 4 bytes, transposed
      const uint32_t low01 = __byte_perm(x[4 * i], x[4 * i + 1], 0x5140);
      const uint32_t low23 = __byte_perm(x[4 * i + 2], x[4 * i + 3], 0x5140);
      const uint32_t high01 = __byte_perm(x[4 * i], x[4 * i + 1], 0x7362);
      const uint32_t high23 = __byte_perm(x[4 * i + 2], x[4 * i + 3], 0x7362);
      planes[0][i] = __byte_perm(low01, low23, 0x5410), planes[1][i] = __byte_perm(low01, low23, 0x7632);
      planes[2][i] = __byte_perm(high01, high23, 0x5410), planes[3][i] = __byte_perm(high01, high23, 0x7632);
    }
  }

  static constexpr Scaling kScaling = Scaling::none;
};

// int16, exactly. x = p0 + 2^8 p1 with an unsigned byte p0 and a signed byte p1. One sweep over k computes
// three sums: S2 of p1 q1, S1 of p1 q0 and p0 q1, and S0 of p0 q0. The result is 2^16 S2 + 2^8 S1 + S0, in 64
// bits. A value of k adds at most 2 * 128 * 255 to S1, so that S1 stays below 2^31 for 2^15 of them. A launch
// sums no more (plans::kInt16x4). Tiles of 128 columns are the widest whose three sums fit in registers.
struct Int16x4 {
  using Operand = LongInt16;
  using Element = uint8_t;
  using Tiles = EveryTile;
  static constexpr int kPlanes = 2, kStageK = plans::kPlaneStage, kWideN = plans::kNarrowPlanes;
  static constexpr Loop kLoop = Loop::once;
  static constexpr int kSums = 3;
  template <int plane>
  using Byte = std::conditional_t<plane == 1, int8_t, uint8_t>;
  template <Product p>
  using Multiplied = std::conditional_t<p.a == p.b, Byte<p.a>, MixedBytes<Byte<p.a>, Byte<p.b>>>;
  static constexpr Ring kRings[] = {{0, 2, 1, 13, 13}};
  static constexpr plans::PlaneScheme kTiles = plans::kInt16x4;
  static_assert(kTiles.longest * kStageK <= 1 << 15);
  using S2 = Products<Product{1, 1}>;
  using S1 = Products<Product{1, 0}, Product{0, 1}>;
  using S0 = Products<Product{0, 0}>;

  __device__ __forceinline__ static uint64_t join(uint32_t s2, uint32_t s1, uint32_t s0) {
    return (uint64_t(int64_t(int32_t(s2))) << 16) + (uint64_t(int64_t(int32_t(s1))) << 8) + s0;
  }

  __device__ __forceinline__ static void cut(const uint32_t (&x)[8], uint32_t (&planes)[kPlanes][4]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      planes[0][i] = __byte_perm(x[2 * i], x[2 * i + 1], 0x6420);
      planes[1][i] = __byte_perm(x[2 * i], x[2 * i + 1], 0x7531);
    }
  }

  static constexpr Scaling kScaling = Scaling::none;
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
