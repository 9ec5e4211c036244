// The passes of a layer of experts, around its grouped products. Each of `tokens` tokens goes to `chosen`
// experts. The pairs of a token and an expert are sorted by expert, and the products have a row for each
// pair; then the rows of each token are added up.
//
//   ids      {2, 0}, {0, 1}, {2, 0}          pairs 0 to 5: tokens 0 to 2, two experts each
//   order    1 2 5 | 3 | 0 4                 the pairs sorted by expert; equal ones stay in order
//   rows     0 1 2 | 1 | 0 2                 the token of each of them
//   ends     3, 4, 6                         where the pairs of each expert end
//   places   {4, 0}, {1, 3}, {5, 2}          where each pair went: the inverse of order
#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

struct RouteTokens {
  const void* ids = nullptr;  // (tokens, chosen)
  bool wide = false;          // int64 ids; otherwise int32
  int64_t token_stride = 0, chosen_stride = 0;
  int64_t tokens = 0;
  int chosen = 0, experts = 0;
  int32_t *order = nullptr, *rows = nullptr, *ends = nullptr, *places = nullptr;

  int64_t pairs() const { return tokens * chosen; }
  // The expert of a pair. All ids that are no expert count as `experts`: their pairs come last.
  FASTGEMM_ANYWHERE int expert_of(int64_t token, int64_t index) const {
    const int64_t at = token * token_stride + index * chosen_stride;
    const int64_t id = wide ? static_cast<const int64_t*>(ids)[at] : static_cast<const int32_t*>(ids)[at];
    return id < 0 || id >= experts ? experts : int(id);
  }
};
// The most experts that a GPU sorts by: it counts in shared memory.
inline constexpr int kMostExperts = 8191;

// Numbers of any floating-point type, read as those in which sums are taken.
struct AnyFloats {
  void* data = nullptr;  // may be null where a function says so
  DType type = DType::f32;
};

// out[t] = the sum of weights[t, j] * y[places[t, j]] over j in order: in float32 (in float64 if that is
// the type), rounded once. Rows of out and all of places and weights are contiguous.
struct CombineRows {
  DType type = DType::f32;  // of y and out
  const void* y = nullptr;
  int64_t row_stride = 0;  // of y
  const int32_t* places = nullptr;
  AnyFloats weights;  // null: 1
  int64_t tokens = 0, columns = 0;
  int chosen = 0;
  void* out = nullptr;
};

// The gradients of CombineRows: of y in row places[t, j], weights[t, j] * grad[t]; of weights[t, j], the sum
// of grad[t] * y[places[t, j]] over the columns. Each is computed if it has an address.
struct CombineGradients {
  CombineRows forward;         // out: the gradient of y, whose rows are contiguous; may be null
  const void* grad = nullptr;  // of the result, with the type of y
  int64_t grad_stride = 0;
  AnyFloats of_weights;  // may be null
};

namespace cpu {
void route_tokens(const RouteTokens&, Context&);
void combine_rows(const CombineRows&, Context&);
void combine_gradients(const CombineGradients&, Context&);
}  // namespace cpu
namespace cuda {  // where the CUDA code was built
void route_tokens(const RouteTokens&, Context&);
void combine_rows(const CombineRows&, Context&);
void combine_gradients(const CombineGradients&, Context&);
}  // namespace cuda
namespace simt {
void route_tokens(const RouteTokens&, Context&);
void combine_rows(const CombineRows&, Context&);
void combine_gradients(const CombineGradients&, Context&);
}  // namespace simt

}  // namespace fastgemm
