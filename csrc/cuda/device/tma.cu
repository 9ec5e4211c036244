#include <array>
#include <stdexcept>
#include <string>

#include "cuda/device/tma.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Looks up a function of the driver at first use, so that the library loads without a driver.
template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
    throw std::runtime_error(std::string("fastgemm: the driver has no ") + name);
  return reinterpret_cast<Function>(function);
}

CUtensorMapDataType type_of(const TensorShape& s) {
  if (s.to_tf32) return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  switch (s.element_bytes) {
    case 1:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case 2:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case 4:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
  }
}

CUtensorMapSwizzle mode_of(Swizzle s) {
  switch (s) {
    case Swizzle::bytes32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::bytes64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::bytes128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

TensorMap encode(const TensorShape& s) {
  static const auto encode_tiled =
      driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  TensorMap map;
  const cuuint64_t sizes[] = {cuuint64_t(s.columns), cuuint64_t(s.rows), cuuint64_t(s.planes)};
  const cuuint64_t strides[] = {cuuint64_t(s.row_stride_bytes), cuuint64_t(s.plane_stride_bytes)};
  const cuuint32_t box[] = {cuuint32_t(s.box_columns), cuuint32_t(s.box_rows), cuuint32_t(s.box_planes)};
  const cuuint32_t element_strides[] = {1, 1, 1};
  const auto encoded = [&] {
    return encode_tiled(&map, type_of(s), 3, const_cast<void*>(s.data), sizes, strides, box, element_strides,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, mode_of(s.swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = encoded();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {  // this thread has not called the runtime yet
    int device = 0;
    if (cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess) result = encoded();
  }
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("fastgemm: cuTensorMapEncodeTiled failed with code " +
                             std::to_string(int(result)));
  return map;
}

// A TMA descriptor has a layout and an address. From call to call of a layer only the address changes, so
// descriptors are kept by their layout.
struct Known {
  TensorShape shape{};
  TensorMap map;
};

bool same_layout(const TensorShape& x, const TensorShape& y) {
  return x.element_bytes == y.element_bytes && x.columns == y.columns && x.rows == y.rows &&
         x.planes == y.planes && x.row_stride_bytes == y.row_stride_bytes &&
         x.plane_stride_bytes == y.plane_stride_bytes && x.box_columns == y.box_columns &&
         x.box_rows == y.box_rows && x.swizzle == y.swizzle && x.to_tf32 == y.to_tf32 &&
         x.box_planes == y.box_planes;
}

size_t slot_of(const TensorShape& s, size_t slots) {
  uint64_t h = 0;
  for (const int64_t word : {s.columns, s.rows, s.planes, s.row_stride_bytes, s.plane_stride_bytes,
                             int64_t(s.box_columns) << 32 | int64_t(s.box_planes) << 16 | s.box_rows,
                             int64_t(s.element_bytes) << 32 | int64_t(s.swizzle) << 1 | int64_t(s.to_tf32)})
    h = (h ^ uint64_t(word)) * 0x9e3779b97f4a7c15u, h ^= h >> 32;
  return h % slots;
}

}  // namespace

TensorMap make_tensor_map(const TensorShape& s) {
  if (s.swizzle != Swizzle::none && s.box_columns * s.element_bytes != int(s.swizzle))
    throw std::runtime_error("fastgemm: the rows of a tensor map's box must be as long as its swizzle");
  thread_local std::array<Known, 256> kept;  // enough for the layers of a model
  Known& known = kept[slot_of(s, kept.size())];
  if (known.shape.data == nullptr || !same_layout(known.shape, s)) {
    known.map = encode(s);
    known.shape = s;
    return known.map;
  }
  static const auto replace =
      driver_function<decltype(&cuTensorMapReplaceAddress)>("cuTensorMapReplaceAddress");
  if (known.shape.data != s.data) {
    if (const CUresult result = replace(&known.map, const_cast<void*>(s.data)); result != CUDA_SUCCESS)
      throw std::runtime_error("fastgemm: cuTensorMapReplaceAddress failed with code " +
                               std::to_string(int(result)));
    known.shape.data = s.data;
  }
  return known.map;
}

}  // namespace fastgemm::FASTGEMM_TARGET
