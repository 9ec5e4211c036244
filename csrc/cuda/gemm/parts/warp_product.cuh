// A warp's tile of C by mma.sync, from swizzled tiles of lines (parts/line_tile.cuh). A lane computes one
// address for all fragments of a step. ldmatrix transposes an operand that runs along m or n while it loads
// it.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/gemm/parts/mma_pipeline.cuh"

namespace fastgemm::FASTGEMM_TARGET {

enum class Which { a, b };

// Loads fragments by ldmatrix from a lane's address in a tile. One load brings four matrices of 8 x 8: 16
// positions of the side and 32 bytes of k. They come in the order of the registers. For A they are one
// fragment, and follow each other along the side first. For B they are two fragments, and follow each other
// along k first.
template <Which which, class Tile>
class FragmentReader {
 public:
  // `first` is the warp's first position of the side in the tile.
  __device__ __forceinline__ explicit FragmentReader(int first) {
    const int lane = int(threadIdx.x) % 32, low = lane / 8 % 2, high = lane / 16;
    const int side8 = which == Which::a ? low : high, k16 = which == Which::a ? high : low;
    const int line = lane % 8 + 8 * (Tile::kAlongK ? side8 : k16);
    const int unit = (Tile::kAlongK ? k16 : side8) + (Tile::kAlongK ? 0 : first % Tile::kLine / 8);
    const int lines = Tile::kAlongK ? first : first / Tile::kLine * Tile::kK;
    lane_ = Tile::offset(line, unit) + lines * 128;
  }

  // Loads positions [16 i, 16 i + 16) after `first`, in a step of k.
  __device__ __forceinline__ void load(uint32_t (&to)[4], const unsigned char* tile, int i, int step) const {
    constexpr int kPerBox = Tile::kLine / 16;
    const int line = Tile::kAlongK ? 16 * i : i / kPerBox * Tile::kK + 16 * step;
    const int unit = Tile::kAlongK ? 2 * step : 2 * (i % kPerBox);
    load_matrices<4, !Tile::kAlongK>(to, tile + (lane_ ^ unit * 16) + line * 128);
    if constexpr (Tile::kTf32) {  // rounds: the tensor cores would truncate
      FASTGEMM_UNROLL
      for (uint32_t& x : to) x = to_tf32(__uint_as_float(x)).bits;
    }
  }

 private:
  int lane_;
};

// A warp's tile of C.
template <class C, class E, class TileA, class TileB>
struct WarpProduct {
  static constexpr int kSteps = 4, kM = C::WM / 16, kN = C::WN / 8;  // steps per stage, fragments per side
  static constexpr int kFirstLoad = 0, kCopyEvery = kM;              // rows
  static_assert(C::WN % 16 == 0);
  struct Fragments {
    uint32_t a[kM][4], b[kN / 2][4];
  };
  FragmentReader<Which::a, TileA> a;
  FragmentReader<Which::b, TileB> b;
  Accumulator<E> sum[kM][kN][4] = {};

  __device__ __forceinline__ WarpProduct(int row, int column) : a(row), b(column) {}

  // The fragments of a step are loaded in kM parts. Each part loads one fragment of A. The first half of the
  // parts also loads the fragments of B, because all rows need them.
  __device__ __forceinline__ void load(Fragments& f, const unsigned char* stage, int step, int part) const {
    constexpr int kAtOnce = (kN + kM - 1) / kM;
    FASTGEMM_UNROLL
    for (int j = part * kAtOnce; j < (part + 1) * kAtOnce && j < kN / 2; ++j)
      b.load(f.b[j], stage + TileA::kBytes, j, step);
    a.load(f.a[part], stage, part, step);
  }
  __device__ __forceinline__ void multiply(const Fragments& f, int i) {
    FASTGEMM_UNROLL
    for (int step = 0; step < kN; ++step) {
      const int j = i % 2 ? kN - 1 - step : step;  // serpentine order: neighbours share an operand
      mma<E>(sum[i][j], f.a[i], f.b[j / 2][j % 2 * 2], f.b[j / 2][j % 2 * 2 + 1]);
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
