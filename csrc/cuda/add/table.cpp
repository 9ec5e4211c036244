// The rows of add on CUDA.
#include "cuda/add/levels.h"
#include "cuda/rows.h"

namespace fastgemm {
namespace {

constexpr Kernel row(int level, std::string_view name, std::string_view summary,
                     void (*launch)(const AddProblem&, Context&), Role role = Role::rung) {
  Kernel k = cuda::portable_row(Op::add, level, name, kAddTypes, summary, role);
  k.add = launch;
  return k;
}

constexpr Kernel kRows[] = {
    row(1, "naive", "One thread an element, a warp along a row.", FASTGEMM_LAUNCHER(add_naive)),
    row(2, "staged", "Operands pass through shared memory, which gains nothing: no element is used twice.",
        FASTGEMM_LAUNCHER(add_staged)),
    row(2, "staged_transposed", "The same with [threadIdx.x][threadIdx.y]: strided in both memories.",
        FASTGEMM_LAUNCHER(add_staged_transposed), Role::pitfall),
    row(4, "vectorized", "16 bytes of each operand a thread.", FASTGEMM_LAUNCHER(add_vectorized)),
    row(5, "saturating", "Several vectors of each operand per thread, all in flight at once.",
        FASTGEMM_LAUNCHER(add_saturating)),
};

}  // namespace

std::span<const Kernel> cuda_add_kernels() { return kRows; }

}  // namespace fastgemm
