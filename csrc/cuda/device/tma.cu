#include <stdexcept>
#include <string>

#include "cuda/device/tma.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Looked up at first use, so that the library needs no driver to load.
auto encode_function() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
      throw std::runtime_error("fastgemm: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
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

}  // namespace

TensorMap make_tensor_map(const TensorShape& s) {
  if (s.swizzle != Swizzle::none && s.box_columns * s.element_bytes != int(s.swizzle))
    throw std::runtime_error("fastgemm: a tensor map needs rows of the box as long as its swizzle says");
  TensorMap map;
  const cuuint64_t sizes[] = {cuuint64_t(s.columns), cuuint64_t(s.rows), cuuint64_t(s.planes)};
  const cuuint64_t strides[] = {cuuint64_t(s.row_stride_bytes), cuuint64_t(s.plane_stride_bytes)};
  const cuuint32_t box[] = {cuuint32_t(s.box_columns), cuuint32_t(s.box_rows), 1};
  const cuuint32_t element_strides[] = {1, 1, 1};
  const auto encode = [&] {
    return encode_function()(&map, type_of(s), 3, const_cast<void*>(s.data), sizes, strides, box,
                             element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, mode_of(s.swizzle),
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = encode();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {  // a thread that asked the runtime for nothing yet
    int device = 0;
    if (cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess) result = encode();
  }
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("fastgemm: cuTensorMapEncodeTiled failed with code " +
                             std::to_string(int(result)));
  return map;
}

}  // namespace fastgemm::FASTGEMM_TARGET
