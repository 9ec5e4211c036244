#include "cuda/gemm/predict/library.h"

#include <array>
#include <cmath>

#include "cuda/gemm/predict/measured.h"
#include "cuda/gemm/predict/tiles.h"

namespace fastgemm::predict {
namespace {

// The series of a GPU. float32 precisions without a series of their own use that of IEEE products, which are
// the library's slowest.
std::shared_ptr<const Series> series_of(uint64_t gpu, const GemmProblem& p) {
  const auto found = find_series({gpu, std::nullopt, p.type, p.precision});
  return found ? found : find_series({gpu, std::nullopt, p.type, Precision::ieee});
}

// The factor on the library's time for a product with a c, which no measured point has. Adding c makes
// fastgemm's kernels slower, the more the shorter k is, while the library hides it in its epilogue.
double share_with_c(const GemmProblem& p) {
  if (p.beta == 0 || p.batch * p.m * p.n < 1 << 20) return 1;
  return std::exp2(-std::min(0.5, std::log2(1 + 800.0 / double(std::max<int64_t>(p.k, 1)))));
}

double limit_seconds(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const bool tensor = p.type != DType::i32 && (p.type != DType::f32 || p.precision != Precision::ieee);
  const double unit = rate(gpu, tensor ? Unit::tensor : Unit::fma, p.type);
  const double most = std::max(unit, rate(gpu, Unit::fma, p.type)) * gpu.multiprocessors * gpu.clock;
  const double bytes = f.a.bytes + f.b.bytes + f.result_bytes + f.c_bytes;
  return std::max(p.flops() / 2 / most, bytes / gpu.bandwidth);
}

}  // namespace

// The library's kernels have tiles of many sizes and split k. This function considers a few such kernels, and
// returns the counts of the fastest.
Counts count_library(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const bool tensor = p.type != DType::i32 && (p.type != DType::f32 || p.precision == Precision::tf32);
  const double multiply_adds_a_cycle = rate(gpu, tensor ? Unit::tensor : Unit::fma, p.type);
  const int64_t depth = 128 / f.size, most_splits = std::max<int64_t>(ceil_div(f.k, depth) / 8, 1);
  Counts best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [m, n, resident] : {std::array<int64_t, 3>{128, 256, 1}, {128, 128, 1}, {64, 64, 3}}) {
    const int64_t room = gpu.multiprocessors * resident / f.tiles(m, n);
    for (const int64_t splits : {int64_t{1}, std::clamp<int64_t>(room, 1, most_splits)}) {
      const Counts c = count_tiles(f, {m, n, depth, resident, splits}, gpu, multiply_adds_a_cycle);
      const double time = c.waves * 2000 + c.busiest * 1.3 + c.steps * 200 + c.more_launches * 2500 +
                          c.passes * 1.5 + c.read + c.written;
      if (time < least) least = time, best = c;
    }
  }
  return best;
}

Knowledge knowledge_of(const Gpu& gpu) {
  if (has_series(gpu.number)) return Knowledge::tuned;
  // Kernels and library were measured on an H200. Other GPUs of its compute capability differ only in what
  // struct Gpu says.
  return gpu.wgmma ? Knowledge::measured : Knowledge::predicted;
}

double library_seconds(const GemmProblem& p, const Gpu& gpu) {
  auto series = gpu.number ? series_of(gpu.number, p) : nullptr;
  if (!series && gpu.wgmma)
    series = series_of(kShipped, p);  // for types that were not tuned on this GPU, too
  if (!series) return limit_seconds(p, gpu);
  const double correction = series->points.correction(place_of(p));
  return time_of(count_library(p, gpu), series->costs, correction) * share_with_c(p);
}

// In 16 bits an own kernel is taken instead of the library up to kCall behind it. A call of the library takes
// the host some microseconds longer, which short products show if they are not in a CUDA graph. In graphs
// this costs little: chosen / best is 1.016 with it and 1.015 without (check_choices.py --held-out, an H200).
double library_to_beat(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kCall = 0.3e-6;
  const bool is_half = p.type == DType::f16 || p.type == DType::bf16;
  return library_seconds(p, gpu) + (is_half ? kCall : 0);
}

}  // namespace fastgemm::predict
