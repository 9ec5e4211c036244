// The operands of kernels that multiply by wgmma. Contract: BoxOperands(g, batch, copies, context) finds out
// how A and B lie in memory, and plans copies of those that the TMA cannot read. map() makes the TMA
// descriptors (tensor maps) by which tiles are loaded into shared memory, in swizzled rows of 128 bytes.
//
//   how the operand lies               types of 16 bits       other types
//   k along rows (Major::k)            in place               in place
//   m or n along rows (Major::mn)      in place               A from registers (parts/sources/fragments.cuh),
//                                                             else transposed by fastgemm's transpose
//   rows not at multiples of 16 bytes  copied as they are (parts/sources/row_copies.cuh)
//
// Tiles that reach over an edge of the matrix need no test, because the TMA fills what lies outside the
// matrix with zeros.
#pragma once

#include "cuda/device/operand_tile.cuh"
#include "cuda/gemm/parts/sides.cuh"
#include "cuda/gemm/parts/sources/copied_operand.cuh"
#include "cuda/gemm/parts/sources/row_copies.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Whether the TMA can read boxes of a matrix: its rows begin at multiples of 16 bytes and do not overlap.
template <class T>
bool boxes_readable(const T* data, int64_t columns, int64_t row_stride, int64_t batch_stride) {
  return rows_aligned(PackedRows<T>{data, row_stride, batch_stride}) && row_stride >= columns &&
         batch_stride >= 0;
}

// An operand whose rows in memory run along `major`.
template <class T>
struct BoxOperand {
  const T* data;
  Major major;
  int64_t side, k;
  int64_t row_stride;    // in elements
  int64_t batch_stride;  // in elements; 0 where all matrices of the batch share the operand
  int batch;

  int64_t rows() const { return major == Major::k ? side : k; }
  int64_t columns() const { return major == Major::k ? k : side; }

  // Whether the TMA can read the operand, so that map() may be called.
  bool readable() const { return boxes_readable(data, columns(), row_stride, batch_stride); }
  TensorMap map(int tile_side) const {
    const bool in_rows = major == Major::k;
    const int64_t bytes = sizeof(T);
    constexpr int kK = 128 / int(sizeof(T));
    return make_tensor_map({data, int(bytes), columns(), rows(), batch_stride == 0 ? 1 : batch,
                            row_stride * bytes,
                            (batch_stride == 0 ? rows() * row_stride : batch_stride) * bytes,
                            in_rows ? kK : SideBox<T>::kSide, in_rows ? tile_side : kK,
                            in_rows ? Swizzle::bytes128 : SideBox<T>::kSwizzle, std::is_same_v<T, float>});
  }
};

// Describes the operand in place, whether the TMA can read it or not.
template <class T>
BoxOperand<T> operand_in_place(Side<T> s, int batch) {
  constexpr int64_t kUnit = kPer16Bytes<T>;
  if (s.side == 1) s.side_stride = 1;
  if (s.k == 1) s.k_stride = 1;
  const bool in_rows = s.k_stride == 1 && (s.side_stride != 1 || s.k > 1);
  BoxOperand<T> o{s.data, in_rows ? Major::k : Major::mn, s.side, s.k, 0, s.batch_stride, batch};
  o.row_stride = o.rows() == 1 ? ceil_div(o.columns(), kUnit) * kUnit : in_rows ? s.side_stride : s.k_stride;
  return o;
}

// Copies the operand so that `major` runs along its rows.
template <class T>
BoxOperand<T> copied_along(Major major, const Side<T>& s, int batch, Context& context) {
  BoxOperand<T> o{s.data, major, s.side, s.k, 0, s.batch_stride, batch};
  const auto [row_stride, column_stride] =
      major == Major::k ? std::pair(s.side_stride, s.k_stride) : std::pair(s.k_stride, s.side_stride);
  const PackedRows<T> packed =
      pack_rows(s.data, o.rows(), o.columns(), row_stride, column_stride, s.batch_stride, batch, context);
  o.data = packed.data, o.row_stride = packed.row_stride, o.batch_stride = packed.batch_stride;
  return o;
}

// Whether copying pays for an operand that the TMA could read. Boxes whose rows begin in the middle of
// 32-byte sectors load at half the rate, for every tile. But only products whose m, n and k are all large win
// back the time of the copy. `extents` is the least of the three.
template <class T>
bool pays_to_align(const BoxOperand<T>& o, int64_t extents) {
  constexpr int64_t kLarge = 3072, kSector = 32 / int64_t(sizeof(T));
  const bool splits_sectors =
      !is_aligned(o.data, 32) || o.row_stride % kSector != 0 || o.batch_stride % kSector != 0;
  return sizeof(T) <= 2 && splits_sectors && extents >= kLarge;
}

// The operand in place, or a copy. A type that does not have 16 bits gets k along rows unless `keep_side` is
// set. `extents` is the least of m, n and k.
template <class T>
BoxOperand<T> box_operand(const Side<T>& s, int batch, int64_t extents, bool keep_side, RowCopies& copies,
                          Context& context) {
  BoxOperand<T> o = operand_in_place(s, batch);
  if (o.major == Major::mn && sizeof(T) != 2 && !keep_side) return copied_along(Major::k, s, batch, context);
  if (o.readable() && !pays_to_align(o, extents)) return o;
  const PackedRows<T> copy =
      copies.add(s.data, o.rows(), o.columns(), o.row_stride, 1, s.batch_stride, batch, context);
  o.data = copy.data, o.row_stride = copy.row_stride, o.batch_stride = copy.batch_stride;
  return o;
}

// Returns the epilogue with a bias (a row) that can be read in pairs of elements, also at its end: the bias
// in place, or a copy.
template <class T>
Epilogue whole_pairs(const Epilogue& e, const Gemm<T>& g, RowCopies& copies, Context& context) {
  const size_t pair = size_t(2 * g.result.out_bytes());
  const bool in_place =
      e.bias_col_stride == 1 && g.n % 2 == 0 && is_aligned(static_cast<const char*>(e.bias), pair);
  if (e.bias == nullptr || in_place) return e;
  Epilogue copied = e;
  const auto copy = [&]<class Out>(const Out* bias) {
    copied.bias = copies.add(bias, 1, g.n, e.bias_col_stride * g.n, e.bias_col_stride, 0, 1, context).data;
  };
  if (g.result.out_bytes() == 4)
    copy(static_cast<const float*>(e.bias));
  else
    copy(static_cast<const Half*>(e.bias));  // or BFloat16: only bytes are copied
  copied.bias_col_stride = 1;
  return copied;
}

// Both operands of a product, k > 0. If `transposed` is set, the kernel computes C^T = B^T A^T, and `a` is
// the product's B.
template <class T>
struct BoxOperands {
  BoxOperand<T> a, b;
  bool transposed = false;

  // With `registers` set, `a` may have m along rows whatever its type, because the kernel then multiplies it
  // from registers. Copied operands are complete after copies.launch().
  BoxOperands(const Gemm<T>& g, int batch, RowCopies& copies, Context& context, bool registers = false) {
    const Side<T> left = side_a(g, batch), right = side_b(g, batch);
    const auto has_side_in_rows = [](const Side<T>& s) { return s.side_stride == 1 && s.k_stride != 1; };
    const bool keep = registers && sizeof(T) != 2;
    const bool keep_left = keep && has_side_in_rows(left), keep_right = keep && has_side_in_rows(right);
    transposed = keep_right && !(keep_left && g.m >= g.n);  // if both have, the smaller one is copied
    const int64_t extents = std::min({g.m, g.n, g.k});
    a = box_operand(transposed ? right : left, batch, extents, keep_left || keep_right, copies, context);
    b = box_operand(transposed ? left : right, batch, extents, false, copies, context);
  }

  template <class Body>
  void with_majors(Body&& body) const {
    fastgemm::FASTGEMM_TARGET::with_majors<T>(a.major, b.major, body);
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
