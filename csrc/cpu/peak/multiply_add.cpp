// Independent multiply-adds on registers, compiled per instruction set. Two units with a latency of 4 cycles
// need 8 chains of dependent operations; there are 16, which still leaves registers for the two operands.
#include <cstdint>

#if defined(FASTGEMM_ISA_avx512)
#define FASTGEMM_VECTOR_BYTES 64
#elif defined(FASTGEMM_ISA_avx2)
#define FASTGEMM_VECTOR_BYTES 32
#else
#define FASTGEMM_VECTOR_BYTES 16
#endif

// The compiler must have computed the value here, and can assume nothing about it afterwards.
#if defined(FASTGEMM_ISA_avx512)
#define HIDE(value) asm volatile("" : "+v"(value))
#elif defined(__x86_64__)
#define HIDE(value) asm volatile("" : "+x"(value))
#else
#define HIDE(value) asm volatile("" : "+w"(value))
#endif

namespace fastgemm::FASTGEMM_ISA {
namespace {

constexpr int kChains = FASTGEMM_VECTOR_BYTES == 64 ? 16 : 12;  // AVX2 and SSE have 16 registers

template <class T>
double burst(int64_t rounds, T x, T y) {
  typedef T Vector __attribute__((vector_size(FASTGEMM_VECTOR_BYTES)));
  Vector factor = x - (Vector){}, term = y - (Vector){};
  Vector chain[kChains];
  HIDE(factor);
  HIDE(term);
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) {
    chain[i] = term;
    HIDE(chain[i]);  // the compiler would merge equal chains
  }
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) chain[i] = chain[i] * factor + term;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) HIDE(chain[i]);
  return 2.0 * double(rounds) * kChains * (FASTGEMM_VECTOR_BYTES / sizeof(T));
}

}  // namespace

double burst_f64(int64_t rounds) { return burst<double>(rounds, 0.5, 1.0); }
double burst_f32(int64_t rounds) { return burst<float>(rounds, 0.5f, 1.0f); }
double burst_i32(int64_t rounds) { return burst<uint32_t>(rounds, 3, 1); }

}  // namespace fastgemm::FASTGEMM_ISA
