// Checks one row of the kernel table against plain loops, with all kinds of shapes and layouts that the op
// allows. The operands' memory has exactly their size.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "core/table.h"

namespace fastgemm::test {

// Counts a wrong result, and prints the first ones of a row.
void report(const Kernel&, DType, const std::string& what);
int failures();

std::vector<DType> types_of(const Kernel&);

// An exception of the kernel counts as a wrong result.
void check_row(const Kernel&, DType, std::mt19937& random);

}  // namespace fastgemm::test
