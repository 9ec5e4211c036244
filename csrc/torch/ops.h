// The boxed kernels that library.cpp registers.
#pragma once

#include "torch/boxed.h"

namespace fastgemm::torch_ops {

void gemm(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void matmul(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void gemm_out(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void linear(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void quantized_linear(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void dequantize(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void grouped_mm(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void scaled_mm(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void scaled_grouped_mm(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void quantize_fp8(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void quantize_fp8_with_transposed(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void gathered_mm(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void route_tokens(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void combine_rows(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void combine_gradients(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void transpose(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void transpose_out(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void add(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void add_out(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void add_in_place(StableIValue* stack, uint64_t inputs, uint64_t outputs);

}  // namespace fastgemm::torch_ops
