// The pieces of a kernel that moves 16 bytes at a time: panels of the operands from global to shared memory,
// the outer product of a thread tile, and the store of a row of results.
//
// A panel is what a block needs of one operand for BK values of k: (BK, WIDTH), k-major, for A and B alike,
// so that a thread reads neighbouring rows of A, like neighbouring columns of B, as one vector. Of an
// operand, only the strides along k and along the other direction, `x` below (m of A, n of B), matter.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Whether 16-byte accesses along the contiguous direction are aligned in every row and every batch.
template <class T>
bool takes_vectors(const T* data, int64_t row_stride, int64_t col_stride, int64_t batch_stride) {
  const int64_t leading = col_stride == 1 ? row_stride : col_stride;
  return (row_stride == 1 || col_stride == 1) && is_aligned(data, 16) && leading % kPer16Bytes<T> == 0 &&
         batch_stride % kPer16Bytes<T> == 0;
}
template <class T>
bool takes_vectors(const Operand<T>& x) {
  return takes_vectors(x.data, x.row_stride, x.col_stride, x.batch_stride);
}

// One operand as its panels see it.
template <class T>
struct PanelSource {
  const T* data;
  int64_t x_stride, k_stride, x_extent, k_extent;
  bool vectors;  // takes_vectors()
};

template <class T, int WIDTH, int BK, int THREADS>
struct PanelCopy {
  static constexpr int kVector = kPer16Bytes<T>;
  static constexpr int kVectors = WIDTH * BK / kVector / THREADS;  // a thread's share
  static constexpr int kPitch = WIDTH + 4;
  static_assert(WIDTH * BK % (kVector * THREADS) == 0 && BK % (2 * kVector) == 0);
  using Acc = Accumulator<T>;

  Vector16<T> held[kVectors];
  bool along_k;

  // Where the thread's vector v begins. Along x a warp covers whole rows of the panel. Along k a pair of
  // lanes reads one 32-byte sector and 16 pairs stand side by side in x: for fp32, element e of the pair's
  // vectors then goes to banks 16 * (lane % 2) + lane / 2 + constant (4 rows of pitch 132 are 16 banks): no
  // conflict.
  __device__ __forceinline__ int x_of(int v) const {
    const int index = v * THREADS + int(threadIdx.x);
    return along_k ? index / 2 % WIDTH : index % (WIDTH / kVector) * kVector;
  }
  __device__ __forceinline__ int k_of(int v) const {
    const int index = v * THREADS + int(threadIdx.x);
    return along_k ? (index / (2 * WIDTH) * 2 + index % 2) * kVector : index / (WIDTH / kVector);
  }

  // Reads the panel at (x0, k0) into registers; zeros outside the operand.
  __device__ __forceinline__ void load(const PanelSource<T>& from, int64_t x0, int64_t k0) {
    along_k = from.k_stride == 1;
    const int64_t step = along_k ? from.k_stride : from.x_stride;
    const int inside_x = inside(from.x_extent, x0, WIDTH), inside_k = inside(from.k_extent, k0, BK);
    FASTGEMM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int x = x_of(v), k = k_of(v);
      const int valid = along_k ? (x < inside_x ? inside_k - k : 0) : (k < inside_k ? inside_x - x : 0);
      const T* p = from.data + (x0 + x) * from.x_stride + (k0 + k) * from.k_stride;
      if (from.vectors && valid >= kVector) {
        held[v] = load_vector<Vector16<T>>(p);
      } else {
        FASTGEMM_UNROLL
        for (int e = 0; e < kVector; ++e) held[v][e] = e < valid ? p[e * step] : T{};
      }
    }
  }

  // Writes what is held to shared memory, widened.
  __device__ __forceinline__ void store(Acc* panel /* (BK, WIDTH) */) const {
    FASTGEMM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      Acc* to = panel + k_of(v) * kPitch + x_of(v);
      if (along_k) {
        FASTGEMM_UNROLL
        for (int e = 0; e < kVector; ++e) to[e * kPitch] = widen(held[v][e]);
      } else {
        FASTGEMM_UNROLL
        for (int e = 0; e < kVector; e += kPer16Bytes<Acc>) {
          Vector16<Acc> wide;
          FASTGEMM_UNROLL
          for (int i = 0; i < kPer16Bytes<Acc>; ++i) wide[i] = widen(held[v][e + i]);
          store_vector(to + e, wide);
        }
      }
    }
  }
};

// A thread's SIZE x SIZE results. Its rows, and its columns, come in groups of one vector; groups are 16
// vectors apart, so that the 16 threads across a tile read neighbouring vectors.
template <class T, int SIZE>
struct ThreadTile {
  using Acc = Accumulator<T>;
  static constexpr int kVector = kPer16Bytes<Acc>;
  static_assert(SIZE % kVector == 0);

  Acc sum[SIZE][SIZE] = {};

  // Position i of the thread at `place` (0 to 15) in the block tile.
  static __device__ __forceinline__ int offset(int place, int i) {
    return i / kVector * 16 * kVector + place * kVector + i % kVector;
  }

  static __device__ __forceinline__ void read(Acc (&to)[SIZE], const Acc* row, int place) {
    FASTGEMM_UNROLL
    for (int i = 0; i < SIZE; i += kVector) {
      const auto v = load_vector<Vector16<Acc>>(row + offset(place, i));
      FASTGEMM_UNROLL
      for (int e = 0; e < kVector; ++e) to[i + e] = v[e];
    }
  }

  __device__ __forceinline__ void add_outer_product(const Acc (&a)[SIZE], const Acc (&b)[SIZE]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < SIZE; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < SIZE; ++j) sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
    }
  }
};

// How the epilogue may reach out and c.
struct ResultVectors {
  bool out, c;
};

template <class T>
ResultVectors result_vectors(const Result<T>& r) {
  const auto of = [&](const void* data, int64_t row_stride, int64_t col_stride, int64_t batch_stride) {
    const auto check = [&]<class Out>(const Out* p) {
      return col_stride == 1 && takes_vectors(p, row_stride, 1, batch_stride);
    };
    if (Result<T>::kMayBeWide && r.wide) return check(static_cast<const float*>(data));
    return check(static_cast<const typename Result<T>::Narrow*>(data));
  };
  return {of(r.out, r.row_stride, 1, r.batch_stride),
          of(r.c, r.c_row_stride, r.c_col_stride, r.c_batch_stride)};
}

// Stores `valid` of N neighbouring results of a row of C.
template <class Out, int N, class T>
__device__ __forceinline__ void store_row_as(const Result<T>& r, ResultVectors vectors, int64_t row,
                                             int64_t col, const Accumulator<T>* sum, int valid) {
  using V = Vector<Out, N>;
  V result{};
  if (r.beta != 0) {
    const Out* c = static_cast<const Out*>(r.c) + row * r.c_row_stride + col * r.c_col_stride;
    if (vectors.c && valid >= N) {
      result = load_vector<V>(c);
    } else {
      FASTGEMM_UNROLL
      for (int e = 0; e < N; ++e)
        if (e < valid) result[e] = c[e * r.c_col_stride];
    }
    FASTGEMM_UNROLL
    for (int e = 0; e < N; ++e) result[e] = narrow<Out>(r.alpha * sum[e] + r.beta * widen(result[e]));
  } else {
    FASTGEMM_UNROLL
    for (int e = 0; e < N; ++e) result[e] = narrow<Out>(r.alpha * sum[e]);
  }
  Out* out = static_cast<Out*>(r.out) + row * r.row_stride + col;
  if (vectors.out && valid >= N) {
    store_vector_whole(out, result);
  } else {
    FASTGEMM_UNROLL
    for (int e = 0; e < N; ++e)
      if (e < valid) out[e] = result[e];
  }
}

// Stores a thread's results, the part of them that lies inside C, a vector at a time.
template <class T, int SIZE>
__device__ __forceinline__ void store_thread_tile(const Gemm<T>& g, ResultVectors vectors,
                                                  const ThreadTile<T, SIZE>& thread_tile, BlockTile tile,
                                                  ThreadPlace place) {
  constexpr int N = ThreadTile<T, SIZE>::kVector;
  FASTGEMM_UNROLL
  for (int i = 0; i < SIZE; ++i) {
    const int64_t row = tile.row + ThreadTile<T, SIZE>::offset(place.m, i);
    FASTGEMM_UNROLL
    for (int j = 0; j < SIZE; j += N) {
      const int64_t col = tile.col + ThreadTile<T, SIZE>::offset(place.n, j);
      const int valid = row < g.m ? inside(g.n, col, N) : 0;
      if (valid <= 0) continue;
      const Accumulator<T>* sum = &thread_tile.sum[i][j];
      if constexpr (Result<T>::kMayBeWide) {
        if (g.result.wide) {
          store_row_as<float, N>(g.result, vectors, row, col, sum, valid);
          continue;
        }
      }
      store_row_as<typename Result<T>::Narrow, N>(g.result, vectors, row, col, sum, valid);
    }
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
