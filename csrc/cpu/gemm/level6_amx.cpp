// Level 6 for bfloat16 and int8, dedicated units: the tile registers of AMX.
//
// A dot-product instruction does 32 or 64 multiply-adds. One tile instruction does 16 x 16 times as many
// (16384 in int8) in 16 cycles. In bfloat16 that is 16 times the rate of level 5's fma, in int8 8 times that
// of VNNI. It multiplies tiles of 16 rows by 64 bytes. C has 2 x 2 tiles, A two and B two, which are all
// eight tile registers: four products need four tile loads. In int8 the product is signed, so no offset is
// needed.
#include "cpu/gemm/amx_engine.h"
#include "cpu/gemm/dot_packing.h"
#include "cpu/gemm/levels.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

// A k-step is 64 bytes of k, the width of a tile.
//   A panel: steps of (32 rows, 16 units); a tile is 16 whole rows.
//   B panel: steps of (16 units, 32 columns), as for the dot products; a tile is every second 64 bytes.
template <class Packing>
struct AmxTraits : PanelTraits<Packing, 2 * kTileRows, 2 * kTileRows> {
  using Base = PanelTraits<Packing, 2 * kTileRows, 2 * kTileRows>;
  using Element = typename Packing::Element;
  using Unit = typename Packing::Unit;
  static constexpr int kUnits = kTileBytes / sizeof(Unit);
  static constexpr int kMR = Base::kMR, kNR = Base::kNR;
  static constexpr int kGroup = kUnits * Packing::kGroup;
  // Four products take 64 cycles. Four tile loads take 36 cycles from L1 and 80 from L2. So a micro-panel of
  // B (32 KiB) must stay in L1, which has 48 KiB in every processor with AMX, and only A may come from L2.
  static constexpr int kKC = 16 * kGroup;

  static int64_t panel_units_a(int64_t k) { return ceil_div(k, kGroup) * kMR * kUnits; }
  static int64_t panel_units_b(int64_t k) { return ceil_div(k, kGroup) * kNR * kUnits; }

  static void pack_a(Unit* panel, const Element* a, int64_t rs, int64_t ks, int64_t rows, int64_t k) {
    const int count = static_cast<int>(min<int64_t>(kMR, rows));
    for (int64_t kk = 0; kk < k; kk += kGroup, panel += kMR * kUnits) {
      const int64_t depth = min<int64_t>(kGroup, k - kk);
      if (ks == 1) {
        copy_rows(panel, a + kk, rs, count, depth);
      } else {
        for (int i = 0; i < kMR; i += kTileRows)
          transpose_rows(panel + i * kUnits, a + i * rs + kk * ks, rs, ks, count - i, depth);
      }
    }
  }
  static void pack_b(Unit* panel, const Element* b, int64_t cs, int64_t ks, int64_t cols, int64_t k) {
    pack_panel<Packing, kNR>(panel, b, cs, ks, cols, k);
    for (int64_t u = ceil_div(k, Packing::kGroup) * kNR; u < panel_units_b(k); ++u) panel[u] = 0;
  }

  // Calls between(step) at each k-step. Its work costs no time while the tile unit is busy.
  template <class Between>
  static FASTGEMM_INLINE void micro_kernel(const AmxTile<AmxTraits>& t, Between&& between) {
    constexpr int half_c = kTileRows, half_b = kUnits, half_a = kTileRows * kUnits;
    constexpr int64_t stride_c = kNR * sizeof(*t.to);
    if (t.from) {
      load_tile<0>(t.from, stride_c);
      load_tile<1>(t.from + half_c, stride_c);
      load_tile<2>(t.from + half_c * kNR, stride_c);
      load_tile<3>(t.from + half_c * kNR + half_c, stride_c);
    } else {
      zero_tile<0>();
      zero_tile<1>();
      zero_tile<2>();
      zero_tile<3>();
    }
    const Unit* a = t.a;
    const Unit* b = t.b;
    for (int64_t step = 0; step < t.steps; ++step, a += kMR * kUnits, b += kNR * kUnits) {
      load_tile_once<4>(a, kTileBytes);
      load_tile<6>(b, 2 * kTileBytes);
      multiply_tiles<0, 4, 6, Element>();
      load_tile<7>(b + half_b, 2 * kTileBytes);
      multiply_tiles<1, 4, 7, Element>();
      load_tile_once<5>(a + half_a, kTileBytes);
      multiply_tiles<2, 5, 6, Element>();
      multiply_tiles<3, 5, 7, Element>();
      between(step);
    }
    store_tile_register<0>(t.to, stride_c);
    store_tile_register<1>(t.to + half_c, stride_c);
    store_tile_register<2>(t.to + half_c * kNR, stride_c);
    store_tile_register<3>(t.to + half_c * kNR + half_c, stride_c);
  }

  static void enter() { configure_tiles(); }
  static void leave() { release_tiles(); }

 private:
  // Packs one k-step of A if its rows are contiguous in k.
  static void copy_rows(Unit* panel, const Element* a, int64_t rs, int count, int64_t depth) {
    for (int i = 0; i < kMR; ++i, panel += kUnits) {
      if (i < count && depth == kGroup) {
        __builtin_memcpy(panel, a + i * rs, kTileBytes);
        continue;
      }
      __builtin_memset(panel, 0, kTileBytes);
      if (i < count) __builtin_memcpy(panel, a + i * rs, depth * sizeof(Element));
    }
  }

  // Packs one tile of A with any other strides: unit by unit, then by a transposition.
  static void transpose_rows(Unit* panel, const Element* a, int64_t rs, int64_t ks, int64_t rows,
                             int64_t depth) {
    alignas(64) Unit units[kUnits * kTileRows] = {};
    if (rows > 0) pack_panel<Packing, kTileRows>(units, a, rs, ks, rows, depth);
    constexpr int N = kLanes<Unit>;
    for (int i = 0; i < kTileRows; i += N)
      for (int u = 0; u < kUnits; u += N) {
        Vector<Unit> block[N];
        for (int v = 0; v < N; ++v) block[v] = load<Vector<Unit>>(units + (u + v) * kTileRows + i);
        transpose(block);
        for (int v = 0; v < N; ++v) store(panel + (i + v) * kUnits + u, block[v]);
      }
  }
};

}  // namespace

template <class Packing, class Out>
struct EngineOf<AmxTraits<Packing>, Out> {
  using Type = AmxEngine<AmxTraits<Packing>, Out>;
};

}  // namespace fastgemm::FASTGEMM_ISA

namespace fastgemm {
void gemm_amx_bf16(const GemmProblem& p, Context& ctx) {
  FASTGEMM_ISA::run_engine<FASTGEMM_ISA::AmxTraits<FASTGEMM_ISA::BFloat16Pairs>>(p, ctx);
}
void gemm_amx_int8(const GemmProblem& p, Context& ctx) {
  FASTGEMM_ISA::run_engine<FASTGEMM_ISA::AmxTraits<FASTGEMM_ISA::Int8Quads<0>>>(p, ctx);
}
}  // namespace fastgemm
