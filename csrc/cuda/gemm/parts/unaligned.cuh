// 16 bytes from any address, in one instruction's vectors: the two aligned units around them are loaded, and
// shifted into one when they are needed. No byte outside [begin, end) is read.
//
//   begin    aligned   p              aligned + 16       p + 16               end
//     |---------|======#==================|==============#-------------------|
//               <---------- low ---------> <---------- high -------->
#pragma once

#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The first `valid` elements from p on, then zeros, one load each: at the ends of a row, beyond which nothing
// counts, and of a matrix, beyond which nothing may be read.
template <class T>
__device__ __forceinline__ Unit first_elements(const T* p, int valid) {
  Vector16<T> v;
  FASTGEMM_UNROLL
  for (int i = 0; i < kPer16Bytes<T>; ++i) v[i] = i < valid ? p[i] : T{};
  Unit unit;
  std::memcpy(&unit, &v, sizeof unit);
  return unit;
}

// SIZE: bytes of an element, of which addresses are multiples. Loads of several units can be in flight before
// the first is taken.
template <int SIZE>
class UnalignedUnit {
 public:
  // Loads the units around the 16 bytes at p; false where they do not lie in [begin, end).
  template <class T>
  __device__ __forceinline__ bool load(const T* p, const T* begin, const T* end) {
    constexpr int kUnit = kPer16Bytes<T>;
    offset_ = int(reinterpret_cast<uintptr_t>(p) % 16);
    const T* const aligned = p - offset_ / int(sizeof(T));
    if (aligned < begin || aligned + (offset_ ? 2 * kUnit : kUnit) > end) return false;
    low_ = load_vector<Unit>(aligned);
    if (offset_) high_ = load_vector<Unit>(aligned + kUnit);
    return true;
  }
  // Holds a unit that was made otherwise.
  __device__ __forceinline__ void set(const Unit& unit) { low_ = unit, offset_ = 0; }

  __device__ __forceinline__ Unit take() const { return bytes_at<SIZE>(low_, high_, offset_); }

 private:
  Unit low_, high_{};
  int offset_;  // bytes before those that count
};

}  // namespace fastgemm::FASTGEMM_TARGET
