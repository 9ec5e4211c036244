// Numbers as codes of 8 bits with scales (core/fp8.h). A team of threads has one block of numbers, which
// shares a scale: it reads the block into registers, finds the largest modulus, and rounds. Where an
// activation or a residual comes before the codes, a thread computes it from what it has read, so the numbers
// themselves are never stored. What is_for_tiles() takes is rounded by tiles (fp8/quantize_tiles.cu).
#include <stdexcept>
#include <string>

#include "cuda/device/launch.cuh"
#include "cuda/gemm/fp8/quantize_runs.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Blocks of a multiprocessor: enough for some to read while others compute. Without an instruction that makes
// codes, they need more registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kResident = 3;
#else
constexpr int kResident = 4;
#endif
// Activations have registers of their own, and the code of Blackwell a few more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ > 900
constexpr int kResidentActivated = 2;
#else
constexpr int kResidentActivated = 3;
#endif

template <Form form, Source source, int RUNS>
inline constexpr int kResidentBlocks =
    source == Source::x ? kResident : kResidentActivated - (form == Form::any || RUNS > 4);

// Each team has one block of x and its scale. A thread holds RUNS runs at a time. Only teams of kThreads get
// blocks that have more, of which all but the last runs are read a second time, from the cache.
template <Fp8 code, class T, Form form, Source source, int TEAM, int RUNS>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<form, source, RUNS>)
    quantize_blocks_kernel(const __grid_constant__ QuantizeFp8 g, uint32_t blocks, uint32_t across) {
  const uint32_t index = blockIdx.x * (kThreads / TEAM) + threadIdx.x / TEAM;
  const uint32_t member = threadIdx.x % TEAM;
  const bool inside = index < blocks;
  const Rectangle r = block_of(g, inside ? index : 0, across);
  const uint32_t runs = inside ? uint32_t(r.runs()) : 0;
  Run<T, source> run[RUNS];
  constexpr bool kLoops = TEAM == kThreads;
  const auto load = [&](uint32_t first) {
    // Runs whose loads are under way at the same time: as many as registers allow.
    constexpr int kMost = source == Source::gated && sizeof(T) == 4 ? 2 : 4;
    constexpr int kTogether = RUNS < kMost ? RUNS : kMost;
    FASTGEMM_UNROLL
    for (int i = 0; i < RUNS; i += kTogether)
      load_runs<kTogether, form>(
          run + i, g, [&](int j) { return first + (i + j) * TEAM + member < runs; },
          [&](int j) { return place_of<form>(r, first + (i + j) * TEAM + member); });
  };
  uint32_t bits = 0;
  uint32_t first = 0;
  for (;;) {
    load(first);
    FASTGEMM_UNROLL
    for (int i = 0; i < RUNS; ++i) bits = max(bits, run[i].largest());
    if (!kLoops || first + RUNS * TEAM >= runs) break;
    first += RUNS * TEAM;
  }
  bits = largest_of_team<TEAM>(bits);
  // The scale as it is stored, so that codes are those of what a reader sees.
  const Divisor by(fp8::scale_of<code>(bits, g.scale));
  if (inside && member == 0) fp8::store_scale(g.scale, g.scales, index, by.scale);
  if (!by.exact || bits > kModerate) {
    FASTGEMM_NO_UNROLL
    for (uint32_t at = member; at < runs; at += TEAM) {
      const Place place = place_of<form>(r, at);
      load_runs<1, form>(run, g, [](int) { return true; }, [&](int) { return place; });
      run[0].template store<code, false, form>(g, place, by);
    }
    return;
  }
  for (;;) {
    FASTGEMM_UNROLL
    for (int i = 0; i < RUNS; ++i) {
      const uint32_t at = first + i * TEAM + member;
      if (at < runs) run[i].template store<code, true, form>(g, place_of<form>(r, at), by);
    }
    if (!kLoops || first == 0) break;
    first -= RUNS * TEAM;
    load(first);
  }
}

template <Fp8 code, class T, Source source>
void quantize(const QuantizeFp8& g, Context& context) {
  const int64_t blocks = g.scale_rows() * g.scale_cols();
  if (blocks > int64_t{UINT32_MAX})
    throw std::length_error("fastgemm: quantize_fp8 takes at most 2^32 - 1 blocks on a GPU, not " +
                            std::to_string(blocks));
  const auto run = [&]<Form form, int TEAM, int RUNS>() {
    const LaunchShape shape{dim3(unsigned(ceil_div(blocks, kThreads / TEAM))), dim3(kThreads)};
    launch<quantize_blocks_kernel<code, T, form, source, TEAM, RUNS>>("quantize_fp8", shape, context)(
        g, uint32_t(blocks), uint32_t(g.scale_cols()));
  };
  const int64_t runs = g.block_rows * ceil_div(std::min(g.block_cols, g.cols), kEach);
  const bool lines =
      g.block_rows == 1 && (g.block_cols % kEach == 0 || g.block_cols >= g.cols) && is_in_vectors<T>(g);
  if (!lines)
    return runs <= 128 ? run.template operator()<Form::any, 32, 4>()
                       : run.template operator()<Form::any, kThreads, 4>();
  if (runs <= 16) return run.template operator()<Form::lines, 4, 4>();
  if (runs <= 128) return run.template operator()<Form::lines, 32, 4>();
  // What is read again is two halves of a line, so more of it stays in registers.
  if constexpr (source == Source::gated)
    if (runs > kThreads * 4) return run.template operator()<Form::lines, kThreads, 8>();
  run.template operator()<Form::lines, kThreads, 4>();
}

}  // namespace

void run_quantize_fp8(const QuantizeFp8& g, Context& context) {
  if (g.rows <= 0 || g.cols <= 0) return;
  if (is_for_tiles(g)) return quantize_tiles(g, context);
  with_code_and_element(g, [&]<Fp8 code, class T>() {
    if (g.as_it_is()) return quantize<code, T, Source::x>(g, context);
    g.gated ? quantize<code, T, Source::gated>(g, context) : quantize<code, T, Source::activated>(g, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
