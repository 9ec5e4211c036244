#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

bool takes_vectors(const void* data, int element_bytes, int64_t row_stride, int64_t col_stride,
                   int64_t batch_stride) {
  const auto whole = [&](int64_t stride) { return stride * element_bytes % 16 == 0; };
  return (row_stride == 1 || col_stride == 1) && is_aligned(static_cast<const char*>(data), 16) &&
         whole(col_stride == 1 ? row_stride : col_stride) && whole(batch_stride);
}

template <class T>
ResultVectors result_vectors(const Result<T>& r) {
  const int bytes = r.out_bytes();
  return {takes_vectors(r.out, bytes, r.row_stride, 1, r.batch_stride),
          r.c_col_stride == 1 && takes_vectors(r.c, bytes, r.c_row_stride, 1, r.c_batch_stride)};
}

template ResultVectors result_vectors(const Result<double>&);
template ResultVectors result_vectors(const Result<float>&);
template ResultVectors result_vectors(const Result<Half>&);
template ResultVectors result_vectors(const Result<BFloat16>&);
template ResultVectors result_vectors(const Result<int8_t>&);
template ResultVectors result_vectors(const Result<int32_t>&);
template ResultVectors result_vectors(const Result<int64_t>&);
template ResultVectors result_vectors(const Result<uint8_t>&);
template ResultVectors result_vectors(const Result<int16_t>&);

}  // namespace fastgemm::FASTGEMM_TARGET
