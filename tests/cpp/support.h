// Shared by the C++ tests: memory between guard pages, a context with std::thread, matrices in memory of
// exactly their size, and elements of every type as numbers.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/context.h"

// Defined only in programs with AddressSanitizer.
extern "C" [[gnu::weak]] void __asan_poison_memory_region(const volatile void*, size_t);
extern "C" [[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, size_t);

namespace fastgemm::test {

constexpr unsigned char kUntouched = 0xA5;

// Memory between two guard pages. An access just before the memory faults, or just after it with `at_end`,
// even in code without instrumentation. AddressSanitizer guards the rest of the pages.
class Guarded {
 public:
  Guarded(size_t bytes, bool at_end, size_t alignment = 1) : page_(size_t(sysconf(_SC_PAGESIZE))) {
    const size_t inside = (bytes + page_ - 1) / page_ * page_;
    size_ = inside + 2 * page_;
    void* const mapped = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    pages_ = static_cast<std::byte*>(mapped);
    std::byte* const first = pages_ + page_;
    if (inside && mprotect(first, inside, PROT_READ | PROT_WRITE)) throw std::bad_alloc();
    data_ = at_end ? first + (inside - bytes) / alignment * alignment : first;
    poison(first, data_), poison(data_ + bytes, first + inside);
  }
  Guarded(Guarded&& other) noexcept
      : page_(other.page_),
        size_(other.size_),
        pages_(std::exchange(other.pages_, nullptr)),
        data_(other.data_) {}
  ~Guarded() {
    if (!pages_) return;
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(pages_, size_);
    munmap(pages_, size_);
  }
  std::byte* data() const { return data_; }

 private:
  static void poison(std::byte* begin, std::byte* end) {
    if (__asan_poison_memory_region) __asan_poison_memory_region(begin, size_t(end - begin));
  }

  size_t page_, size_;
  std::byte *pages_, *data_;
};

// Each task gets its own thread. Scratch memory is a fresh block of exactly the requested size, filled with
// NaN. Reads beyond it and reads of uninitialized memory are therefore noticed.
class ThreadContext final : public Context {
 public:
  explicit ThreadContext(int threads) : threads_(threads) {}
  int threads() const override { return threads_; }
  void parallel(int64_t tasks, Task task) override {
    if (threads_ == 1) return Context::parallel(tasks, task);
    std::vector<std::thread> pool;
    for (int64_t i = 0; i < tasks; ++i) pool.emplace_back(task, i);
    for (std::thread& t : pool) t.join();
  }
  void* allocate(size_t bytes) override {
    scratch_.emplace_back(bytes, true, kAlign);
    return std::memset(scratch_.back().data(), 0xff, bytes);
  }
  void callers_gemm(const GemmProblem&) override { throw std::logic_error("no torch here"); }
  void callers_transpose(const TransposeProblem&) override { throw std::logic_error("no torch here"); }

 private:
  static constexpr size_t kAlign = 64;
  int threads_;
  std::vector<Guarded> scratch_;
};

// The layout of a matrix in memory: the gap after each row (or column), the elements before the first one,
// which decide the alignment, and the side with the guard page, at most `alignment` bytes away.
struct Layout {
  bool column_major = false;
  int64_t gap = 0, offset = 0;
  bool at_end = false;
  size_t alignment = 1;
};

class Block {
 public:
  Block(DType type, int64_t batch, int64_t rows, int64_t cols, Layout layout)
      : type_(type), batch_(batch), rows_(rows), cols_(cols), first_(layout.offset * element_size(type)) {
    const int64_t ld = (layout.column_major ? rows : cols) + layout.gap;
    strides_ = {nullptr, layout.column_major ? 1 : ld, layout.column_major ? ld : 1,
                ld * (layout.column_major ? cols : rows) + layout.gap};
    const bool empty = rows == 0 || cols == 0;
    size_ = first_ + (empty ? 0 : (at(batch - 1, rows - 1, cols - 1) + 1) * element_size(type));
    memory_ = std::make_unique<Guarded>(size_t(size_), layout.at_end, layout.alignment);
    bytes_ = reinterpret_cast<unsigned char*>(memory_->data());
    std::memset(bytes_, kUntouched, size_t(size_));
  }

  Matrix view() const {
    Matrix m = strides_;
    m.data = bytes_ + first_;
    return m;
  }
  ConstMatrix read_only() const {
    const Matrix m = view();
    return {m.data, m.row_stride, m.col_stride, m.batch_stride};
  }
  unsigned char* element(int64_t batch, int64_t i, int64_t j) const {
    return bytes_ + first_ + at(batch, i, j) * element_size(type_);
  }
  template <class T>
  T get(int64_t batch, int64_t i, int64_t j) const {
    T x;
    std::memcpy(&x, element(batch, i, j), sizeof(T));
    return x;
  }
  double number(int64_t batch, int64_t i, int64_t j) const;
  int64_t integer(int64_t batch, int64_t i, int64_t j) const;  // exact value, for integer types
  void randomize(std::mt19937& random);

  // Whether the bytes between the elements are unchanged.
  bool gaps_untouched() const {
    std::vector<bool> used(static_cast<size_t>(size_), false);
    for_each([&](unsigned char* e) {
      for (int i = 0; i < element_size(type_); ++i) used[size_t(e - bytes_ + i)] = true;
    });
    for (int64_t i = 0; i < size_; ++i)
      if (!used[size_t(i)] && bytes_[size_t(i)] != kUntouched) return false;
    return true;
  }

 private:
  int64_t at(int64_t batch, int64_t i, int64_t j) const {
    return batch * strides_.batch_stride + i * strides_.row_stride + j * strides_.col_stride;
  }
  template <class Body>
  void for_each(const Body& body) const {
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t i = 0; i < rows_; ++i)
        for (int64_t j = 0; j < cols_; ++j) body(element(b, i, j));
  }

  DType type_;
  int64_t batch_, rows_, cols_, first_, size_;
  Matrix strides_;
  std::unique_ptr<Guarded> memory_;
  unsigned char* bytes_;
};

inline double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

inline double Block::number(int64_t batch, int64_t i, int64_t j) const {
  switch (type_) {
    case DType::f64:
      return get<double>(batch, i, j);
    case DType::f32:
      return get<float>(batch, i, j);
    case DType::f16:
      return half_value(get<uint16_t>(batch, i, j));
    case DType::bf16: {
      const uint32_t bits = uint32_t{get<uint16_t>(batch, i, j)} << 16;
      float x;
      std::memcpy(&x, &bits, sizeof(x));
      return x;
    }
    default:
      return double(integer(batch, i, j));
  }
}

inline int64_t Block::integer(int64_t batch, int64_t i, int64_t j) const {
  switch (type_) {
    case DType::i8:
      return get<int8_t>(batch, i, j);
    case DType::i64:
      return get<int64_t>(batch, i, j);
    case DType::u8:
      return get<uint8_t>(batch, i, j);
    case DType::i16:
      return get<int16_t>(batch, i, j);
    default:
      return get<int32_t>(batch, i, j);
  }
}

// Integers and bytes over their whole range; floats of both signs with magnitudes from 1/32 to 4.
inline void Block::randomize(std::mt19937& random) {
  for_each([&](unsigned char* e) {
    uint64_t bits = random() | uint64_t{random()} << 32;
    if (type_ == DType::f16) bits = (bits & 0x83ff) | (10 + (bits >> 20) % 7) << 10;
    if (type_ == DType::bf16) bits = (bits & 0x807f) | (122 + (bits >> 20) % 7) << 7;
    if (type_ == DType::f32) bits = (bits & 0x807fffff) | (122 + (bits >> 40) % 7) << 23;
    if (type_ == DType::f64) bits = (bits & 0x800fffffffffffff) | (1018 + (bits >> 20) % 7) << 52;
    for (int i = 0; i < element_size(type_); i += 8)
      std::memcpy(e + i, &bits, size_t(std::min(8, element_size(type_))));
  });
}

}  // namespace fastgemm::test
