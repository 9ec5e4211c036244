// What a problem is: element types, matrix views, and the three operations.
//
// A view is never a copy. Element (i, j) of a matrix lies at data + i * row_stride + j * col_stride; strides
// count elements. Row-major, column-major, sliced and broadcast operands are therefore all the same to a
// kernel. A transposed operand is the same view with its strides exchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/block_scales.h"
#include "core/epilogue.h"
#include "core/groups.h"
#include "core/packed.h"

namespace fastgemm {

// Arithmetic works on the first kArithmeticTypes. Transposition copies elements and knows only their size:
// bits8 to bits128. The others are only types of products, which need kernels of their own: u8i8 multiplies
// unsigned by signed bytes, i8u8 signed by unsigned bytes, and i16i64 multiplies int16 and sums in int64. The
// last four multiply 8-bit floating-point numbers (core/fp8.h) and sum in float32.
// clang-format off: one line
enum class DType : uint8_t { f64, f32, f16, bf16, i8, i32, i64, u8, i16, bits8, bits16, bits32, bits64, bits128, u8i8, i8u8, i16i64, e4m3, e5m2, e4m3e5m2, e5m2e4m3 };
// clang-format on
inline constexpr int kArithmeticTypes = 9, kDTypes = 21;

constexpr int element_size(DType t) {
  constexpr int sizes[] = {8, 4, 2, 2, 1, 4, 8, 1, 2, 1, 2, 4, 8, 16, 1, 1, 2, 1, 1, 1, 1};
  return sizes[static_cast<int>(t)];
}

constexpr bool is_fp8(DType t) { return t >= DType::e4m3; }
constexpr bool is_product_type(DType t) { return t >= DType::u8i8 && !is_fp8(t); }
constexpr bool is_integer(DType t) { return (t >= DType::i8 && t <= DType::i16) || is_product_type(t); }
constexpr bool is_byte(DType t) {
  return t == DType::i8 || t == DType::u8 || t == DType::u8i8 || t == DType::i8u8;
}

// The type in which products are summed. It is also the type of the result, unless that is f16 or bf16.
constexpr DType sum_type(DType t) {
  if (t == DType::f16 || t == DType::bf16 || is_fp8(t)) return DType::f32;
  if (t == DType::i16i64) return DType::i64;
  return is_byte(t) || t == DType::i16 ? DType::i32 : t;
}
// The element types of a and b in a product of type t.
constexpr std::pair<DType, DType> operand_types(DType t) {
  if (t == DType::i16i64) return {DType::i16, DType::i16};
  if (t == DType::e4m3e5m2) return {DType::e4m3, DType::e5m2};
  if (t == DType::e5m2e4m3) return {DType::e5m2, DType::e4m3};
  return t == DType::u8i8   ? std::pair(DType::u8, DType::i8)
         : t == DType::i8u8 ? std::pair(DType::i8, DType::u8)
                            : std::pair(t, t);
}
// The type of the product b^T a^T, where a b has type t.
constexpr DType transposed_type(DType t) {
  if (t == DType::e4m3e5m2) return DType::e5m2e4m3;
  if (t == DType::e5m2e4m3) return DType::e4m3e5m2;
  return t == DType::u8i8 ? DType::i8u8 : t == DType::i8u8 ? DType::u8i8 : t;
}
// The result type of a product when the caller names none.
constexpr DType result_type(DType t) { return is_integer(t) ? sum_type(t) : t; }

using DTypeSet = uint32_t;
template <class... T>
constexpr DTypeSet dtypes(T... t) {
  return ((DTypeSet{1} << static_cast<int>(t)) | ...);
}
constexpr bool contains(DTypeSet set, DType t) { return (set >> static_cast<int>(t)) & 1; }

inline constexpr DTypeSet kGemmTypes = dtypes(DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8,
                                              DType::i32, DType::i64, DType::u8, DType::i16);
inline constexpr DTypeSet kFp8Types = dtypes(DType::e4m3, DType::e5m2, DType::e4m3e5m2, DType::e5m2e4m3);
inline constexpr DTypeSet kAddTypes = kGemmTypes;
inline constexpr DTypeSet kTransposeTypes =
    dtypes(DType::bits8, DType::bits16, DType::bits32, DType::bits64, DType::bits128);

template <class Pointer>
struct BasicMatrix {
  Pointer data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
  int64_t batch_stride = 0;

  BasicMatrix transposed() const { return {data, col_stride, row_stride, batch_stride}; }
};
using Matrix = BasicMatrix<void*>;
using ConstMatrix = BasicMatrix<const void*>;

// float32 numbers by which the sums of a product are multiplied: one for each row, then one for each column.
// Products of 16-bit types and of float32 have them.
struct LineScales {
  const float* data = nullptr;  // null: 1
  int64_t stride = 0;           // 0: one for all
};
struct SumScales {
  bool asked = false;  // set before the addresses are known
  LineScales rows, columns;
};

// How a product is computed. tf32 to fp16x3 are for float32; crt14 to crt18 compute float64 from residues of
// 14 to 18 moduli (Chinese remainder theorem).
enum class Precision : uint8_t { ieee, tf32, bf16x3, bf16x6, fp16x3, crt14, crt15, crt16, crt17, crt18 };

// The type whose products may have this precision. ieee is for every type; there this function returns f32.
constexpr DType type_of(Precision p) { return p < Precision::crt14 ? DType::f32 : DType::f64; }

// Whether a result is known to equal its transpose or its conjugate transpose. A product of complex matrices
// may be computed as a real product of twice the width; then `parts` real columns hold one complex column.
struct Symmetry {
  bool known = false;
  bool asked = false;       // the caller wants it exactly symmetric from any kernel
  bool conjugated = false;  // with parts == 2
  int parts = 1;
  bool operator==(const Symmetry&) const = default;
};

// out = alpha * a @ b + beta * c for each member of the batch. a: (m, k), b: (k, n), c and out: (m, n).
// Where beta == 0, c is not read and c.data is null. c may be exactly out unless there is an epilogue. It
// must not overlap out in any other way.
struct GemmProblem {
  DType type = DType::f32;      // of a and b, or a type that only products have
  DType out_type = DType::f32;  // of c and out: `type` or sum_type(type)
  Precision precision = Precision::ieee;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  ConstMatrix a, b, c;
  Matrix out;
  // If given, b.data points to its codes, and the strides of b count codes of the plain order. a then has
  // contiguous rows and is not conjugated, and the problem is never transposed. Rows take it if their `codes`
  // (table.h) say so.
  PackedWeight packed;
  // If given, the batch counts groups. With groups of m, a and out are then one matrix each, with the rows of
  // all groups; with groups of k, a and b are. m (or k) counts the rows of all groups, and these two batch
  // strides are 0. Groups of n are those of m in the transposed product. Rows of out beyond the last group
  // are set to zero. Rows of the table take it if their `groups` (table.h) say so.
  Groups groups;
  // If set, b has two columns for each column of out: those of a gate, then those of a value. out = silu(a @
  // gate) * (a @ value), and a bias is added to both products. n counts the columns of out. Rows take it if
  // they have Kernel::gates.
  bool gated = false;
  double alpha = 1.0, beta = 0.0;
  // Whether a or b is conjugated. Only for kernels that take complex matrices directly (table.h, `complex`).
  bool conjugates_a = false, conjugates_b = false;
  Symmetry symmetry;  // of the result; if known, n == parts * m and the rows of out are contiguous
  // 0: the caller needs all of C. Otherwise it needs the lower triangle only, and the value is
  // Symmetry::parts: the number of real columns that hold one column of C. A kernel may skip the tiles above
  // the diagonal, compute them, or store there the mirror image of the lower triangle (Kernel::mirrors).
  int triangle = 0;
  // The order of summation must depend on n, k, types and layouts only, not on m. The bits of a row of C then
  // do not depend on the other rows. Only the kernels that `invariant` launches obey this; others ignore it.
  bool invariant = false;
  // If asked(), out = activation(alpha * a @ b + bias) + beta * c. A kernel applies it itself (table.h,
  // `fuses`), or gets the problem without it, and an epilogue pass follows (epilogue_pass.h).
  Epilogue epilogue;
  // If asked, the sums are multiplied by these before anything is added; the batch is 1. A kernel applies
  // them with the epilogue (table.h, `scales`), or the epilogue pass does.
  SumScales scales;
  // The scales of 8-bit floating-point operands: they multiply the numbers of a and of b.
  BlockScales scales_a, scales_b;
  // Whether a kernel without an epilogue needs a pass. Kernels of 8-bit floating-point numbers add no c.
  bool finishes() const { return epilogue.asked() || scales.asked || (is_fp8(type) && beta != 0.0); }

  // The same problem, transposed: out^T = b^T @ a^T. Kernels that write rows of C use it when out is
  // column-major.
  GemmProblem transposed() const {
    GemmProblem p = *this;
    p.type = transposed_type(type);
    std::swap(p.m, p.n);
    p.a = b.transposed();
    p.b = a.transposed();
    std::swap(p.conjugates_a, p.conjugates_b);
    p.c = c.transposed();
    p.out = out.transposed();
    p.symmetry = {}, p.triangle = 0;
    if (groups.by == GroupedBy::m || groups.by == GroupedBy::n)
      p.groups.by = groups.by == GroupedBy::m ? GroupedBy::n : GroupedBy::m;
    p.epilogue = epilogue.transposed();
    std::swap(p.scales.rows, p.scales.columns);
    p.scales_a = scales_b.transposed(), p.scales_b = scales_a.transposed();
    return p;
  }
  double flops() const {
    return 2.0 * double(groups.are_given() ? 1 : batch) * double(m) * double(n) * double(k);
  }
};

// dst[j, i] = src[i, j]. src: (rows, cols) with one unit stride; dst: (cols, rows), contiguous rows
// (dst.col_stride == 1, dst.row_stride >= rows).
struct TransposeProblem {
  DType type = DType::bits32;
  int64_t batch = 1, rows = 0, cols = 0;
  ConstMatrix src;
  Matrix dst;
  double bytes() const { return 2.0 * double(batch) * double(rows) * double(cols) * element_size(type); }
};

// out = a + alpha * b, all (rows, cols) views of any strides (0 where broadcast). out may be exactly a or b.
struct AddProblem {
  DType type = DType::f32;
  int64_t rows = 0, cols = 0;
  ConstMatrix a, b;
  Matrix out;
  double alpha = 1.0;
  // The same sum, with contiguous rows of out if its rows or its columns are contiguous. Rows are merged into
  // one long row where all strides allow it.
  AddProblem with_long_rows() const {
    AddProblem p = *this;
    if (p.out.col_stride != 1 && p.out.row_stride == 1) {
      std::swap(p.rows, p.cols);
      p.a = p.a.transposed(), p.b = p.b.transposed(), p.out = p.out.transposed();
    }
    const auto merges = [&p](const auto& m) { return m.row_stride == p.cols * m.col_stride; };
    if (merges(p.a) && merges(p.b) && merges(p.out)) {
      p.cols *= p.rows;
      p.rows = 1;
    }
    return p;
  }
  double bytes() const { return 3.0 * double(rows) * double(cols) * element_size(type); }
};

}  // namespace fastgemm
