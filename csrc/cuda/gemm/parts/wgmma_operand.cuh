// Operands of the wgmma rungs: tiles of a matrix in shared memory, in rows of 128 bytes that the tensor
// memory accelerator swizzles on the way, and the tensor maps that bring them there.
//
// wgmma multiplies 16-bit operands whichever of their indices runs along the rows of memory; the other types
// need k there, or one operand in registers (parts/fragments.cuh). Such operands are read in place; so are
// edges, which the hardware fills with zeros. Rows that do not begin at multiples of 16 bytes are copied as
// they are (parts/row_copies.cuh), and of two operands of another type with m and n along rows one is
// transposed by fastgemm's transpose.
#pragma once

#include "cuda/device/operand_tile.cuh"
#include "cuda/gemm/parts/copied_operand.cuh"
#include "cuda/gemm/parts/row_copies.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Whether boxes of a matrix can be read: its rows begin at multiples of 16 bytes and do not overlap.
template <class T>
bool boxes_readable(const T* data, int64_t columns, int64_t row_stride, int64_t batch_stride) {
  return rows_aligned(PackedRows<T>{data, row_stride, batch_stride}) && row_stride >= columns &&
         batch_stride >= 0;
}

// An operand in rows of memory along `major`.
template <class T>
struct BoxOperand {
  const T* data;
  Major major;
  int64_t side, k;
  int64_t row_stride;    // in elements
  int64_t batch_stride;  // likewise; 0 where all matrices of the batch share the operand
  int batch;

  int64_t rows() const { return major == Major::k ? side : k; }
  int64_t columns() const { return major == Major::k ? k : side; }

  // Whether the hardware can read it: then it has a map.
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

// Where an operand lies: element (s, k) at data + s * side_stride + k * k_stride.
template <class T>
struct OperandPlace {
  const T* data;
  int64_t side, k, side_stride, k_stride, batch_stride;  // batch_stride 0: all matrices share it
  int batch;
  int64_t other_side;  // of the other operand

  bool side_in_rows() const { return side_stride == 1 && k_stride != 1; }  // m or n runs along rows
};

// The operand where it is, whether the hardware can read it or not.
template <class T>
BoxOperand<T> operand_in_place(OperandPlace<T> p) {
  constexpr int64_t kUnit = kPer16Bytes<T>;
  if (p.side == 1) p.side_stride = 1;
  if (p.k == 1) p.k_stride = 1;
  const bool in_rows = p.k_stride == 1 && (p.side_stride != 1 || p.k > 1);
  BoxOperand<T> o{p.data, in_rows ? Major::k : Major::mn, p.side, p.k, 0, p.batch_stride, p.batch};
  o.row_stride = o.rows() == 1 ? ceil_div(o.columns(), kUnit) * kUnit : in_rows ? p.side_stride : p.k_stride;
  return o;
}

// A copy of the operand with `major` along its rows.
template <class T>
BoxOperand<T> copied_along(Major major, const OperandPlace<T>& p, Context& context) {
  BoxOperand<T> o{p.data, major, p.side, p.k, 0, p.batch_stride, p.batch};
  const auto [row_stride, column_stride] =
      major == Major::k ? std::pair(p.side_stride, p.k_stride) : std::pair(p.k_stride, p.side_stride);
  const PackedRows<T> packed =
      pack_rows(p.data, o.rows(), o.columns(), row_stride, column_stride, p.batch_stride, p.batch, context);
  o.data = packed.data, o.row_stride = packed.row_stride, o.batch_stride = packed.batch_stride;
  return o;
}

// Whether to copy what could be read. Boxes whose rows begin in the middle of sectors of 32 bytes come slowly
// (bf16 at 3072: 163 us, aligned 85; at 4096: 290 and 176; int8 152 and 98; tf32, which is slower anyway, 395
// and 345), and every tile pays for it, but for the copy (40 us of both operands at 4096) only large
// products.
template <class T>
bool pays_to_align(const OperandPlace<T>& p, const BoxOperand<T>& o) {
  constexpr int64_t kLarge = 3072, kSector = 32 / int64_t(sizeof(T));
  const bool splits_sectors =
      !is_aligned(o.data, 32) || o.row_stride % kSector != 0 || o.batch_stride % kSector != 0;
  return sizeof(T) <= 2 && splits_sectors && std::min({p.side, p.other_side, p.k}) >= kLarge;
}

// The operand where it is, or copied. Types but those of 16 bits get k along rows unless `keep_side`.
template <class T>
BoxOperand<T> box_operand(const OperandPlace<T>& p, bool keep_side, RowCopies& copies, Context& context) {
  BoxOperand<T> o = operand_in_place(p);
  if (o.major == Major::mn && sizeof(T) != 2 && !keep_side) return copied_along(Major::k, p, context);
  if (o.readable() && !pays_to_align(p, o)) return o;
  const PackedRows<T> copy =
      copies.add(p.data, o.rows(), o.columns(), o.row_stride, 1, p.batch_stride, p.batch, context);
  o.data = copy.data, o.row_stride = copy.row_stride, o.batch_stride = copy.batch_stride;
  return o;
}

// Both operands of a product, k > 0. Of `transposed` products a is what stands right: C^T = B^T A^T.
template <class T>
struct BoxOperands {
  BoxOperand<T> a, b;
  bool transposed = false;

  // With `registers` a may be of any type and have m along rows: then it is to be multiplied from registers.
  // The operands are there after copies.launch().
  BoxOperands(const Gemm<T>& g, int batch, RowCopies& copies, Context& context, bool registers = false) {
    const auto stride = [&](int64_t batch_stride) { return batch > 1 ? batch_stride : 0; };
    const OperandPlace<T> left{g.a.data, g.m, g.k, g.a.row_stride, g.a.col_stride, stride(g.a.batch_stride),
                               batch,    g.n},
        right{g.b.data, g.n, g.k, g.b.col_stride, g.b.row_stride, stride(g.b.batch_stride), batch, g.m};
    const bool keep = registers && sizeof(T) != 2;
    const bool keep_left = keep && left.side_in_rows(), keep_right = keep && right.side_in_rows();
    transposed = keep_right && !(keep_left && g.m >= g.n);  // of two, the smaller one is copied
    a = box_operand(transposed ? right : left, keep_left || keep_right, copies, context);
    b = box_operand(transposed ? left : right, false, copies, context);
  }

  template <class Body>
  void with_majors(Body&& body) const {
    fastgemm::FASTGEMM_TARGET::with_majors<T>(a.major, b.major, body);
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
