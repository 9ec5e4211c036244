// torch's global flags that say what its own products compute, read from C++.
#pragma once

#include "core/problem.h"
#include "core/table.h"

namespace fastgemm::override {

// Of torch's float32 products on a GPU.
Precision torch_float32_precision();

// Whether torch's products are what was asked for (core/tuning.h, FrameworkProbe).
bool torch_computes(Device, DType, Precision);

}  // namespace fastgemm::override
