// The passes that complete products: before, after and between the rows of the table. Each device has its
// own.
#pragma once

#include "core/dequantize.h"
#include "core/doubled_rows.h"
#include "core/epilogue_pass.h"
#include "core/experts.h"
#include "core/fp8.h"
#include "core/mirror.h"
#include "core/table.h"

namespace fastgemm {

struct Passes {
  void (*double_rows)(const DoubledRows&, Context&) = nullptr;  // before complex products
  void (*mirror)(const Mirror&, Context&) = nullptr;            // after symmetric products
  void (*epilogue)(const EpiloguePass&, Context&) = nullptr;    // after rows that do not apply epilogues
  void (*dequantize)(const Dequantize&, Context&) = nullptr;    // before rows that take no packed weights
  void (*widen_fp8)(const WidenFp8&, Context&) = nullptr;       // before products of 8-bit floating point
  void (*quantize_fp8)(const QuantizeFp8&, Context&) = nullptr;
  void (*route_tokens)(const RouteTokens&, Context&) = nullptr;  // around products of experts
  void (*combine_rows)(const CombineRows&, Context&) = nullptr;
  void (*combine_gradients)(const CombineGradients&, Context&) = nullptr;
};
const Passes& passes_of(Device);

// Contributed by each backend, as its rows are. The passes for CUDA are null where its code was not built.
const Passes& cpu_passes();
const Passes& cuda_passes();

}  // namespace fastgemm
