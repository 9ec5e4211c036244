// float32 matrices as three planes of bfloat16, x = p0 + p1 + p2, for products of groups. Contract:
// cut_planes() writes the planes of a matrix, or of one for each group, with k along rows. PlanesOrigin loads
// stages of pairs of planes, for the producer of a persistent kernel (parts/schedules/groups.cuh).
//
//   stages of a tile   k 0..63: p2 p0 | p1 p1 | p0 p2 | p1 p0 | p0 p1 | p0 p0 || k 64..127: p2 p0 | ...
//
// The six pairs whose products are not smaller than 2^-24 of the largest are multiplied; the kernel adds the
// products of each stage to float32 sums.
#pragma once

#include "cuda/gemm/parts/schedules/groups.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kPlanes = 3, kPlanePairs = 6;

struct PlanesOrigin {
  RowsOrigin rows;
  int groups, lines;  // between planes of X, in matrices, and of Y, in rows

  template <class X, class Y>
  __device__ __forceinline__ int bytes() const {
    return rows.bytes<X, Y>();
  }
  template <class X, class Y>
  __device__ __forceinline__ void load(unsigned char* to, const TensorMap* of_x, const TensorMap* of_y,
                                       Barrier* full, int step) const {
    constexpr unsigned kOfX = 0x001012, kOfY = 0x010210;  // a digit for each pair, the last one first
    const int stage = step / kPlanePairs, pair = step % kPlanePairs;
    RowsOrigin at = rows;
    at.group += int(kOfX >> 4 * pair & 15) * groups, at.y += int(kOfY >> 4 * pair & 15) * lines;
    at.load<X, Y>(to, of_x, of_y, full, stage);
  }
};

// RowGroups whose operands are planes.
template <class S, class T>
struct PlaneGroups : RowGroups<S, T> {
  __device__ __forceinline__ PlanesOrigin origin(const BoxMaps& maps, const Part& part) const {
    return {RowGroups<S, T>::origin(maps, part), this->g.groups, this->g.size};
  }
};

struct CutArguments {
  const float* from;
  int64_t row_stride, k_stride, batch_stride;
  BFloat16* to;  // [plane][matrix][row][pitch]
  int64_t pitch, matrix, plane;
  int rows, k;
  const int32_t* ends;  // matrices of groups without rows are not cut; may be null
  int size;             // the rows of all groups
};

// Tiles of 32 rows and 128 values of k go through shared memory, so that operands are read, and planes
// written, along their rows in memory.
inline constexpr int kCutRows = 32, kCutK = 128;

inline __global__ void __launch_bounds__(256) cut_planes_kernel(const __grid_constant__ CutArguments g) {
  FASTGEMM_SHARED float tile[kCutRows][kCutK + 1];
  const int matrix = int(blockIdx.z), first_k = int(blockIdx.x) * kCutK;
  if (g.ends != nullptr && GroupRange::of(g.ends, matrix, g.size).size() == 0) return;
  const float* const from = g.from + matrix * g.batch_stride;
  const bool along_k = g.k_stride == 1;
  for (int first = int(blockIdx.y) * kCutRows; first < g.rows; first += int(gridDim.y) * kCutRows) {
    FASTGEMM_UNROLL
    for (int i = int(threadIdx.x); i < kCutRows * kCutK; i += 256) {
      const int row = along_k ? i / kCutK : i % kCutRows, k = along_k ? i % kCutK : i / kCutRows;
      const bool inside = first + row < g.rows && first_k + k < g.k;
      tile[row][k] = inside ? from[(first + row) * g.row_stride + (first_k + k) * g.k_stride] : 0.0f;
    }
    __syncthreads();
    FASTGEMM_UNROLL
    for (int i = int(threadIdx.x) * 8; i < kCutRows * kCutK; i += 256 * 8) {
      const int row = first + i / kCutK, k = i % kCutK;
      if (row >= g.rows || first_k + k >= g.pitch) continue;
      Vector<BFloat16, 8> planes[kPlanes];
      FASTGEMM_UNROLL
      for (int e = 0; e < 8; ++e) {
        float rest = tile[i / kCutK][k + e];
        FASTGEMM_UNROLL
        for (int p = 0; p < kPlanes; ++p) {
          planes[p][e] = round_to<BFloat16>(rest);
          rest -= widen(planes[p][e]);
        }
      }
      FASTGEMM_UNROLL
      for (int p = 0; p < kPlanes; ++p)
        store_vector(g.to + p * g.plane + matrix * g.matrix + row * g.pitch + first_k + k, planes[p]);
    }
    __syncthreads();
  }
}

// The planes of `batch` matrices (rows, k), as bytes that the TMA reads: matrices of a batch, or those of a
// single matrix below each other.
class GroupPlanes {
 public:
  BFloat16* data;
  int64_t rows, k, pitch;
  int batch;

  static int64_t pitch_of(int64_t k) { return ceil_div(k, int64_t{8}) * 8; }
  static int64_t bytes(int64_t rows, int64_t k, int64_t batch) {
    return kPlanes * batch * rows * pitch_of(k) * int64_t{sizeof(BFloat16)};
  }
  BoxOperand<int8_t> matrices() const { return boxes(rows, 2 * pitch * rows, kPlanes * batch); }
  BoxOperand<int8_t> below_each_other() const { return boxes(kPlanes * rows, 0, 1); }

 private:
  BoxOperand<int8_t> boxes(int64_t lines, int64_t stride, int count) const {
    return {reinterpret_cast<const int8_t*>(data), Major::k, lines, 2 * k, 2 * pitch, stride, count};
  }
};

inline GroupPlanes cut_planes(const ConstMatrix& m, int64_t rows, int64_t k, int batch, BFloat16* to,
                              const int32_t* ends, int size, Context& context) {
  const int64_t pitch = GroupPlanes::pitch_of(k);
  const CutArguments arguments{static_cast<const float*>(m.data),
                               m.row_stride,
                               m.col_stride,
                               m.batch_stride,
                               to,
                               pitch,
                               rows * pitch,
                               batch * rows * pitch,
                               int(rows),
                               int(k),
                               ends,
                               size};
  const dim3 grid(unsigned(ceil_div(k, int64_t{kCutK})),
                  unsigned(std::min(ceil_div(rows, int64_t{kCutRows}), int64_t{65535})), unsigned(batch));
  launch<cut_planes_kernel>("cut_planes", {grid, dim3(256)}, context)(arguments);
  return {to, rows, k, pitch, batch};
}

}  // namespace fastgemm::FASTGEMM_TARGET
