// Schemes: how a product of types that tensor cores do not multiply, or not at that accuracy, is made of
// products that they do. A scheme cuts each element into planes of a narrower type, says which of them are
// multiplied with which, and in what order the products are summed. Everything else is the same for all of
// them (pack.cuh, engine.cuh).
//
//             planes                       products of the planes            relative tensor time
//   Bf16x6    3 x bf16, 24 bits in all     6 of 9: what is left out is       6
//                                          below 2^-24 of the largest
//   Int8x10   4 x unsigned byte            10 of 16: what is left out is     5
//                                          a multiple of 2^32
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/numeric.cuh"

namespace fastgemm::FASTGEMM_TARGET::packed {

// Plane a of A times plane b of B; and several such products, summed in order.
struct Product {
  int a, b;
};
template <Product... products>
struct Products {};

// Planes that travel to shared memory together, through a ring of slots of their own: one slot holds these
// planes of a stage of A and of B. `sweeps` says how often a tile's stages pass through the ring.
struct Ring {
  int first_plane, planes, sweeps;
  int slots, narrow_slots;  // with wide tiles and with narrow ones (shape.cuh)
};

// Whether rows of A and columns of B are multiplied by powers of two before they are cut.
enum class Scaling { none, rare };

inline constexpr int kStageK = 32;  // of k in a stage

// Elements of a plane in the 16 bytes that a thread packs at a time.
template <class Scheme>
inline constexpr int kPerUnit = 16 / int(sizeof(typename Scheme::Element));

// float32 at float32 accuracy. x = p0 + p1 + p2 exactly, each p the bf16 nearest to what is left.
//
// The tensor cores truncate the sum at each step, which biases it by about 2^-25.6 of its size. So a sum never
// gets long there: every kChunk stages it is added to sums in registers, rounded to nearest. And of a chunk
// the small products come first and p0 * p0 last: only these 2 kChunk steps see a sum of full size. Error
// against cuBLAS SGEMM's (normwise, normal data): 0.6 at k = 40, 0.36 at 512, 0.12 at 8192. With the products
// of a stage in turn it would be 2.4 at 512, and with all of k summed in the tensor cores 10 and more.
struct Bf16x6 {
  using Operand = float;
  using Element = BFloat16;
  static constexpr int kPlanes = 3;
  static constexpr Ring kRings[] = {{0, 1, 1, 5, 7}, {1, 2, 1, 3, 3}};
  static constexpr int kChunk = 3;    // stages
  static constexpr int kStagger = 1;  // stages by which the second warpgroup's chunks are ahead: it multiplies
                                      // while the first one adds (1 % at 8192)
  using Small = Products<Product{2, 0}, Product{0, 2}, Product{1, 1}, Product{1, 0}, Product{0, 1}>;
  using Large = Products<Product{0, 0}>;
  static_assert(kRings[0].slots >= kChunk + kStagger, "p0 of a chunk stays until the end of the chunk");

  __device__ __forceinline__ static void cut(const float (&x)[8], uint32_t (&planes)[kPlanes][4]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      float first = x[2 * i], second = x[2 * i + 1];
      FASTGEMM_UNROLL
      for (int p = 0; p < kPlanes; ++p) {
        const uint32_t pair = planes[p][i] = narrow_pair<BFloat16>(first, second);
        first -= __uint_as_float(pair << 16), second -= __uint_as_float(pair & 0xffff0000u);
      }
    }
  }

  // The last bits of x lie 2^-23 below the first, and bf16 ends at 2^-133. A row whose largest magnitude is
  // below 2^-86 would lose some of them, or of their products with the other operand's last bits.
  static constexpr Scaling kScaling = Scaling::rare;
  __device__ __forceinline__ static float scale_of(uint32_t largest_bits) {
    constexpr float kUp = 18446744073709551616.f;                // 2^64
    constexpr uint32_t kTiny = uint32_t(127 - 86) << 23;
    return largest_bits != 0 && largest_bits < kTiny ? kUp : 1.f;
  }
};

// int32 modulo 2^32, exactly. x = p0 + 2^8 p1 + 2^16 p2 + 2^24 p3 with unsigned bytes: of the products of
// planes i and j only those with i + j <= 3 are no multiples of 2^32, and int32 sums of tensor cores wrap.
//
// Two sums: the first sweep over k makes S3 (i + j = 3) and S2, which become S = 2^16 S3 + 2^8 S2; the second
// one, of planes 0 and 1 alone, adds S1 to S and makes S0. The result is 2^8 S + S0. That costs 12 loads of
// planes in place of 8, and has the tensor cores wait for shifts twice a tile in place of four times a chunk of
// k (160 TOPS in place of 131 at 4096). The rings of planes 0 and 1, which are read twice, have most slots:
// 7 % faster than equal ones.
struct Int8x10 {
  using Operand = int32_t;
  using Element = uint8_t;
  static constexpr int kPlanes = 4;
  static constexpr Ring kRings[] = {{0, 1, 2, 8, 9}, {1, 1, 2, 7, 9}, {2, 1, 1, 4, 5}, {3, 1, 1, 3, 5}};
  using S3 = Products<Product{3, 0}, Product{0, 3}, Product{1, 2}, Product{2, 1}>;
  using S2 = Products<Product{2, 0}, Product{0, 2}, Product{1, 1}>;
  using S1 = Products<Product{1, 0}, Product{0, 1}>;
  using S0 = Products<Product{0, 0}>;

  __device__ __forceinline__ static void cut(const int32_t (&x)[16], uint32_t (&planes)[kPlanes][4]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {  // 4 x 4 bytes, transposed
      const auto* const four = reinterpret_cast<const uint32_t*>(x + 4 * i);
      const uint32_t low01 = __byte_perm(four[0], four[1], 0x5140);
      const uint32_t low23 = __byte_perm(four[2], four[3], 0x5140);
      const uint32_t high01 = __byte_perm(four[0], four[1], 0x7362);
      const uint32_t high23 = __byte_perm(four[2], four[3], 0x7362);
      planes[0][i] = __byte_perm(low01, low23, 0x5410), planes[1][i] = __byte_perm(low01, low23, 0x7632);
      planes[2][i] = __byte_perm(high01, high23, 0x5410), planes[3][i] = __byte_perm(high01, high23, 0x7632);
    }
  }

  static constexpr Scaling kScaling = Scaling::none;
};

}  // namespace fastgemm::FASTGEMM_TARGET::packed
