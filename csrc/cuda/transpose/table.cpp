// The rows of transpose on CUDA.
#include "cuda/rows.h"
#include "cuda/transpose/levels.h"

namespace fastgemm {
namespace {

constexpr Kernel row(int level, std::string_view name, std::string_view summary,
                     void (*launch)(const TransposeProblem&, Context&), Role role = Role::rung) {
  Kernel k = cuda::portable_row(Op::transpose, level, name, kTransposeTypes, summary, role);
  k.transpose = launch;
  return k;
}

constexpr Kernel kRows[] = {
    row(1, "naive", "One thread an element: coalesced reads, every write of a warp to another row.",
        FASTGEMM_LAUNCHER(transpose_naive)),
    row(1, "naive_strided_read",
        "The same with exchanged directions: coalesced writes, every read of a warp from another row.",
        FASTGEMM_LAUNCHER(transpose_naive_strided_read), Role::companion),
    row(2, "shared", "A 32 x 32 tile in shared memory: both sides coalesced, columns meet in one bank.",
        FASTGEMM_LAUNCHER(transpose_shared)),
    row(3, "padded", "The tile's rows are padded by one element: no bank conflicts.",
        FASTGEMM_LAUNCHER(transpose_padded)),
    row(4, "vectorized", "16 bytes an access on both sides, blocks transposed in registers, a swizzled tile.",
        FASTGEMM_LAUNCHER(transpose_vectorized)),
    row(5, "saturating", "256-byte rows on both sides, enough bytes in flight, blocks walk down src.",
        FASTGEMM_LAUNCHER(transpose_saturating)),
    row(6, "pipelined",
        "cp.async brings tiles past registers, whatever their alignment; blocks form the pipeline.",
        FASTGEMM_LAUNCHER(transpose_pipelined)),
};

}  // namespace

std::span<const Kernel> cuda_transpose_kernels() { return kRows; }

}  // namespace fastgemm
