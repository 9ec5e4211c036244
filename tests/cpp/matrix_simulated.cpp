#include "matrix_check.h"
#include "simt/memory.h"

namespace fastgemm::test {
namespace {

// What the kernels may touch.
void add_buffers(const MatrixData& d, const Bytes& result) {
  simt::memory::remove_all_global();
  simt::memory::add_global(d.a.data(), d.a.size(), "a", false, true);
  simt::memory::add_global(d.b.data(), d.b.size(), "b", false, true);
  simt::memory::add_global(result.data(), result.size(), "c", true, true);
}

}  // namespace

Bytes simulate(const MatrixCase& c, const MatrixData& d, Swap swap) {
  Bytes result = d.c;
  add_buffers(d, result);
  c.run(d.a.data(), d.b.data(), result.data(), swap);
  return result;
}

Bytes simulate_pipeline(const MatrixCase& shape, const MatrixData& d, Mistake mistake) {
  Bytes result = d.c;
  add_buffers(d, result);
  simt::pipelined_product(d.a.data(), d.b.data(), reinterpret_cast<float*>(result.data()), shape.m, shape.n,
                          shape.k, mistake);
  return result;
}

}  // namespace fastgemm::test
