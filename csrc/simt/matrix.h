// ldmatrix, stmatrix and mma.sync on the host. All lanes of a warp must take part.
#pragma once

#include "cuda/device/fragment.cuh"

namespace fastgemm::simt {

void emulate_ldmatrix(uint32_t* to, const void* row, int matrices, bool transposed);
void emulate_stmatrix(void* row, const uint32_t* from, int matrices, bool transposed);

// d += a * b in fragments of MmaLayout<T, M, K>, with elements packed as in the registers. Products are
// exact. With float32 sums, they are added one after the other along k in float32, and the sum is added to d.
// GPUs keep a few bits more or less, depending on the generation, so results agree up to rounding. Integers
// wrap. fp64 is a chain of fused multiply-adds along k that starts with d.
template <class T, int M, int K>
void emulate_mma(void* d, const void* a, const void* b);

// Checks the rules of wmma's loads and stores.
void check_wmma_address(const void* p, int leading_bytes);

// The part of an instruction's name for the types of accumulator and operands.
template <class T>
inline constexpr char kTypesText[] = ".f64";
template <>
inline constexpr char kTypesText<Half>[] = ".f32.f16";
template <>
inline constexpr char kTypesText<BFloat16>[] = ".f32.bf16";
template <>
inline constexpr char kTypesText<Tf32>[] = ".f32.tf32";
template <>
inline constexpr char kTypesText<int8_t>[] = ".s32.s8";
template <>
inline constexpr char kTypesText<uint8_t>[] = ".s32.u8";
template <>
inline constexpr char kTypesText<MixedBytes<uint8_t, int8_t>>[] = ".s32.u8.s8";
template <>
inline constexpr char kTypesText<MixedBytes<int8_t, uint8_t>>[] = ".s32.s8.u8";

}  // namespace fastgemm::simt
