// The header that hides the differences between the GPU (nvcc) and the host (g++, csrc/simt). With it a
// kernel file compiles unchanged for both:
//   namespace fastgemm::FASTGEMM_TARGET   cuda under nvcc, simt under g++; both may live in one library
//   FASTGEMM_SHARED                       static shared memory, as __shared__
//   FASTGEMM_DYNAMIC_SHARED(T, name)      the block's dynamic shared memory, 1024-byte aligned, as T*
//   FASTGEMM_LDG(p)                       a load through the read-only path
//   FASTGEMM_SM90A                        1 where code may use sm_90a instructions: compiling for that GPU or
//                                         for the host; a kernel that needs them has an empty body elsewhere
//   FASTGEMM_PORTABLE                     1 where code for GPUs without them may run; if a row has a
//                                         kernel of each kind, the body of one of them is empty
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define FASTGEMM_TARGET cuda
#define FASTGEMM_SHARED __shared__
#define FASTGEMM_DYNAMIC_SHARED(T, name)                            \
  extern __shared__ __align__(1024) unsigned char dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(dynamic_shared)
#define FASTGEMM_LDG(p) __ldg(p)
#define FASTGEMM_UNROLL _Pragma("unroll")
#define FASTGEMM_NO_UNROLL _Pragma("unroll 1")
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FASTGEMM_SM90A 1
#else
#define FASTGEMM_SM90A 0
#endif
#define FASTGEMM_PORTABLE !FASTGEMM_SM90A

#else

#include "simt/platform.h"

#define FASTGEMM_TARGET simt
#define FASTGEMM_SHARED __shared__
#define FASTGEMM_DYNAMIC_SHARED(T, name) \
  T* const name = reinterpret_cast<T*>(::fastgemm::simt::dynamic_shared())
#define FASTGEMM_LDG(p) (*(p))
#define FASTGEMM_UNROLL
#define FASTGEMM_NO_UNROLL
#define FASTGEMM_SM90A 1
#define FASTGEMM_PORTABLE 1
#define __grid_constant__

#endif
