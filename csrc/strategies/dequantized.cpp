// Products with packed weights by rows that take matrices: the weight is converted into scratch memory, in
// the type of x, and the row that is predicted to be the fastest multiplies it. The conversion reads the
// codes once and writes the matrix once. This is little beside a product of many rows of x.
#include "core/can_run.h"
#include "core/passes.h"
#include "core/simulator.h"
#include "strategies/strategies.h"

namespace fastgemm::strategies {
namespace {

// Each row starts at a multiple of 128 bytes.
int64_t pitch_of(const GemmProblem& p) {
  const int64_t elements = 128 / element_size(p.type);
  return (p.k + elements - 1) / elements * elements;
}

GemmProblem with_matrix(const GemmProblem& p) {
  GemmProblem q = p;
  q.packed = {};
  q.b = {nullptr, 1, pitch_of(p), 0};
  return q;
}

// The row that multiplies. If the product must be invariant, it is a row that obeys GemmProblem::invariant.
const Kernel* row_for(const GemmProblem& p, Device device, int threads) {
  return p.invariant ? invariant_row(p, device, threads) : fastest(p, device, threads).row;
}

}  // namespace

void gemm_dequantized(const GemmProblem& p, Device device, Context& context) {
  GemmProblem q = with_matrix(p);
  const Kernel* row = row_for(q, device, context.threads());
  void* matrix = context.allocate(size_t(p.n * pitch_of(p)) * element_size(p.type));
  passes_of(device).dequantize({p.type, p.n, p.k, p.b.data, p.packed, {matrix, pitch_of(p), 1, 0}}, context);
  q.b.data = matrix;
  row->gemm(q, context);
}

const char* beyond_dequantized(const GemmProblem& p, Device device) {
  if (p.packed.units != (device != Device::cpu)) return "the codes lie in the order of another device";
  return row_for(with_matrix(p), device, 1) ? nullptr : "no row takes the matrix that the weight would be";
}

bool fuses_dequantized(const GemmProblem& p, Device device) {
  const GemmProblem q = with_matrix(p);
  const Kernel* row = row_for(q, device, 1);
  return row && row->fuses && row->fuses(q);
}

double dequantized_seconds(const GemmProblem& p, Device device, int threads) {
  const double n = double(p.n), k = double(p.k);
  const double bytes = n * k * (bits_of(p.packed.code) / 8.0 + element_size(p.type));
  // Most of the time goes into writing; a CPU core converts 2e9 codes a second.
  constexpr double kCodesASecond = 2e9, kLaunch = 2e-6, kOfBandwidth = 0.75;
  const double conversion = device == Device::cpu
                                ? n * k / (kCodesASecond * threads)
                                : kLaunch + bytes / (kOfBandwidth * current_gpu().bandwidth);
  return conversion + fastest(with_matrix(p), device, threads).seconds;
}

}  // namespace fastgemm::strategies
