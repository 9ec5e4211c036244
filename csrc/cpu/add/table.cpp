// The rows of the kernel table, and the choice of orientation, of instruction set and of stores.
#include "core/table.h"

#include <utility>

#include "core/cpu_features.h"
#include "cpu/add/levels.h"
#include "cpu/per_isa.h"

namespace fastgemm {
namespace {

template <AddKernel kernel>
void serial(const AddProblem& p, Context&) {
  kernel(p);
}

constexpr AddKernel kVectorized[] = {FASTGEMM_PER_ISA(add_vectorized)};
constexpr AddKernel kStreaming[] = {FASTGEMM_PER_ISA(add_streaming)};

AddKernel for_this_cpu(const AddKernel (&kernels)[3]) {
  return kernels[static_cast<int>(cpu_features().isa())];
}

// The same sum, with rows along the smaller stride of the result, merged where all strides allow it. A single
// row stays one: as a column of the other orientation it would be that many rows of one element.
AddProblem along_result(const AddProblem& given) {
  AddProblem p = given;
  if (p.rows > 1 && (p.cols == 1 || p.out.row_stride < p.out.col_stride)) {
    std::swap(p.rows, p.cols);
    p.a = p.a.transposed(), p.b = p.b.transposed(), p.out = p.out.transposed();
  }
  return p.rows == 1 ? p : p.with_long_rows();
}

void vectorized(const AddProblem& p, Context&) { for_this_cpu(kVectorized)(along_result(p)); }

// Whether to use non-temporal stores. They pay when the three streams do not fit in the caches. fp32 on two
// Zen 4 cores with 1 MiB of L2 each and 32 MiB of L3, ordinary against non-temporal stores, GB/s: 25 MB 97 :
// 81, 36 MB 64 : 79, 50 MB 56 : 73, 201 MB 50 : 76. The limit depends on L2, because L3 is shared with cores
// that do other work. They do not pay if out is also an operand, because its cache lines were read anyway.
// Rows under 1 KiB have too few whole lines.
bool bypasses_cache(const AddProblem& p) {
  const bool in_place = p.out.data == p.a.data || p.out.data == p.b.data;
  return !in_place && p.out.col_stride == 1 && p.cols * element_size(p.type) >= 1024 &&
         p.bytes() >= 32.0 * static_cast<double>(cpu_caches().l2);
}

void streaming(const AddProblem& problem, Context& context) {
  const AddProblem p = along_result(problem);
  add_parallel(p, context, for_this_cpu(bypasses_cache(p) ? kStreaming : kVectorized));
}

constexpr Kernel row(int level, std::string_view name, std::string_view summary,
                     void (*launch)(const AddProblem&, Context&)) {
  return {.op = Op::add,
          .device = Device::cpu,
          .level = level,
          .name = name,
          .dtypes = kAddTypes,
          .needs = "any CPU",
          .summary = summary,
          .add = launch,
          .complex = level >= 4};  // of type bits32 (complex32), too
}

constexpr Kernel kKernels[] = {
    row(1, "naive", "Two loops.", serial<add_naive>),
    row(2, "staged", "Operands pass through a buffer in L1, which gains nothing: no element is used twice.",
        serial<add_staged>),
    row(4, "vectorized", "A SIMD register at a time.", vectorized),
    row(5, "streaming", "All cores; large results bypass the cache with non-temporal stores.", streaming),
};

}  // namespace

std::span<const Kernel> cpu_add_kernels() { return kKernels; }

}  // namespace fastgemm
