// The parameters of the transpose kernels and the host code that launches them: matrices as bytes, the
// numbering of tiles, and the dispatch of problems that need no tiles.
#pragma once

#include <stdexcept>
#include <string>

#include "core/min_max.h"
#include "core/problem.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// To move elements only their width is needed, not their type. Views begin at multiples of the width.
template <int Size>
struct ElementOf;
template <>
struct ElementOf<1> {
  using type = uint8_t;
};
template <>
struct ElementOf<2> {
  using type = uint16_t;
};
template <>
struct ElementOf<4> {
  using type = uint32_t;
};
template <>
struct ElementOf<8> {
  using type = uint64_t;
};
template <>
struct ElementOf<16> {
  using type = Vector<uint32_t, 4>;
};
template <int Size>
using Element = typename ElementOf<Size>::type;

// dst[j, i] = src[i, j] for one matrix of the batch. Strides between rows and between matrices are in bytes.
struct Transpose {
  const char* src;
  char* dst;
  int64_t rows, cols;  // of src
  int64_t src_stride, dst_stride, src_batch_stride, dst_batch_stride;

  __host__ __device__ __forceinline__ Transpose at_matrix(int64_t index) const {
    Transpose t = *this;
    t.src += index * src_batch_stride;
    t.dst += index * dst_batch_stride;
    return t;
  }
  template <class T>
  __device__ __forceinline__ const T& from(int64_t row, int64_t col) const {
    return *reinterpret_cast<const T*>(src + row * src_stride + col * int64_t(sizeof(T)));
  }
  template <class T>
  __device__ __forceinline__ T& to(int64_t row, int64_t col) const {  // row and column of src
    return *reinterpret_cast<T*>(dst + col * dst_stride + row * int64_t(sizeof(T)));
  }
};

// The tiles of all matrices of a launch are numbered along gridDim.x, because gridDim.y and .z end at 65535.
struct Tiles {
  uint32_t down, across;  // tiles of a matrix
  int step;               // rows of src from a tile to the one below
  uint32_t band;          // tiles that in_bands() goes down before it turns to the next column

  struct Place {
    uint32_t row, col, matrix;
  };
  // Consecutive blocks go along the rows of src.
  __device__ __forceinline__ Place along_rows(uint32_t index) const {
    const uint32_t row = index / across;
    return {row % down, index % across, row / down};
  }
  // Consecutive blocks go down a band of rows, column by column.
  __device__ __forceinline__ Place in_bands(uint32_t index) const {
    const uint32_t matrix = index / (down * across), inside = index % (down * across);
    const uint32_t top = inside / (band * across) * band, height = min(band, down - top);
    const uint32_t rest = inside - top * across;
    return {top + rest % height, rest / height, matrix};
  }
};

// Defined in copy.cu. The transpose of a column-major src is a copy of its columns.
bool is_row_copy(const TransposeProblem&);
void copy_rows(const TransposeProblem&, Context&);

// Defined in flat.cu, for matrices so narrow that tiles would be mostly empty.
bool is_narrow(const TransposeProblem&);
void transpose_flat(const TransposeProblem&, Context&);

template <class Body>
void with_size(DType type, Body&& body) {
  switch (element_size(type)) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
    case 4:
      return body.template operator()<4>();
    case 8:
      return body.template operator()<8>();
    default:
      return body.template operator()<16>();
  }
}

// Whether matrices begin at multiples of an element. complex128 that torch did not allocate may begin at any
// multiple of 8 bytes.
inline bool starts_at_elements(const TransposeProblem& p) {
  return is_aligned(static_cast<const char*>(p.src.data), size_t(element_size(p.type))) &&
         is_aligned(static_cast<const char*>(p.dst.data), size_t(element_size(p.type)));
}

// launch_one.operator()<Size>(const Transpose&, int64_t batch) launches the kernel.
enum class Narrow { tiles, flat };  // what moves narrow matrices
template <Narrow narrow = Narrow::tiles, class Launch>
void run_transpose(const TransposeProblem& p, Context& context, Launch&& launch_one) {
  if (p.batch <= 0 || p.rows <= 0 || p.cols <= 0) return;
  if (is_row_copy(p)) return copy_rows(p, context);
  if (!starts_at_elements(p) || (narrow == Narrow::flat && is_narrow(p))) return transpose_flat(p, context);
  with_size(p.type, [&]<int Size>() {
    launch_one.template operator()<Size>(
        Transpose{static_cast<const char*>(p.src.data), static_cast<char*>(p.dst.data), p.rows, p.cols,
                  p.src.row_stride * Size, p.dst.row_stride * Size, p.src.batch_stride * Size,
                  p.dst.batch_stride * Size},
        p.batch);
  });
}

// The size of tiles in elements of src. A tile overlaps the one above it by `overlap` rows.
struct TileSize {
  int rows, cols, overlap = 0;
};

// Splits the batch into launches of fewer than 2^31 tiles. launch_some(const Transpose& first, Tiles,
// unsigned tiles) makes one launch. Throws std::length_error if a single matrix has more tiles; in tiles of 8
// x 32 that is a matrix of more than 512 G elements.
template <class Launch>
void launch_tiles(const Transpose& t, int64_t batch, const TileSize& size, Launch&& launch_some,
                  uint32_t band = UINT32_MAX) {
  const int step = size.rows - size.overlap;
  const int64_t down = ceil_div(std::max<int64_t>(t.rows - size.rows, 0), step) + 1;
  const int64_t across = ceil_div(t.cols, size.cols);
  if (down * across > INT32_MAX)
    throw std::length_error("fastgemm: a transpose of " + std::to_string(t.rows) + " x " +
                            std::to_string(t.cols) + " takes more blocks than a grid has");
  const int64_t group = INT32_MAX / (down * across);
  for (int64_t first = 0; first < batch; first += group)
    launch_some(t.at_matrix(first),
                Tiles{uint32_t(down), uint32_t(across), step, uint32_t(std::min<int64_t>(band, down))},
                unsigned(down * across * std::min(group, batch - first)));
}

}  // namespace fastgemm::FASTGEMM_TARGET
