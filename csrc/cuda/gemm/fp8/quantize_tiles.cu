// Numbers as codes of 8 bits with scales (core/fp8.h), by tiles of 128 x 128 numbers, which a block of
// threads holds in registers. So the codes of the transposed matrix, which have other scales, need no second
// reading, and a block of 128 x 128 numbers is read once.
//
// A thread has 8 x 8 numbers. Their largest moduli, by row and by column, meet in shared memory, where
// threads find the divisor of each part of a row or column. Then all threads round. Codes of the transposed
// matrix pass through shared memory, so that stores are as wide as those of the others; they may be the only
// ones. If a block of numbers is larger than a tile (a row, a column, all), kernels before this one find the
// largest modulus of each.
#include <algorithm>

#include "cuda/device/launch.cuh"
#include "cuda/gemm/fp8/quantize_scales.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kMostPartials = 1024;  // which each tile reads

template <class T, Source source>
struct Tile {
  static constexpr int kTogether = source == Source::gated && sizeof(T) == 4 ? 2 : 4;  // loads under way

  int64_t top, left;  // of the tile
  int row, column;    // of this thread's numbers inside of it
  int rows, cols;     // of these numbers, inside of x
  Run<T, source> run[kEach];
  uint32_t largest[kEach];

  __device__ __forceinline__ Tile(const QuantizeFp8& g, uint32_t index, uint32_t across, bool vectors) {
    const uint32_t down = index / across;
    top = int64_t(down) * kTile, left = int64_t(index - down * across) * kTile;
    row = int(threadIdx.x) / kAcross * kEach, column = int(threadIdx.x) % kAcross * kEach;
    rows = int(min(int64_t(kEach), g.rows - top - row));
    cols = int(min(int64_t(kEach), g.cols - left - column));
    vectors ? load<Form::lines>(g) : load<Form::any>(g);
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) largest[i] = run[i].largest();
  }
  template <Form form>
  __device__ __forceinline__ void load(const QuantizeFp8& g) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; i += kTogether)
      load_runs<kTogether, form>(
          run + i, g, [&](int j) { return has_row(i + j); }, [&](int j) { return place(i + j); });
  }
  __device__ __forceinline__ bool has_row(int i) const { return i < rows && cols > 0; }
  __device__ __forceinline__ Place place(int i) const { return {top + row + i, left + column, cols}; }
  __device__ __forceinline__ uint32_t largest_of_all() const {
    uint32_t bits = 0;
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) bits = max(bits, largest[i]);
    return bits;
  }
  // The largest moduli of the parts of rows. Neighbouring threads have one part.
  __device__ __forceinline__ void find_rows(Parts<uint32_t>& found) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const uint32_t bits = largest_of_team<kPart / kEach>(largest[i]);
      if (column % kPart == 0) found.of[column / kPart][row + i] = bits;
    }
  }
  // The same of columns. A warp has 16 rows, so two warps share a part.
  __device__ __forceinline__ void find_columns(uint32_t (&warps)[kWarps][kTile], Parts<uint32_t>& found) {
    using R = Run<T, source>;
    uint32_t words[R::kWords] = {};
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) run[i].add_moduli(words);
    FASTGEMM_UNROLL
    for (int j = 0; j < R::kWords; ++j) {
      const uint32_t word = R::larger(words[j], __shfl_xor_sync(0xffffffffu, words[j], kAcross));
      if (threadIdx.x % 32 >= kAcross) continue;
      FASTGEMM_UNROLL
      for (int i = 0; i < R::kOfAWord; ++i)
        warps[threadIdx.x / 32][column + j * R::kOfAWord + i] = R::modulus_of(word, i);
    }
    __syncthreads();
    for (int i = int(threadIdx.x); i < kParts * kTile; i += kThreads) {
      const int part = i / kTile, line = i % kTile;
      found.of[part][line] = max(warps[2 * part][line], warps[2 * part + 1][line]);
    }
  }
};

// Stores the codes of a thread's rows. If not quickly, it reads x again, so that this code, which is rarely
// run, is short.
template <Fp8 code, class T, Source source>
__device__ __forceinline__ void round_rows(const QuantizeFp8& g, Tile<T, source>& tile,
                                           const EightDivisors& by, const Divisors& all, int part,
                                           bool quickly, bool vectors) {
  const auto store = [&]<Form form>() {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i)
      if (tile.has_row(i)) tile.run[i].template store<code, true, form>(g, tile.place(i), by[i]);
  };
  if (quickly)
    return vectors ? store.template operator()<Form::lines>() : store.template operator()<Form::any>();
  FASTGEMM_NO_UNROLL
  for (int i = 0; tile.has_row(i); ++i) {
    Run<T, source> run;
    const Place place = tile.place(i);
    load_runs<1, Form::any>(&run, g, [](int) { return true; }, [&](int) { return place; });
    run.template store<code, false, Form::any>(g, place, Divisor(all.scale.of[part][tile.row + i]));
  }
}

struct alignas(16) TransposedCodes {
  RunOfCodes of[kTile][kAcross];  // columns, and runs of rows; a run lies at an index that spreads banks
};
__device__ __forceinline__ RunOfCodes& run_of(TransposedCodes& codes, int column, int run) {
  return codes.of[column][run ^ (column / kEach)];
}

// The codes of a thread's columns, in shared memory. If not quickly, it reads x again.
template <Fp8 code, class T>
__device__ __forceinline__ void round_columns(const QuantizeFp8& g, Tile<T, Source::x>& tile,
                                              const EightDivisors& by, const Divisors& all, int part,
                                              bool quickly, TransposedCodes& to) {
  if (quickly) {
    FASTGEMM_UNROLL
    for (int j = 0; j < kEach; ++j) {
      RunOfCodes codes{};
      FASTGEMM_UNROLL
      for (int i = 0; i < kEach; i += 2)
        codes[i / 4] |= codes_of<code, true>(tile.run[i].at(j), tile.run[i + 1].at(j), by[j]) << (i % 4 * 8);
      run_of(to, tile.column + j, tile.row / kEach) = codes;
    }
    return;
  }
  FASTGEMM_NO_UNROLL
  for (int j = 0; j < tile.cols; ++j) {
    RunOfCodes codes{};
    FASTGEMM_NO_UNROLL
    for (int i = tile.rows - 1; i >= 0; --i) {
      const Place p = tile.place(i);
      const float x = widen(static_cast<const T*>(g.x)[p.row * g.row_stride + p.column + j]);
      codes[1] = codes[1] << 8 | codes[0] >> 24;
      codes[0] = codes[0] << 8 | fp8::quantized<code>(x, all.scale.of[part][tile.column + j]);
    }
    run_of(to, tile.column + j, tile.row / kEach) = codes;
  }
}

// What a block of threads shares while it rounds its tile.
struct OfLines {
  Parts<uint32_t> found;
  Divisors divisors;
};
struct OfColumns {
  uint32_t warps[kWarps][kTile];
  TransposedCodes codes;
};

// Both directions need more than the registers of three blocks on sm_120.
template <class T, Source source, bool transposed>
constexpr int kBlocksAnSM = source == Source::x && sizeof(T) == 2 && (FASTGEMM_SM90A || !transposed) ? 3 : 2;

// Rounds a tile. `all`: `count` numbers, whose largest is that of x, if it has one scale.
template <Fp8 code, class T, Source source, bool transposed>
__global__ void __launch_bounds__(kThreads, kBlocksAnSM<T, source, transposed>)
    quantize_tiles_kernel(const __grid_constant__ QuantizeFp8 g, const __grid_constant__ Side of_rows,
                          const __grid_constant__ Side of_columns, uint32_t across, bool vectors,
                          const uint32_t* all, int count) {
  FASTGEMM_SHARED OfLines lines;
  Tile<T, source> tile(g, blockIdx.x, across, vectors);
  const uint32_t own = tile.largest_of_all();
  uint32_t bits = own;
  if (all != nullptr) {
    bits = 0;
    for (int i = int(threadIdx.x); i < count; i += kThreads) bits = max(bits, all[i]);
  }
  if (of_rows.is_one_block() || of_columns.is_one_block()) bits = largest_of_team<kThreads>(bits);
  if (!transposed || g.codes != nullptr) {
    tile.find_rows(lines.found);
    __syncthreads();
    find_divisors<code>(g, of_rows, tile.top, tile.left, bits, lines.found, lines.divisors);
    __syncthreads();
    const int part = of_rows.part_of(tile.column);
    const EightDivisors by(lines.divisors, part, tile.row);
    round_rows<code>(g, tile, by, lines.divisors, part, by.exact() && own <= kModerate, vectors);
  }
  if constexpr (transposed) {
    FASTGEMM_SHARED OfColumns columns;
    tile.find_columns(columns.warps, lines.found);
    __syncthreads();
    find_divisors<code>(g, of_columns, tile.left, tile.top, bits, lines.found, lines.divisors);
    __syncthreads();
    const int part = of_columns.part_of(tile.row);
    const EightDivisors by(lines.divisors, part, tile.column);
    round_columns<code>(g, tile, by, lines.divisors, part, by.exact() && own <= kModerate, columns.codes);
    __syncthreads();
    for (int i = int(threadIdx.x); i < kTile * kAcross; i += kThreads) {
      const int64_t column = tile.left + i / kAcross, row = tile.top + i % kAcross * kEach;
      if (column < g.cols && row < g.rows)
        store_codes(static_cast<uint8_t*>(g.codes_t) + column * g.rows + row,
                    run_of(columns.codes, i / kAcross, i % kAcross), int(min(int64_t(kEach), g.rows - row)));
    }
  }
}

// The largest modulus of what each block of threads reads, or of each tile's rows and columns, if asked for:
// these have a number for each line and tile, lines first.
template <class T, Source source, bool by_lines>
__global__ void __launch_bounds__(kThreads)
    largest_kernel(const __grid_constant__ QuantizeFp8 g, uint32_t tiles, uint32_t across, bool vectors,
                   uint32_t* rows, uint32_t* columns, uint32_t* all) {
  uint32_t bits = 0;
  for (uint32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    Tile<T, source> tile(g, index, across, vectors);
    bits = max(bits, tile.largest_of_all());
    if constexpr (by_lines) {
      FASTGEMM_SHARED Parts<uint32_t> of_rows, of_columns;
      FASTGEMM_SHARED uint32_t warps[kWarps][kTile];
      tile.find_rows(of_rows);
      tile.find_columns(warps, of_columns);
      __syncthreads();
      const int line = int(threadIdx.x) % kTile;
      if (rows != nullptr && threadIdx.x < kTile && tile.top + line < g.rows)
        rows[index % across * g.rows + tile.top + line] = largest_of_line(of_rows, line);
      if (columns != nullptr && threadIdx.x >= kTile && tile.left + line < g.cols)
        columns[index / across * g.cols + tile.left + line] = largest_of_line(of_columns, line);
      __syncthreads();
    }
  }
  if constexpr (!by_lines) {
    bits = largest_of_team<kThreads>(bits);
    if (threadIdx.x == 0) all[blockIdx.x] = bits;
  }
}

// The largest of `parts` numbers of each line. A warp reads neighbouring lines, and each warp some of the
// parts.
__global__ void __launch_bounds__(kThreads)
    join_largest_kernel(const uint32_t* found, int64_t lines, int64_t parts, uint32_t* largest) {
  FASTGEMM_SHARED uint32_t warps[kWarps][32];
  const int64_t line = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
  uint32_t bits = 0;
  for (int64_t i = threadIdx.x / 32; i < parts && line < lines; i += kWarps)
    bits = max(bits, found[i * lines + line]);
  warps[threadIdx.x / 32][threadIdx.x % 32] = bits;
  __syncthreads();
  if (threadIdx.x >= 32 || line >= lines) return;
  for (int i = 0; i < kWarps; ++i) bits = max(bits, warps[i][threadIdx.x]);
  largest[line] = bits;
}

uint32_t* numbers(Context& context, int64_t count) {
  return static_cast<uint32_t*>(context.allocate(size_t(count) * sizeof(uint32_t)));
}

template <Fp8 code, class T, Source source, bool transposed>
void launch_tiles(const QuantizeFp8& g, Context& context) {
  const int64_t across = ceil_div(g.cols, kTile), down = ceil_div(g.rows, kTile), tiles = across * down;
  Side rows(g), columns(g.transposed(nullptr));
  const dim3 block(kThreads);
  const bool vectors = is_in_vectors<T>(g);
  uint32_t* all = nullptr;
  int count = 0;
  const bool one_scale = transposed ? rows.is_all() || columns.is_all() : rows.is_all();
  if (one_scale && tiles > 1 && !g.scale_is_given) {
    count = int(std::min<int64_t>(tiles, kMostPartials)), all = numbers(context, count);
    launch<largest_kernel<T, source, false>>("largest", {dim3(unsigned(count)), block}, context)(
        g, uint32_t(tiles), uint32_t(across), vectors, nullptr, nullptr, all);
  }
  if constexpr (transposed) {
    const bool long_rows = rows.has_long_lines() && g.codes != nullptr;
    if (long_rows || columns.has_long_lines()) {
      uint32_t* const of_rows = long_rows ? numbers(context, across * g.rows) : nullptr;
      uint32_t* const of_columns = columns.has_long_lines() ? numbers(context, down * g.cols) : nullptr;
      launch<largest_kernel<T, source, true>>("largest_of_lines", {dim3(unsigned(tiles)), block}, context)(
          g, uint32_t(tiles), uint32_t(across), vectors, of_rows, of_columns, nullptr);
      const auto join = [&](const uint32_t* found, int64_t lines, int64_t parts) {
        uint32_t* const largest = numbers(context, lines);
        launch<join_largest_kernel>("join_largest", {dim3(unsigned(ceil_div(lines, 32))), block}, context)(
            found, lines, parts, largest);
        return largest;
      };
      if (of_rows != nullptr) rows.largest = join(of_rows, g.rows, across);
      if (of_columns != nullptr) columns.largest = join(of_columns, g.cols, down);
    }
  }
  launch<quantize_tiles_kernel<code, T, source, transposed>>(
      "quantize_fp8", {dim3(unsigned(tiles)), block}, context)(g, rows, columns, uint32_t(across), vectors,
                                                               all, count);
}

}  // namespace

bool is_for_tiles(const QuantizeFp8& g) {
  if (g.codes_t != nullptr || (g.block_rows == kTile && g.block_cols == kTile)) return true;
  // One kernel of a team instead of two, for a row that it reads quickly.
  if (g.has_one_scale()) return g.rows > 1 || g.scale_is_given || g.cols > (1 << 16);
  // Otherwise teams are faster for few rows, whose tiles would leave most threads without work, and with an
  // activation, which needs more registers.
  return g.as_it_is() && g.rows >= kTile && g.block_rows == 1 &&
         (g.block_cols == kPart || g.block_cols == kTile);
}

void quantize_tiles(const QuantizeFp8& g, Context& context) {
  with_code_and_element(g, [&]<Fp8 code, class T>() {
    if (g.codes_t != nullptr) return launch_tiles<code, T, Source::x, true>(g, context);
    if (g.as_it_is()) return launch_tiles<code, T, Source::x, false>(g, context);
    g.gated ? launch_tiles<code, T, Source::gated, false>(g, context)
            : launch_tiles<code, T, Source::activated, false>(g, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
