// The residue number system in which products of float64, float32 and int64 are computed. Let P be the
// product of pairwise coprime moduli p_i. An integer of magnitude below P / 2 is determined by its residues
// (Chinese remainder theorem):
//
//   x = sum of weight_i * (x mod p_i), less a multiple of P
//   weight_i = 1 modulo p_i, 0 modulo the others
//
// Sums and products are computed for each modulus separately, on residues that fit in bytes: the tensor
// cores' int8.
//
// Method: Ozaki scheme II (Ozaki, Uchino, Imamura, arXiv:2504.08009). Here the norms of rows and columns
// bound the sums of products (Cauchy-Schwarz), so each operand keeps half of P's bits.
#pragma once

#include <cstdint>

namespace fastgemm::residues {

// The largest pairwise coprime numbers of at most 8 bits.
inline constexpr int kModuli[] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227,
                                  223, 217, 211, 199, 197, 193, 191, 181, 179};
inline constexpr int kMostModuli = 19;

// The number of products of residues, each at most 128, whose sum fits in 32 bits. (Sums modulo 256 may
// wrap.)
inline constexpr int64_t kMostTerms = int64_t{1} << 17;

// A nonnegative integer of up to 192 bits.
class Wide {
 public:
  constexpr explicit Wide(uint32_t x) : limb_{x} {}

  constexpr void multiply(uint32_t by) {
    uint64_t carry = 0;
    for (uint32_t& limb : limb_) {
      carry += uint64_t{limb} * by;
      limb = uint32_t(carry);
      carry >>= 32;
    }
  }
  constexpr uint32_t modulo(uint32_t p) const {
    uint64_t rest = 0;
    for (int i = kLimbs - 1; i >= 0; --i) rest = (rest << 32 | limb_[i]) % p;
    return uint32_t(rest);
  }
  constexpr int bits() const {
    int n = 32 * kLimbs;
    while (n > 0 && !(limb_[(n - 1) / 32] >> (n - 1) % 32 & 1)) --n;
    return n;
  }
  constexpr uint64_t low() const { return uint64_t{limb_[1]} << 32 | limb_[0]; }
  // The value of its bits [first, end), which keep their place values: exact for up to 53 bits, otherwise
  // rounded.
  constexpr double part(int first, int end) const {
    double sum = 0;
    for (int i = end - 1; i >= 0; --i)
      sum = 2 * sum + (i >= first ? double(limb_[i / 32] >> i % 32 & 1) : 0.0);
    return sum;
  }

 private:
  static constexpr int kLimbs = 6;
  uint32_t limb_[kLimbs] = {};
};

constexpr uint32_t inverse(uint32_t x, uint32_t p) {
  for (uint32_t y = 1; y < p; ++y)
    if (uint64_t{x} * y % p == 1) return y;
  return 0;
}

// An integer in two parts. `high` is a multiple of so large a power of two that sums of 19 products with
// residues are exact. `low` is the rounded rest.
struct Halves {
  double high, low;
};

// Integers that come from floating point are sums of words times powers of 2^31. With up to 8 moduli, they
// are limited to one word of signed bytes; with up to 15 moduli, they have at most 60 bits.
inline constexpr int kWordBits = 31, kMostWords = 3;
constexpr int words_of(int moduli) { return moduli <= 8 ? 1 : moduli <= 15 ? 2 : 3; }
inline constexpr double kMostWord = 0x7f7f7f7f;

// The constants of the kernels for a number of moduli.
struct System {
  int moduli;
  // From integers to residues: the place values of the bytes of an integer's words (cut.cuh) modulo p, four
  // in a register.
  uint32_t places[kMostModuli][kMostWords];
  float p[kMostModuli], inverse_p[kMostModuli];
  // From sums to residues: x - (x * reciprocal >> 38) * p is in [0, p]. The rounding error of the reciprocal
  // is at most a half, so the error of the quotient is |x| / 2^39 < 1 / 255 for all sums of kMostTerms
  // products.
  int32_t modulus[kMostModuli], reciprocal[kMostModuli];
  // From residues to integers: the weights and P as float64, and modulo 2^64. `share` is weight / P.
  Halves weight[kMostModuli], product;
  double inverse_product;
  uint64_t low_weight[kMostModuli], low_product;
  double share[kMostModuli];
  double norm_squared;  // the largest sum of the squares of a row's integers
};

constexpr int symmetric_residue(int r, int p) { return 2 * r > p ? r - p : r; }

inline constexpr int kSummedBits = 40;  // bits of a weight's high part: 19 * 255 times that is below 2^53

constexpr System make_system(int moduli, int word_bits) {
  System s{};
  s.moduli = moduli;
  Wide all(1);
  for (int i = 0; i < moduli; ++i) all.multiply(uint32_t(kModuli[i]));
  const int cut = all.bits() - kSummedBits;
  const auto halves = [&](const Wide& x) { return Halves{x.part(cut, all.bits() + 1), x.part(0, cut)}; };
  for (int i = 0; i < moduli; ++i) {
    const int p = kModuli[i];
    s.p[i] = float(p), s.inverse_p[i] = 1.0f / float(p);
    s.modulus[i] = p, s.reciprocal[i] = int32_t(((int64_t{1} << 38) + p / 2) / p);
    for (int byte = 0; byte < 4; ++byte)
      for (int word = 0; word < kMostWords; ++word) {
        Wide place(1);
        for (int bit = 0; bit < word_bits * word + 8 * byte; ++bit) place.multiply(2);
        s.places[i][word] |= uint32_t(symmetric_residue(int(place.modulo(uint32_t(p))), p) & 255) << 8 * byte;
      }
    Wide others(1);
    for (int j = 0; j < moduli; ++j)
      if (j != i) others.multiply(uint32_t(kModuli[j]));
    const uint32_t factor = inverse(others.modulo(uint32_t(p)), uint32_t(p));
    others.multiply(factor);
    s.weight[i] = halves(others);
    s.low_weight[i] = others.low(), s.share[i] = double(factor) / p;
  }
  s.low_product = all.low();
  s.product = halves(all);
  s.inverse_product = 1 / s.product.high;
  // Rounding to integers increases a row's norm by at most sqrt(k) / 2, and the estimate of the quotient
  // needs a margin.
  s.norm_squared = s.product.high / 2 * (1 - 0x1p-16);
  if (words_of(moduli) == 1 && s.norm_squared > kMostWord * kMostWord)
    s.norm_squared = kMostWord * kMostWord * (1 - 0x1p-16);
  return s;
}

// Systems of 14 to 18 moduli for float64, of 18 and 19 for the two words of an int64, and of 8 for float32.
inline constexpr System kSystems[] = {make_system(14, kWordBits), make_system(15, kWordBits),
                                      make_system(16, kWordBits), make_system(17, kWordBits),
                                      make_system(18, kWordBits)};
inline constexpr System kInt64Systems[] = {make_system(18, 32), make_system(19, 32)};
inline constexpr System kFloat32System = make_system(8, kWordBits);

}  // namespace fastgemm::residues
