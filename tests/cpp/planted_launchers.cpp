// The launchers of all CUDA kernels, for a program that links some: those that it links take their places.
#include <stdexcept>

#include "cuda/add/levels.h"
#include "cuda/gemm/launchers.h"
#include "cuda/transpose/levels.h"

namespace fastgemm::simt {

#define FASTGEMM_LEFT_OUT(name, Problem)                     \
  [[gnu::weak]] void name(const Problem&, Context&) {        \
    throw std::logic_error(#name " is not in this program"); \
  }
#define FASTGEMM_TRANSPOSE(name) FASTGEMM_LEFT_OUT(name, TransposeProblem)
#define FASTGEMM_ADD(name) FASTGEMM_LEFT_OUT(name, AddProblem)
#define FASTGEMM_ROW(name, ...) FASTGEMM_LEFT_OUT(gemm_##name, GemmProblem)
#include "cuda/gemm/rows.def"
FASTGEMM_CUDA_TRANSPOSE(FASTGEMM_TRANSPOSE)
FASTGEMM_CUDA_ADD(FASTGEMM_ADD)

}  // namespace fastgemm::simt
