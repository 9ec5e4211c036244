// Loads 16 bytes from any address by aligned vector loads: the two aligned units that hold them are loaded,
// and are shifted into one when it is needed. No byte outside [begin, end) is read.
//
//   begin    aligned   p              aligned + 16       p + 16               end
//     |---------|======#==================|==============#-------------------|
//               <---------- low ---------> <---------- high -------->
#pragma once

#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Loads `valid` elements from p on, one by one; the others are zero. This is for the end of a row, because
// the elements after it do not belong to the product, and for the end of a matrix, because nothing may be
// read outside it.
template <class T>
__device__ __forceinline__ Unit first_elements(const T* p, int valid) {
  Vector16<T> v;
  FASTGEMM_UNROLL
  for (int i = 0; i < kPer16Bytes<T>; ++i) v[i] = i < valid ? p[i] : T{};
  Unit unit;
  std::memcpy(&unit, &v, sizeof unit);
  return unit;
}

// SIZE is the bytes of an element; addresses are multiples of it. Several units can be loaded before the
// first is taken, so that their loads are in flight together.
template <int SIZE>
class UnalignedUnit {
 public:
  // Loads the units that hold the 16 bytes at p. Returns false where these units do not lie in [begin, end).
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
  // Sets the unit to one that was loaded in another way.
  __device__ __forceinline__ void set(const Unit& unit) { low_ = unit, offset_ = 0; }

  __device__ __forceinline__ Unit take() const { return bytes_at<SIZE>(low_, high_, offset_); }

 private:
  Unit low_, high_{};
  int offset_;  // where the 16 bytes begin in the two units
};

}  // namespace fastgemm::FASTGEMM_TARGET
