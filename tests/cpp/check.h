// Checks one row of the kernel table against plain loops: all shapes and layouts that the op allows, on
// memory of exactly the size of the operands.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "core/table.h"

namespace fastgemm::test {

// Counts a wrong result; the first ones of a row are printed.
void report(const Kernel&, DType, const std::string& what);
int failures();

std::vector<DType> types_of(const Kernel&);

// An exception out of the kernel counts as a wrong result.
void check_row(const Kernel&, DType, std::mt19937& random);

}  // namespace fastgemm::test
