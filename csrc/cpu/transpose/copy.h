#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// Whether src is column-major already (or has a single row), so that dst is a plain copy of rows.
bool is_row_copy(const TransposeProblem&);

// Makes that copy on all threads; every level uses it.
void copy_rows(const TransposeProblem&, Context&);

}  // namespace fastgemm
