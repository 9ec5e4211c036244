// Data for the cases of matrix_cases.h, what they must give, and how close a result is.
#pragma once

#include <random>

#include "matrix_cases.h"

namespace fastgemm::test {

// Of floating-point types: integers so small that every sum is exact, whatever its order; or of any value.
enum class Fill { exact, random };

// Aligned as device memory is.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(size_t size) : lines_((size + 63) / 64), size_(size) {}
  size_t size() const { return size_; }
  unsigned char* data() { return lines_.data()->bytes; }
  const unsigned char* data() const { return lines_.data()->bytes; }

 private:
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  std::vector<Line> lines_;
  size_t size_ = 0;
};

struct MatrixData {
  Bytes a, b, c;
  // Element by element: the result (integers modulo 2^32), and the sum of the magnitudes that are added.
  std::vector<double> expected, magnitude;
};

MatrixData make_data(const MatrixCase&, Fill, std::mt19937& random);

// The largest error of a result, as a share of what rounding explains: 0 is exact, above 1 is wrong, and any
// error is where there is nothing to round.
double error_of(const MatrixCase&, const MatrixData&, Fill, const void* c);

// c as the simulator computes it (of the case of simt::matrix_cases()).
Bytes simulate(const MatrixCase&, const MatrixData&, Swap);
Bytes simulate_pipeline(const MatrixCase& shape, const MatrixData&, Mistake);

bool is_integer(Number);
double value_of(Number, const void* element, bool rounds);
int bytes_of(Number);         // of an element of a and b
int result_bytes_of(Number);  // of c

}  // namespace fastgemm::test
