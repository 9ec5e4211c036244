// The simulator's counterpart of cuda/device/launch.cu and tma.cu.
#include <stdexcept>
#include <string>

#include "core/simulator.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/tma.cuh"
#include "simt/session.h"

namespace fastgemm::simt {

int multiprocessors() { return session().options.multiprocessors; }
int64_t block_bytes() { return simulated_gpu().shared_bytes; }

// Checks the rules of cuTensorMapEncodeTiled without interleave.
TensorMap make_tensor_map(const TensorShape& s) {
  const auto require = [](bool holds, const char* rule) {
    if (!holds) throw std::runtime_error(std::string("fastgemm: a tensor map needs ") + rule);
  };
  const auto multiple_of_16 = [](int64_t x) { return x % 16 == 0; };
  const auto extent = [](int64_t x) { return x >= 1 && x <= int64_t{1} << 32; };
  const auto box = [](int x) { return x >= 1 && x <= 256; };
  const auto stride = [&](int64_t x) { return multiple_of_16(x) && x > 0 && x < int64_t{1} << 40; };
  require(s.element_bytes == 1 || s.element_bytes == 2 || s.element_bytes == 4 || s.element_bytes == 8,
          "elements of 1, 2, 4 or 8 bytes");
  require(reinterpret_cast<uintptr_t>(s.data) % 16 == 0, "data aligned to 16 bytes");
  require(extent(s.columns) && extent(s.rows) && extent(s.planes), "1 to 2^32 columns, rows and planes");
  require(stride(s.row_stride_bytes) && stride(s.plane_stride_bytes),
          "strides that are multiples of 16 bytes, above 0 and below 2^40");
  require(box(s.box_columns) && box(s.box_rows) && box(s.box_planes),
          "a box of 1 to 256 columns, rows and planes");
  require(multiple_of_16(int64_t(s.box_columns) * s.element_bytes), "rows of the box of whole 16 bytes");
  require(s.swizzle == Swizzle::none || s.box_columns * s.element_bytes == int(s.swizzle),
          "rows of the box as long as its swizzle says");
  require(!s.to_tf32 || s.element_bytes == 4, "elements of 4 bytes to round them to tf32");
  return {static_cast<const std::byte*>(s.data),
          s.element_bytes,
          s.columns,
          s.rows,
          s.planes,
          s.row_stride_bytes,
          s.plane_stride_bytes,
          s.box_columns,
          s.box_rows,
          int(s.swizzle),
          s.to_tf32,
          s.box_planes};
}

}  // namespace fastgemm::simt
