#include "matrix_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "support.h"

namespace fastgemm::test {
namespace {

template <class T>
T read(const void* p) {
  T x;
  std::memcpy(&x, p, sizeof(T));
  return x;
}

// Bits of a number: of either sign, from 1/4 to 4; or an integer from -8 to 8; of integer types any.
uint64_t draw(Number type, Fill fill, std::mt19937& random) {
  const uint64_t bits = random() | uint64_t{random()} << 32;
  if (is_integer(type)) return bits;
  const double sign = bits >> 63 ? -1 : 1;
  const double x = fill == Fill::exact ? sign * double(bits % 9)
                                       : sign * std::exp2(double(bits % (1 << 20)) / (1 << 18) - 2);
  if (type == Number::f64)
    return std::bit_cast<uint64_t>(fill == Fill::exact ? x : x + 1e-12 * double(bits >> 40 & 0xff));
  const uint32_t single = std::bit_cast<uint32_t>(float(x));
  if (type == Number::tf32) return single;
  if (type == Number::bf16) return single >> 16;
  if (x == 0) return 0;
  // f16: 5 bits of exponent, biased by 15 instead of 127
  return (single >> 16 & 0x8000) | ((single >> 13 & 0x3ffff) - (112u << 10));
}

Bytes fill_matrix(Number type, int bytes, int count, Fill fill, std::mt19937& random) {
  Bytes matrix(size_t(count * bytes));
  for (int i = 0; i < count; ++i) {
    const uint64_t bits = draw(type, fill, random);
    std::memcpy(matrix.data() + i * bytes, &bits, size_t(bytes));
  }
  return matrix;
}

double result_value(Number type, const void* c) {
  if (type == Number::bits16) return read<uint16_t>(c);
  if (is_integer(type)) return read<uint32_t>(c);
  return type == Number::f64 ? read<double>(c) : read<float>(c);
}

}  // namespace

bool is_integer(Number n) { return n == Number::s8 || n == Number::u8 || n == Number::bits16; }

int bytes_of(Number n) {
  if (n == Number::s8 || n == Number::u8) return 1;
  if (n == Number::tf32) return 4;
  return n == Number::f64 ? 8 : 2;
}

int result_bytes_of(Number n) { return n == Number::bits16 ? 2 : n == Number::f64 ? 8 : 4; }

double value_of(Number n, const void* element, bool rounds) {
  switch (n) {
    case Number::f16:
      return half_value(read<uint16_t>(element));
    case Number::bf16:
      return std::bit_cast<float>(uint32_t{read<uint16_t>(element)} << 16);
    case Number::tf32:
      return std::bit_cast<float>((read<uint32_t>(element) + (rounds ? 0x1000u : 0)) & ~0x1fffu);
    case Number::f64:
      return read<double>(element);
    case Number::s8:
      return read<int8_t>(element);
    case Number::u8:
      return read<uint8_t>(element);
    default:
      return read<uint16_t>(element);
  }
}

MatrixData make_data(const MatrixCase& c, Fill fill, std::mt19937& random) {
  const int bytes = bytes_of(c.number), result = result_bytes_of(c.number), depth = std::max(c.k, 1);
  const Number sums = is_integer(c.number) || c.number == Number::f64 ? c.number : Number::tf32;
  MatrixData d;
  d.a = fill_matrix(c.number, bytes, c.k ? c.m * depth : c.m * c.n, fill, random);
  d.b = fill_matrix(c.number, bytes, depth * c.n, fill, random);
  d.c = fill_matrix(sums, result, c.m * c.n, fill, random);
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j) {
      const int at = i * c.n + j;
      if (c.k == 0) {
        d.expected.push_back(value_of(c.number, d.a.data() + at * bytes, false)), d.magnitude.push_back(0);
        continue;
      }
      long double sum = c.accumulates ? result_value(c.number, d.c.data() + at * result) : 0;
      double magnitude = std::abs(double(sum)) + (c.accumulates ? 0 : 1);
      for (int k = 0; k < c.k; ++k) {
        const int ia = c.a_by_columns ? k * c.m + i : i * c.k + k,
                  ib = c.b_by_columns ? j * c.k + k : k * c.n + j;
        const double x = value_of(c.number, d.a.data() + ia * bytes, c.rounds);
        const double y = value_of(c.number, d.b.data() + ib * bytes, c.rounds);
        sum += static_cast<long double>(x) * y, magnitude += std::abs(x * y);
      }
      d.expected.push_back(is_integer(c.number) ? uint32_t(int64_t(sum)) : double(sum));
      d.magnitude.push_back(magnitude);
    }
  return d;
}

double error_of(const MatrixCase& c, const MatrixData& d, Fill fill, const void* result) {
  // Tensor cores cut bits off where they add float32: they err by up to 1.4 units of 2^-23 of the magnitude,
  // as measured for k up to 64.
  const double unit = is_integer(c.number) || fill == Fill::exact ? 0
                      : c.number == Number::f64                   ? std::ldexp(c.k + 1, -53)
                                                                  : std::ldexp(2 + c.k / 16.0, -23);
  double worst = 0;
  for (size_t i = 0; i < d.expected.size(); ++i) {
    const double x = result_value(
        c.number, static_cast<const unsigned char*>(result) + i * size_t(result_bytes_of(c.number)));
    const double error = std::abs(x - d.expected[i]), bound = unit * d.magnitude[i];
    if (std::isnan(x) || error > bound) return INFINITY;
    if (bound > 0) worst = std::max(worst, error / bound);
  }
  return worst;
}

}  // namespace fastgemm::test
