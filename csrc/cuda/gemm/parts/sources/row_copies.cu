// The launch that copies rows which begin at any address, before a kernel of level 6. A lane makes 16 bytes
// of a row from the two aligned units that hold them.
#include "cuda/device/sync.cuh"
#include "cuda/gemm/parts/sources/row_copies.cuh"
#include "cuda/gemm/parts/sources/unaligned.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256, kRowsOfThread = 4;

struct Arguments {
  RowCopy copy[4];
  int64_t first_block[4];
  uint32_t* flags;
  int flag_count;
};

// Loads a unit byte by byte: at the ends of a matrix, and where columns are not contiguous.
__device__ __forceinline__ Unit gather(const RowCopy& c, const unsigned char* row, int64_t first) {
  Unit unit{};
  FASTGEMM_UNROLL
  for (int i = 0; i < 16; ++i) {
    const int64_t at = first + i;
    const int within = int(at) & (c.element_bytes - 1);
    if (at < c.row_bytes)
      unit[i / 4] |= uint32_t(row[(at >> c.element_log) * c.from_column_stride + within]) << 8 * (i % 4);
  }
  return unit;
}

// Copies a thread's units, one in each of kRowsOfThread rows. All loads come before the stores, so that they
// are in flight together. A unit may read bytes behind the end of its row; they end in the padding of the
// copy.
__device__ __forceinline__ void copy_piece(const RowCopy& c, int matrix, int64_t block) {
  const int lane = int(threadIdx.x) % c.lanes, apart = kThreads / c.lanes;
  const int64_t unit = block % c.pieces * c.lanes + lane, first = unit * 16;
  const int64_t row0 = block / c.pieces * (apart * kRowsOfThread) + int(threadIdx.x) / c.lanes;
  if (first >= c.row_bytes) return;
  const unsigned char* const begin = c.from + matrix * c.from_batch_stride;
  const unsigned char* const end = begin + (c.rows - 1) * c.from_stride + c.row_bytes;
  const bool side_by_side = c.from_column_stride == c.element_bytes;
  UnalignedUnit<1> units[kRowsOfThread];
  FASTGEMM_UNROLL
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int64_t row = row0 + i * apart;
    if (row >= c.rows) break;
    const unsigned char* const from = begin + row * c.from_stride;
    if (!side_by_side || !units[i].load(from + first, begin, end)) units[i].set(gather(c, from, first));
  }
  unsigned char* const to = c.to + matrix * c.to_batch_stride + first;
  FASTGEMM_UNROLL
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int64_t row = row0 + i * apart;
    if (row >= c.rows) break;
    store_vector(to + row * c.to_stride, units[i].take());
  }
}

__global__ void __launch_bounds__(kThreads) row_copies_kernel(const __grid_constant__ Arguments g) {
  launch_dependents();
  const int64_t block = blockIdx.x;
  const int matrix = int(blockIdx.y);
  if (block == 0 && matrix == 0)
    for (int i = int(threadIdx.x); i < g.flag_count; i += kThreads) g.flags[i] = 0;
  const int which = (block >= g.first_block[1]) + (block >= g.first_block[2]) + (block >= g.first_block[3]);
  const RowCopy& c = g.copy[which];
  const int64_t index = block - g.first_block[which];
  if (index < c.blocks && matrix < c.matrices) copy_piece(c, matrix, index);
}

}  // namespace

void RowCopies::add(RowCopy c) {
  const int64_t units = ceil_div(c.row_bytes, 16);
  c.element_log = c.element_bytes / 2;  // 0, 1 and 2 for 1, 2 and 4 bytes
  c.lanes = 1;
  while (c.lanes < 32 && c.lanes < units) c.lanes *= 2;
  c.pieces = ceil_div(units, c.lanes);
  c.blocks = c.pieces * ceil_div(c.rows, kThreads / c.lanes * kRowsOfThread);
  copies_[count_++] = c;
}

void RowCopies::launch(std::span<uint32_t> flags, Context& context) const {
  if (count_ == 0 && flags.empty()) return;
  Arguments g{};
  g.flags = flags.data(), g.flag_count = int(flags.size());
  int64_t blocks = 0;
  int matrices = 1;
  for (int i = 0; i < kMost; ++i) {
    g.first_block[i] = blocks;
    if (i >= count_) continue;
    g.copy[i] = copies_[i];
    blocks += copies_[i].blocks;
    matrices = std::max(matrices, copies_[i].matrices);
  }
  const dim3 grid(unsigned(std::max<int64_t>(blocks, 1)), unsigned(matrices));
  fastgemm::FASTGEMM_TARGET::launch<row_copies_kernel>("row_copies", {grid, dim3(kThreads)}, context)(g);
}

}  // namespace fastgemm::FASTGEMM_TARGET
