// wgmma.mma_async as inline PTX, for the widths N in the last lines. An instruction names each of its N / 2
// accumulator registers twice: as an operand of the asm statement and in its text.
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The instruction with R accumulator registers per thread. `Text` has the k and the types, which follow
// m64nN, and the text after the predicate: signs of a and b and transpose bits, if the types have these.
template <int R>
struct WgmmaAsm;

#define FASTGEMM_TEXT_8(a, b, c, d, e, f, g, h) \
  "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h
#define FASTGEMM_TEXT_0_4 "%0, %1, %2, %3"
#define FASTGEMM_TEXT_0_8 FASTGEMM_TEXT_8(0, 1, 2, 3, 4, 5, 6, 7)
#define FASTGEMM_TEXT_0_16 FASTGEMM_TEXT_0_8 ", " FASTGEMM_TEXT_8(8, 9, 10, 11, 12, 13, 14, 15)
#define FASTGEMM_TEXT_16_16 \
  FASTGEMM_TEXT_8(16, 17, 18, 19, 20, 21, 22, 23) ", " FASTGEMM_TEXT_8(24, 25, 26, 27, 28, 29, 30, 31)
#define FASTGEMM_TEXT_32_16 \
  FASTGEMM_TEXT_8(32, 33, 34, 35, 36, 37, 38, 39) ", " FASTGEMM_TEXT_8(40, 41, 42, 43, 44, 45, 46, 47)
#define FASTGEMM_TEXT_48_16 \
  FASTGEMM_TEXT_8(48, 49, 50, 51, 52, 53, 54, 55) ", " FASTGEMM_TEXT_8(56, 57, 58, 59, 60, 61, 62, 63)
#define FASTGEMM_TEXT_64_16 \
  FASTGEMM_TEXT_8(64, 65, 66, 67, 68, 69, 70, 71) ", " FASTGEMM_TEXT_8(72, 73, 74, 75, 76, 77, 78, 79)
#define FASTGEMM_TEXT_80_16 \
  FASTGEMM_TEXT_8(80, 81, 82, 83, 84, 85, 86, 87) ", " FASTGEMM_TEXT_8(88, 89, 90, 91, 92, 93, 94, 95)
#define FASTGEMM_TEXT_96_16                           \
  FASTGEMM_TEXT_8(96, 97, 98, 99, 100, 101, 102, 103) \
  ", " FASTGEMM_TEXT_8(104, 105, 106, 107, 108, 109, 110, 111)
#define FASTGEMM_TEXT_112_16                              \
  FASTGEMM_TEXT_8(112, 113, 114, 115, 116, 117, 118, 119) \
  ", " FASTGEMM_TEXT_8(120, 121, 122, 123, 124, 125, 126, 127)
#define FASTGEMM_TEXT_0_32 FASTGEMM_TEXT_0_16 ", " FASTGEMM_TEXT_16_16
#define FASTGEMM_TEXT_0_48 FASTGEMM_TEXT_0_32 ", " FASTGEMM_TEXT_32_16
#define FASTGEMM_TEXT_0_56 FASTGEMM_TEXT_0_48 ", " FASTGEMM_TEXT_8(48, 49, 50, 51, 52, 53, 54, 55)
#define FASTGEMM_TEXT_0_64 FASTGEMM_TEXT_0_48 ", " FASTGEMM_TEXT_48_16
#define FASTGEMM_TEXT_0_80 FASTGEMM_TEXT_0_64 ", " FASTGEMM_TEXT_64_16
#define FASTGEMM_TEXT_0_96 FASTGEMM_TEXT_0_80 ", " FASTGEMM_TEXT_80_16
#define FASTGEMM_TEXT_0_112 FASTGEMM_TEXT_0_96 ", " FASTGEMM_TEXT_96_16
#define FASTGEMM_TEXT_0_128 FASTGEMM_TEXT_0_112 ", " FASTGEMM_TEXT_112_16

#define FASTGEMM_EIGHT(c, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define FASTGEMM_LIST_4(c) c(d[0]), c(d[1]), c(d[2]), c(d[3])
#define FASTGEMM_LIST_8(c) FASTGEMM_EIGHT(c, 0)
#define FASTGEMM_LIST_16(c) FASTGEMM_EIGHT(c, 0), FASTGEMM_EIGHT(c, 8)
#define FASTGEMM_LIST_32(c) FASTGEMM_LIST_16(c), FASTGEMM_EIGHT(c, 16), FASTGEMM_EIGHT(c, 24)
#define FASTGEMM_LIST_48(c) FASTGEMM_LIST_32(c), FASTGEMM_EIGHT(c, 32), FASTGEMM_EIGHT(c, 40)
#define FASTGEMM_LIST_56(c) FASTGEMM_LIST_48(c), FASTGEMM_EIGHT(c, 48)
#define FASTGEMM_LIST_64(c) FASTGEMM_LIST_48(c), FASTGEMM_EIGHT(c, 48), FASTGEMM_EIGHT(c, 56)
#define FASTGEMM_LIST_80(c) FASTGEMM_LIST_64(c), FASTGEMM_EIGHT(c, 64), FASTGEMM_EIGHT(c, 72)
#define FASTGEMM_LIST_96(c) FASTGEMM_LIST_80(c), FASTGEMM_EIGHT(c, 80), FASTGEMM_EIGHT(c, 88)
#define FASTGEMM_LIST_112(c) FASTGEMM_LIST_96(c), FASTGEMM_EIGHT(c, 96), FASTGEMM_EIGHT(c, 104)
#define FASTGEMM_LIST_128(c) FASTGEMM_LIST_112(c), FASTGEMM_EIGHT(c, 112), FASTGEMM_EIGHT(c, 120)

// R = N / 2 accumulators; R and r1 to r7 are the numbers of the operands behind them. If the predicate is
// false, the old value of d is ignored: d = a * b.
#define FASTGEMM_WGMMA_SHARED(N, R, constraint, r1, r2, r3, r4)                                              \
  asm volatile("{\n.reg .pred P;\nsetp.ne.b32 P, %" #r2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "%" #r3 \
               " {" FASTGEMM_TEXT_0_##R "}, %" #R ", %" #r1 ", P%" #r4 ";\n}"                                \
               : FASTGEMM_LIST_##R(constraint)                                                               \
               : "l"(a), "l"(b), "r"(accumulate), "C"(Text::kTypes), "C"(Text::kTail))
#define FASTGEMM_WGMMA_REGISTERS(N, R, constraint, r1, r2, r3, r4, r5, r6, r7)                               \
  asm volatile("{\n.reg .pred P;\nsetp.ne.b32 P, %" #r5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "%" #r6 \
               " {" FASTGEMM_TEXT_0_##R "}, {%" #R ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4 ", P%" #r7       \
                                        ";\n}"                                                               \
               : FASTGEMM_LIST_##R(constraint)                                                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "C"(Text::kTypes),     \
                 "C"(Text::kTail))
#define FASTGEMM_WGMMA(N, R, r1, r2, r3, r4, r5, r6, r7)                                                     \
  template <>                                                                                                \
  struct WgmmaAsm<R> {                                                                                       \
    template <class Text>                                                                                    \
    __device__ __forceinline__ static void run(float (&d)[R], uint64_t a, uint64_t b, uint32_t accumulate) { \
      FASTGEMM_WGMMA_SHARED(N, R, "+f", r1, r2, r3, r4);                                                     \
    }                                                                                                        \
    template <class Text>                                                                                    \
    __device__ __forceinline__ static void run(uint32_t (&d)[R], uint64_t a, uint64_t b,                     \
                                               uint32_t accumulate) {                                        \
      FASTGEMM_WGMMA_SHARED(N, R, "+r", r1, r2, r3, r4);                                                     \
    }                                                                                                        \
    template <class Text>                                                                                    \
    __device__ __forceinline__ static void run(float (&d)[R], const uint32_t (&a)[4], uint64_t b,            \
                                               uint32_t accumulate) {                                        \
      FASTGEMM_WGMMA_REGISTERS(N, R, "+f", r1, r2, r3, r4, r5, r6, r7);                                      \
    }                                                                                                        \
    template <class Text>                                                                                    \
    __device__ __forceinline__ static void run(uint32_t (&d)[R], const uint32_t (&a)[4], uint64_t b,         \
                                               uint32_t accumulate) {                                        \
      FASTGEMM_WGMMA_REGISTERS(N, R, "+r", r1, r2, r3, r4, r5, r6, r7);                                      \
    }                                                                                                        \
  };

FASTGEMM_WGMMA(8, 4, 5, 6, 7, 8, 9, 10, 11)
FASTGEMM_WGMMA(16, 8, 9, 10, 11, 12, 13, 14, 15)
FASTGEMM_WGMMA(32, 16, 17, 18, 19, 20, 21, 22, 23)
FASTGEMM_WGMMA(64, 32, 33, 34, 35, 36, 37, 38, 39)
FASTGEMM_WGMMA(96, 48, 49, 50, 51, 52, 53, 54, 55)
FASTGEMM_WGMMA(112, 56, 57, 58, 59, 60, 61, 62, 63)
FASTGEMM_WGMMA(128, 64, 65, 66, 67, 68, 69, 70, 71)
FASTGEMM_WGMMA(160, 80, 81, 82, 83, 84, 85, 86, 87)
FASTGEMM_WGMMA(192, 96, 97, 98, 99, 100, 101, 102, 103)
FASTGEMM_WGMMA(224, 112, 113, 114, 115, 116, 117, 118, 119)
FASTGEMM_WGMMA(256, 128, 129, 130, 131, 132, 133, 134, 135)

#undef FASTGEMM_WGMMA
#undef FASTGEMM_WGMMA_REGISTERS
#undef FASTGEMM_WGMMA_SHARED

}  // namespace fastgemm::FASTGEMM_TARGET
