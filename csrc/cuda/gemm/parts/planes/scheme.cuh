// Schemes: how a product of types that tensor cores do not multiply, or not at that accuracy, is made of
// products that they do. A scheme cuts each element into planes of a narrower type, says which of them are
// multiplied with which, and in what order the products are summed. All else is the same for every scheme
// (pack.cuh, multiply.cuh, engine.cuh).
//
//             planes, bits of x in all     products of planes
//   Bf16x6    3 x bf16, 24 bits            6 of 9: those left out are below 2^-24 of the whole
//   Bf16x3    2 x bf16, 16 bits            3 of 4: below 2^-16
//   Fp16x3    2 x fp16, 22 bits            3 of 4: below 2^-22
//   Int8x10   4 x unsigned byte, 32 bits   10 of 16: those left out are multiples of 2^32
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/numeric.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Plane a of A times plane b of B; and several such products, summed in order.
struct Product {
  int a, b;
};
template <Product... products>
struct Products {};

// Planes that travel to shared memory together, through a ring of slots of their own: one slot holds these
// planes of a stage of A and of B.
struct Ring {
  int first_plane, planes;
  int sweeps;               // how often a tile's stages pass through it
  int slots, narrow_slots;  // with wide tiles (kWideN columns) and with narrow ones (128)
};

// What a consumer does with the stages of a tile (multiply.cuh).
enum class Loop { promoting, sweeping };

// Which rows of A and columns of B are multiplied by powers of two before they are cut.
enum class Scaling { none, small_elements, all_rows };

// The magnitudes in a row, as bits. The smallest is that of all but zeros: less 1, zero is the largest number
// there is.
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

// Elements of a plane in the 16 bytes that a thread packs at a time.
template <class Scheme>
inline constexpr int kPerUnit = 16 / int(sizeof(typename Scheme::Element));

// Every scheme also says kNarrowTime, a narrow tile's time in that of a wide one: measured at 8192.

// float32 as a sum of planes of 16 bits, x = p0 + p1 / step + p2 / step^2, each plane the nearest to what the
// ones before leave.
//
// The tensor cores truncate the sum at each step, which biases it by about 2^-25.6 of its size. So a sum
// never gets long there: after a chunk of few stages it is added to sums in registers, rounded to nearest.
// And of a chunk the small products come first and p0 * p0 last: only the steps of the latter see a sum of
// full size.
template <class Plane, int planes, int step>
struct FloatPlanes {
  using Operand = float;
  using Element = Plane;
  static constexpr int kPlanes = planes, kStageK = 32, kWideN = 192;
  static constexpr Loop kLoop = Loop::promoting;
  static constexpr float kSmallUnit = 1.f / step;  // of the sum of the small products

  __device__ __forceinline__ static void cut(const uint32_t (&x)[8], uint32_t (&to)[kPlanes][4]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      float first = __uint_as_float(x[2 * i]), second = __uint_as_float(x[2 * i + 1]);
      FASTGEMM_UNROLL
      for (int p = 0; p < kPlanes; ++p) {
        const uint32_t pair = to[p][i] = narrow_pair<Plane>(first, second);
        first = (first - widen(Plane{uint16_t(pair)})) * float(step);
        second = (second - widen(Plane{uint16_t(pair >> 16)})) * float(step);
      }
    }
  }

  // bf16 has float32's range, but the last bits of x lie 2^-23 below the first, and bf16 ends at 2^-133: an
  // element below 2^-110 would lose some, which decide wherever the larger ones of its row meet zeros. Times
  // 2^24 the smallest float32 is 2^-125. A row all below 2^-86 is taken further up, or products of its planes
  // would lose bits, float32 ending at 2^-149. Where a row spans so much that no power of two fits, NaN says
  // so: all its sums become NaN, and repair_kernel computes them (repair.cuh).
  static constexpr Scaling kScaling = Scaling::small_elements;
  static constexpr uint32_t kTiny = uint32_t(127 - 86) << 23, kSmall = uint32_t(127 - 110) << 23;
  __device__ __forceinline__ static float scale_of(const Magnitudes& row) {
    constexpr float kUp = 16777216.f, kFarUp = 18446744073709551616.f;  // 2^24, 2^64
    constexpr uint32_t kLarge = uint32_t(127 + 103) << 23, kNaN = 0x7fffffffu;
    if (row.largest < kTiny) return row.largest != 0 ? kFarUp : 1.f;
    if (row.smallest_less_1 >= kSmall - 1) return 1.f;
    return row.largest < kLarge ? kUp : __uint_as_float(kNaN);
  }
  // True of all parts of a row: its scale is 1.
  __device__ __forceinline__ static bool needs_no_scale(const Magnitudes& part) {
    return part.smallest_less_1 >= kSmall - 1 && (part.largest >= kTiny || part.largest == 0);
  }
};

// float32 at float32 accuracy: the planes hold all of x. Normwise error against cuBLAS SGEMM's on an H200,
// the worst of three seeds of 768 x 1024:
//
//   k                               80    128   448   512   2048  8192  16384 65536
//   normal                          0.41  0.35  0.34  0.34  0.29  0.30  0.18  0.20
//   positive                        0.48  0.38  0.50  0.55  0.72  0.85  0.34  0.66
//   magnitudes over 12 decades      0.97  0.94  0.80  0.89  0.77  0.73  0.46  0.48
//
// Componentwise it is at most 0.87. Magnitudes over 12 decades are the hardest, because few terms make up a
// sum, and rounding to nearest hardly errs there: hence chunks of one stage for short k (with two 1.3 at
// 128), and the row rejects k below 80 (1.1 at 64).
//
// What cuBLAS makes of a short k depends on m and n as well: where C has few tiles it splits k, and the
// shorter the parts, the less it errs. With chunks of two stages 333 x 517 is at 1.08, 1.03 and 1.13 of its
// error (uniform, positive, wide) at 511, at 0.84, 0.83 and 0.91 at 1023, and lower beyond. By how the errors
// grow from 127 to 255, chunks of one stage make that 0.96 (uniform) and 0.98 (wide) at 511: an estimate.
// They take up to 9 % more time a stage, three times what lies between chunks of 3 and of 2: 1.4 of 36 us at
// 1024 x 1024 x 1024, where a multiprocessor has 15 stages, 0.2 us at 333 x 517 x 511, where it has 2. The
// limit of 12 includes 768 x 1024 up to 1024.
//
// Chunks of 3 stages take 3 % less time than of 2; where C is large cuBLAS does not split k and errs more
// (0.81 at worst at 4096 x 4096 x 512, 0.37 at 4096 x 4096 x 4096). With the products of a stage in turn
// normal data would be at 2.4 at 512, and with all of k summed in the tensor cores at 10 and more.
struct Bf16x6 : FloatPlanes<BFloat16, 3, 1> {
  static constexpr Ring kRings[] = {{0, 1, 1, 5, 7}, {1, 2, 1, 3, 3}};
  static constexpr double kNarrowTime = 0.71;
  static constexpr int kMostChunk = 3;
  static constexpr int kStagger = 1;  // stages by which the second warpgroup's chunks are ahead: it
                                      // multiplies while the first one adds (1 % at 8192)
  // Of sums of so many stages, for so many tiles a multiprocessor.
  static int chunk(int stages, double waves) {
    const bool is_small = stages <= 32 && stages * waves <= 12;  // cuBLAS splits k
    return stages <= 14 || is_small ? 1 : waves < 4 ? 2 : 3;
  }
  using Small = Products<Product{2, 0}, Product{0, 2}, Product{1, 1}, Product{1, 0}, Product{0, 1}>;
};

// Half the work, with 16 bits: an error of 2^-16 of |A||B| a product.
struct Bf16x3 : FloatPlanes<BFloat16, 2, 1> {
  static constexpr Ring kRings[] = {{0, 1, 1, 7, 8}, {1, 1, 1, 4, 5}};
  static constexpr double kNarrowTime = 0.77;
  static constexpr int kMostChunk = 4, kStagger = 2;
  static int chunk(int, double) { return kMostChunk; }
  using Small = Products<Product{1, 0}, Product{0, 1}>;
};

// The same work with 22 bits, in fp16's narrow range: every row is scaled so that its largest magnitude is in
// [2^14, 2^15), and p1 is stored times 2^11, so that elements down to 2^-28 of that keep all their bits.
struct Fp16x3 : FloatPlanes<Half, 2, 1 << 11> {
  static constexpr Ring kRings[] = {{0, 1, 1, 7, 8}, {1, 1, 1, 4, 5}};
  static constexpr double kNarrowTime = 0.77;
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

// int32 modulo 2^32, exactly. x = p0 + 2^8 p1 + 2^16 p2 + 2^24 p3 with unsigned bytes: of the products of
// planes i and j only those with i + j <= 3 are no multiples of 2^32, and int32 sums of tensor cores wrap.
//
// Two sums: the first sweep over k makes S3 (i + j = 3) and S2, which become S = 2^16 S3 + 2^8 S2; the second
// one, of planes 0 and 1 alone, adds S1 to S and makes S0. The result is 2^8 S + S0. That costs 12 loads of
// planes in place of 8, and has the tensor cores wait for shifts twice a tile in place of four times a chunk
// of k (160 TOPS in place of 131 at 4096). The rings of planes 0 and 1, which are read twice, have most
// slots: 7 % faster than equal ones.
struct Int8x10 {
  using Operand = int32_t;
  using Element = uint8_t;
  static constexpr int kPlanes = 4, kStageK = 32, kWideN = 192;
  static constexpr Loop kLoop = Loop::sweeping;
  static constexpr Ring kRings[] = {{0, 1, 2, 8, 9}, {1, 1, 2, 7, 9}, {2, 1, 1, 4, 5}, {3, 1, 1, 3, 5}};
  static constexpr double kNarrowTime = 0.67;
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

}  // namespace fastgemm::FASTGEMM_TARGET::planes
