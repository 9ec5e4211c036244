// Few rows and tiny batches, for all types (small_routes.h).
#include "cpu/gemm/small_routes.h"

#define FASTGEMM_DEFINE_ROUTES(T, Out)                                   \
  template bool run_few_rows<T, Out>(const GemmProblem&, Context&, int); \
  template bool run_tiny<T, Out>(const GemmProblem&, Context&);

namespace fastgemm::FASTGEMM_ISA {
FASTGEMM_REAL_PRODUCTS(FASTGEMM_DEFINE_ROUTES)
}
