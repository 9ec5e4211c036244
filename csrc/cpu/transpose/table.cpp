// The rows of the kernel table, and the choice of instruction set and of stores.
#include "core/table.h"

#include "core/cpu_features.h"
#include "cpu/per_isa.h"
#include "cpu/transpose/block.h"
#include "cpu/transpose/copy.h"

namespace fastgemm {
namespace {

template <BlockKernel kernel>
void serial(const TransposeProblem& p, Context& context) {
  is_row_copy(p) ? copy_rows(p, context) : run_serial(p, kernel);
}

constexpr BlockKernel kSimd[] = {FASTGEMM_PER_ISA(simd_block)};
constexpr BlockKernel kStreaming[] = {FASTGEMM_PER_ISA(streaming_block)};
constexpr BlockKernel kPipelined[] = {FASTGEMM_PER_ISA(pipelined_block)};

BlockKernel for_this_cpu(const BlockKernel (&kernels)[3]) {
  return kernels[static_cast<int>(cpu_features().isa())];
}

void simd(const TransposeProblem& p, Context& context) {
  is_row_copy(p) ? copy_rows(p, context) : run_serial(p, for_this_cpu(kSimd));
}

// Whether to use non-temporal stores. They pay if the result does not stay in the caches anyway. Ordinary
// against non-temporal stores on two Zen 4 cores with 1 MiB of L2 each and 32 MiB of L3, in GB/s: 512 x 512
// floats (2 MB moved) 71 : 38, 1024 x 1024 (8 MB) 42 : 51, 1025 x 1025 35 : 37, 2049 x 2049 22 : 35, 1025 x
// 1025 bytes (2 MB) 44 : 30, 2049 x 2049 (8 MB) 28 : 33. The limit depends on L2, because L3 is shared with
// cores that do other work. If rows of dst are shorter than kStripBytes, they have too few whole lines.
bool bypasses_cache(const TransposeProblem& p) {
  return p.bytes() >= 8.0 * static_cast<double>(cpu_caches().l2) &&
         p.rows * element_size(p.type) >= kStripBytes;
}

template <const BlockKernel (&kernels)[3]>
void parallel(const TransposeProblem& p, Context& context) {
  if (is_row_copy(p)) return copy_rows(p, context);
  run_parallel(p, context, for_this_cpu(bypasses_cache(p) ? kernels : kSimd));
}

constexpr Kernel row(int level, std::string_view name, std::string_view summary,
                     void (*launch)(const TransposeProblem&, Context&), Role role = Role::rung) {
  return {.op = Op::transpose,
          .device = Device::cpu,
          .level = level,
          .name = name,
          .dtypes = kTransposeTypes,
          .needs = "any CPU",
          .summary = summary,
          .role = role,
          .transpose = launch};
}

constexpr Kernel kKernels[] = {
    row(1, "naive", "Two loops: sequential reads, every write to another row.", serial<naive_block>),
    row(1, "naive_strided_read", "The same loops exchanged: sequential writes, every read from another row.",
        serial<naive_strided_read_block>, Role::companion),
    row(2, "blocked", "Cache blocking: each line travels once.", serial<blocked_block>),
    row(3, "buffered",
        "Blocks go through a padded buffer, so that power-of-two strides do not conflict in the cache.",
        serial<buffered_block>),
    row(4, "simd", "Tiles are transposed in SIMD registers.", simd),
    row(5, "streaming", "All cores; whole lines of the result bypass the cache with non-temporal stores.",
        parallel<kStreaming>),
    row(6, "pipelined", "The next tile is prefetched while this one is transposed.", parallel<kPipelined>),
};

}  // namespace

std::span<const Kernel> cpu_transpose_kernels() { return kKernels; }

}  // namespace fastgemm
