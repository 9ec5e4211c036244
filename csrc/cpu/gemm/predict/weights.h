// Predicts products with packed weights. The constants are those of a Zen 5 with half-width vector units, or
// of an Emerald Rapids.
#pragma once

#include "core/cpu.h"
#include "core/problem.h"

namespace fastgemm::cpu_predict {

// Whether streamed_weights multiplies pairs of bfloat16, given the unit.
bool in_pairs(const GemmProblem&, bool has_unit);
double streamed_seconds(const GemmProblem&, const Cpu&, int threads);

// The bytes of codes and scales, for each weight.
double bytes_of_weight(const PackedWeight&);
// How long an engine takes to turn codes into numbers before it packs them.
double conversion_seconds(const GemmProblem&, const Cpu&, int threads);

}  // namespace fastgemm::cpu_predict
