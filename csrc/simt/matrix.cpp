#include "simt/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "simt/session.h"
#include "simt/trace.h"
#include "simt/wide.h"

namespace fastgemm::simt {

using runtime::kWarp;

namespace {

// A lane that has returned has no record.
template <class Lane>
void check_full_warp(void* const (&lanes)[kWarp]) {
  const void* const* here = std::ranges::find_if(lanes, [](const void* lane) { return lane != nullptr; });
  if (std::ranges::count(lanes, nullptr) > 0)
    report_and_stop("divergence", "a matrix instruction in a warp in which some lanes have returned",
                    {trace::pc_of(static_cast<const Lane*>(*here)->site)});
}

struct MatrixLane {
  std::byte* row;
  uint32_t* registers;
  int matrices;
  bool transposed;
  const void* site;
};

enum class Move { load, store };

template <Move move>
void exchange_matrices(void* const (&lanes)[kWarp]) {
  check_full_warp<MatrixLane>(lanes);
  const auto lane = [&](int l) -> const MatrixLane& { return *static_cast<const MatrixLane*>(lanes[l]); };
  for (int matrix = 0; matrix < lane(0).matrices; ++matrix)
    for (int l = 0; l < kWarp; ++l)
      for (int i = 0; i < 2; ++i) {
        const Position at = matrix_element(l, i, lane(0).transposed);
        std::byte* const memory = lane(8 * matrix + at.row).row + 2 * at.column;
        std::byte* const half = reinterpret_cast<std::byte*>(lane(l).registers + matrix) + 2 * i;
        std::memcpy(move == Move::load ? half : memory, move == Move::load ? memory : half, 2);
      }
}

template <class T>
struct MmaLane {
  const typename ElementsOf<T>::A* a;
  const typename ElementsOf<T>::B* b;
  Accumulator<T>* d;
  const void* site;
};

template <class T, int M, int K>
void multiply(void* const (&lanes)[kWarp]) {
  using Layout = MmaLayout<T, M, K>;
  using Number = Accumulator<T>;
  check_full_warp<MmaLane<T>>(lanes);
  const auto lane = [&](int l) -> const MmaLane<T>& { return *static_cast<const MmaLane<T>*>(lanes[l]); };
  Number a[M][K], b[K][8];
  for (int l = 0; l < kWarp; ++l) {
    for (int i = 0; i < Layout::kA; ++i) a[Layout::a(l, i).row][Layout::a(l, i).column] = widen(lane(l).a[i]);
    for (int i = 0; i < Layout::kB; ++i) b[Layout::b(l, i).row][Layout::b(l, i).column] = widen(lane(l).b[i]);
  }
  constexpr bool kFused = std::is_same_v<Number, double>;  // the chain of an element begins with d
  Number sums[M][8] = {};
  if constexpr (!kFused) wide::multiply(sums[0], a[0], b[0], M, 8, K);
  for (int l = 0; l < kWarp; ++l)
    for (int i = 0; i < Layout::kC; ++i) {
      const Position at = Layout::c(l, i);
      Number& d = lane(l).d[i];
      if constexpr (kFused)
        for (int k = 0; k < K; ++k) d = std::fma(a[at.row][k], b[k][at.column], d);
      else
        d += sums[at.row][at.column];
    }
}

}  // namespace

void emulate_ldmatrix(uint32_t* to, const void* row, int matrices, bool transposed) {
  const void* site = __builtin_return_address(0);
  if (runtime::lane_index() < 8 * matrices) note(Kind::matrix_load, row, 16, site);
  MatrixLane lane{static_cast<std::byte*>(const_cast<void*>(row)), to, matrices, transposed, site};
  runtime::warp_exchange(runtime::kFullWarp, &lane, exchange_matrices<Move::load>);
}

void emulate_stmatrix(void* row, const uint32_t* from, int matrices, bool transposed) {
  const void* site = __builtin_return_address(0);
  if (runtime::lane_index() < 8 * matrices) note(Kind::matrix_store, row, 16, site);
  MatrixLane lane{static_cast<std::byte*>(row), const_cast<uint32_t*>(from), matrices, transposed, site};
  runtime::warp_exchange(runtime::kFullWarp, &lane, exchange_matrices<Move::store>);
}

template <class T, int M, int K>
void emulate_mma(void* d, const void* a, const void* b) {
  static const std::string name = "mma.m" + std::to_string(M) + "n8k" + std::to_string(K) + kTypesText<T>;
  const void* site = __builtin_return_address(0);
  if (runtime::lane_index() == 0) note_mma(name.c_str(), int64_t{2} * M * 8 * K, site);
  MmaLane<T> lane{static_cast<decltype(lane.a)>(a), static_cast<decltype(lane.b)>(b),
                  static_cast<Accumulator<T>*>(d), site};
  runtime::warp_exchange(runtime::kFullWarp, &lane, multiply<T, M, K>);
}

void check_wmma_address(const void* p, int leading_bytes) {
  if (reinterpret_cast<uintptr_t>(p) % 32 != 0 || leading_bytes % 16 != 0)
    runtime::fail(
        "a wmma tile needs an address that is a multiple of 32 bytes and a leading dimension of whole 16 "
        "bytes");
}

template void emulate_mma<Half, 16, 16>(void*, const void*, const void*);
template void emulate_mma<BFloat16, 16, 16>(void*, const void*, const void*);
template void emulate_mma<Tf32, 16, 8>(void*, const void*, const void*);
template void emulate_mma<int8_t, 16, 32>(void*, const void*, const void*);
template void emulate_mma<int8_t, 16, 16>(void*, const void*, const void*);
template void emulate_mma<uint8_t, 16, 32>(void*, const void*, const void*);
template void emulate_mma<MixedBytes<uint8_t, int8_t>, 16, 32>(void*, const void*, const void*);
template void emulate_mma<MixedBytes<int8_t, uint8_t>, 16, 32>(void*, const void*, const void*);
template void emulate_mma<double, 8, 4>(void*, const void*, const void*);
template void emulate_mma<double, 16, 4>(void*, const void*, const void*);
template void emulate_mma<double, 16, 8>(void*, const void*, const void*);
template void emulate_mma<double, 16, 16>(void*, const void*, const void*);

}  // namespace fastgemm::simt
