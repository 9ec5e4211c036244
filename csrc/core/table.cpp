#include "core/table.h"

#include <algorithm>
#include <tuple>

namespace fastgemm {

std::span<const Kernel> kernels() {
  static const std::vector<Kernel> all = [] {
    std::vector<Kernel> rows;
    for (const auto part : {cpu_gemm_kernels(), cpu_transpose_kernels(), cpu_add_kernels(),
                            cuda_gemm_kernels(), cuda_transpose_kernels(), cuda_add_kernels(),
                            library_kernels(), strategies_for(Device::cpu), strategies_for(Device::cuda)})
      rows.insert(rows.end(), part.begin(), part.end());
    std::stable_sort(rows.begin(), rows.end(), [](const Kernel& x, const Kernel& y) {
      return std::tuple(x.op, x.device, x.level) < std::tuple(y.op, y.device, y.level);
    });
    return rows;
  }();
  return all;
}

}  // namespace fastgemm
