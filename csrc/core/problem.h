// What a problem is: element types, matrix views, and the three operations.
//
// A view is never a copy. Element (i, j) of a matrix lies at data + i * row_stride + j * col_stride,
// strides counted in elements, so row-major, column-major, sliced and broadcast operands are all the
// same thing to a kernel, and a transposed operand is the same view with its strides exchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/epilogue.h"

namespace fastgemm {

// Arithmetic works on the first kArithmeticTypes. Transpose moves bytes and knows only their number. The last
// ones are types of products alone, for which a kernel has to be made: of unsigned bytes with signed ones, of
// signed with unsigned ones, and of int16 whose sums have 64 bits.
// clang-format off: one line
enum class DType : uint8_t { f64, f32, f16, bf16, i8, i32, i64, u8, i16, bits8, bits16, bits32, bits64, bits128, u8i8, i8u8, i16i64 };
// clang-format on
inline constexpr int kArithmeticTypes = 9, kDTypes = 17;

constexpr int element_size(DType t) {
  constexpr int sizes[] = {8, 4, 2, 2, 1, 4, 8, 1, 2, 1, 2, 4, 8, 16, 1, 1, 2};
  return sizes[static_cast<int>(t)];
}

constexpr bool is_product_type(DType t) { return t >= DType::u8i8; }
constexpr bool is_integer(DType t) { return (t >= DType::i8 && t <= DType::i16) || is_product_type(t); }
constexpr bool is_byte(DType t) {
  return t == DType::i8 || t == DType::u8 || t == DType::u8i8 || t == DType::i8u8;
}

// What products of a type are summed in: the type of the result, unless that is f16 or bf16.
constexpr DType sum_type(DType t) {
  if (t == DType::f16 || t == DType::bf16) return DType::f32;
  if (t == DType::i16i64) return DType::i64;
  return is_byte(t) || t == DType::i16 ? DType::i32 : t;
}
// The types of a and b in a product of a type.
constexpr std::pair<DType, DType> operand_types(DType t) {
  if (t == DType::i16i64) return {DType::i16, DType::i16};
  return t == DType::u8i8   ? std::pair(DType::u8, DType::i8)
         : t == DType::i8u8 ? std::pair(DType::i8, DType::u8)
                            : std::pair(t, t);
}
// That of b^T a^T, where t is that of a b.
constexpr DType transposed_type(DType t) {
  return t == DType::u8i8 ? DType::i8u8 : t == DType::i8u8 ? DType::u8i8 : t;
}
// The type of a product that nobody asked another type of.
constexpr DType result_type(DType t) { return is_integer(t) ? sum_type(t) : t; }

using DTypeSet = uint32_t;
template <class... T>
constexpr DTypeSet dtypes(T... t) {
  return ((DTypeSet{1} << static_cast<int>(t)) | ...);
}
constexpr bool contains(DTypeSet set, DType t) { return (set >> static_cast<int>(t)) & 1; }

inline constexpr DTypeSet kGemmTypes = dtypes(DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8,
                                              DType::i32, DType::i64, DType::u8, DType::i16);
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

// How a float32 product may be computed, or, by residues of 14 to 18 moduli, a float64 product.
enum class Precision : uint8_t { ieee, tf32, bf16x3, bf16x6, fp16x3, crt14, crt15, crt16, crt17, crt18 };

// The type whose products have this precision; IEEE ones are of every type.
constexpr DType type_of(Precision p) { return p < Precision::crt14 ? DType::f32 : DType::f64; }

// What is known of a result: that it equals its transpose, or its conjugate transpose. In a product of
// complex matrices as real ones of twice the width, `parts` columns stand for one.
struct Symmetry {
  bool known = false;
  bool asked = false;       // the result has to be exactly symmetric, whichever kernel computes it
  bool conjugated = false;  // with parts == 2
  int parts = 1;
  bool operator==(const Symmetry&) const = default;
};

// out = alpha * a @ b + beta * c for each member of the batch. a: (m, k), b: (k, n), c and out: (m, n).
// beta == 0 never reads c; then c.data is null. c may be exactly out, but not where an epilogue is asked for,
// and never overlaps it otherwise.
struct GemmProblem {
  DType type = DType::f32;      // of a and b, or of their product
  DType out_type = DType::f32;  // of c and out: type itself, or sum_type(type)
  Precision precision = Precision::ieee;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  ConstMatrix a, b, c;
  Matrix out;
  double alpha = 1.0, beta = 0.0;
  // Of a product of complex numbers as they are (table.h, `complex`): whether those of a or b are conjugated.
  bool conjugates_a = false, conjugates_b = false;
  Symmetry symmetry;  // of the result: then n == parts * m, and out has contiguous rows
  // Columns of C that stand for a row where its lower triangle alone is asked for, else 0. A kernel may leave
  // out tiles above the diagonal, compute them, or store there the image of what lies below
  // (Kernel::mirrors).
  int triangle = 0;
  // Each sum is to be made in an order that n, k, types and layouts fix, and m does not: a row of C then has
  // the same bits whatever the other rows are. The kernels that `invariant` launches see to it; others ignore
  // it.
  bool invariant = false;
  // Where it is asked for, out = activation(alpha * a @ b + bias) + beta * c. A row applies it itself
  // (table.h, `fuses`), or gets the problem without it, and a pass follows (finish.h).
  Epilogue epilogue;

  // The same problem read the other way round: out^T = b^T @ a^T. Kernels that write rows of C use it
  // when out is column-major.
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
    p.epilogue = epilogue.transposed();
    return p;
  }
  double flops() const { return 2.0 * double(batch) * double(m) * double(n) * double(k); }
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
  // The same sum with rows of out contiguous if any side of it is, and as few rows as the strides allow.
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
