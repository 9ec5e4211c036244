// Reads, from C++, torch's global flags for the precision of its own products.
#pragma once

#include "core/problem.h"
#include "core/table.h"

namespace fastgemm::override {

// The precision of torch's float32 products on a GPU.
Precision torch_float32_precision();

// The FrameworkProbe of core/tuning.h: whether torch's products are as precise as asked for.
bool torch_computes(Device, DType, Precision);

}  // namespace fastgemm::override
