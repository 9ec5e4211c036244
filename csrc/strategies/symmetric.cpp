// Results that equal their transposes. The lower triangle is computed in blocks (core/triangle.h), each by
// the row that is predicted to be the fastest, and copied to the upper one. This takes half the work of a
// product.
//
// Some rows compute only the tiles of a triangle, in one launch; they may get the blocks on the diagonal. One
// that stores its tiles twice, the second time transposed, needs no copy. In every case the result is exactly
// symmetric.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "core/can_run.h"
#include "core/passes.h"
#include "core/reused_workspace.h"
#include "core/simulator.h"
#include "core/triangle.h"
#include "strategies/strategies.h"

namespace fastgemm::strategies {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// The least size of a block on the diagonal, which is computed as a whole. Smaller blocks waste less work,
// but larger ones are computed faster. On a CPU with AVX-512, a float32 product of 1024 takes a seventh less
// time with 128 than with 256.
constexpr int64_t least_block(Device device) { return device == Device::cpu ? 128 : 1024; }

// The seconds to copy one triangle to the other: half of C is read and the other half written. Every CPU core
// copies faster than 4 GB/s.
double mirror_seconds(const GemmProblem& p, Device device, int threads) {
  constexpr double kBytesASecond = 4e9, kLaunch = 3e-6, kOfBandwidth = 0.75;
  const double bytes = double(p.batch) * double(p.m) * double(p.n) * element_size(p.out_type);
  return device == Device::cpu ? bytes / kBytesASecond / threads
                               : kLaunch + bytes / (kOfBandwidth * current_gpu().bandwidth);
}
// How much longer the last wave of tiles takes if a kernel stores both triangles. It was not measured; the
// value is an upper estimate, so that small products are not given to such a kernel.
constexpr double kSecondStore = 3e-6;

struct Plan {
  const Kernel* on_diagonal = nullptr;  // null: the fastest row computes the whole block
  int64_t least = 0;                    // the least extent of a block on the diagonal (diagonal_block())
  bool mirrors = false;                 // on_diagonal computes all of C at once, and stores both triangles

  Plan(const GemmProblem& p, const Kernel* row, int64_t least_extent)
      : on_diagonal(row), least(least_extent) {
    if (!row || !row->mirrors || diagonal_block(p.m, least) != p.m) return;
    GemmProblem whole = p;
    whole.triangle = p.symmetry.parts;
    mirrors = row->mirrors(whole);
  }

  // Calls body(pick, block) for each block.
  template <class Body>
  void for_each(const GemmProblem& p, Device device, int threads, const Body& body) const {
    for_each_block(p, least, [&](GemmProblem block, bool is_diagonal) {
      if (!is_diagonal || !on_diagonal) return body(fastest(block, device, threads), block);
      block.triangle = p.symmetry.parts;
      body(Pick{on_diagonal, predicted(*on_diagonal, block)}, block);
    });
  }
  double seconds(const GemmProblem& p, Device device, int threads) const {
    double sum = mirrors ? kSecondStore : mirror_seconds(p, device, threads);
    for_each(p, device, threads,
             [&](const Pick& pick, const auto&) { sum += pick.row ? pick.seconds : kUnknown; });
    return sum;
  }
};

// The `least` with which diagonal_block() cuts n into 2^i blocks of at most `most`.
int64_t least_for(int64_t n, int64_t most) {
  int64_t blocks = 1;
  while ((n + blocks - 1) / blocks > most) blocks *= 2;
  return std::max<int64_t>(n / blocks, 1);
}

// The plan of the smallest predicted time.
Plan plan_for(const GemmProblem& p, Device device, int threads) {
  Plan best(p, nullptr, least_block(device));
  double least = -1;  // of `best`, if it is needed
  find_row(kernels_for(device), device, [&](const Kernel& k) {
    if (!k.most_of_triangle || !contains(k.dtypes, p.type) || !can_run(k, p)) return false;
    const int64_t most = k.most_of_triangle(p, current_gpu());
    if (most == 0) return false;
    if (least < 0) least = best.seconds(p, device, threads);
    const Plan plan(p, &k, least_for(p.m, most));
    if (const double seconds = plan.seconds(p, device, threads); seconds < least)
      best = plan, least = seconds;
    return false;
  });
  return best;
}

}  // namespace

double symmetric_seconds(const GemmProblem& p, Device device, int threads) {
  if (!p.symmetry.known || p.m == 0 || p.k == 0) return kUnknown;
  return plan_for(p, device, threads).seconds(p, device, threads);
}

void gemm_symmetric(const GemmProblem& p, Device device, Context& context) {
  if (p.batch * p.m == 0) return;
  const int threads = device == Device::cpu ? context.threads() : 0;
  if (p.k == 0) {  // the result is beta * c
    fastest(p, device, threads).row->gemm(p, context);
    return passes_of(device).mirror(Mirror::of(p), context);
  }
  const Plan plan = plan_for(p, device, threads);
  ReusedWorkspace workspace(context, p.c.data != p.out.data);
  plan.for_each(p, device, threads, [&](const Pick& pick, const GemmProblem& block) {
    if (workspace.stopped()) return;
    if (!pick.row) throw std::runtime_error("fastgemm: no kernel can compute a part of this product");
    workspace.begin_again();
    pick.row->gemm(block, workspace);
  });
  if (!plan.mirrors) passes_of(device).mirror(Mirror::of(p), context);
}

}  // namespace fastgemm::strategies
