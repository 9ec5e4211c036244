// The product of the fp64 rungs with the registers of its fragments in another order: what
// planted_faults.cmake puts into a copy of the kernel in the place of the product itself.
#pragma once

namespace fastgemm::test {

// Which register stands in the place of each: of a (16, 8), b (8, 8) and c (16, 8).
struct Exchange {
  int a[4] = {0, 1, 2, 3}, b[2] = {0, 1}, c[4] = {0, 1, 2, 3};
};
inline Exchange exchange;

template <class Multiply>
void multiply_exchanged(double (&sum)[4], const double (&a)[4], double b0, double b1, Multiply&& multiply) {
  const Exchange& x = exchange;
  const double b[2] = {b0, b1}, from[4] = {a[x.a[0]], a[x.a[1]], a[x.a[2]], a[x.a[3]]};
  double to[4] = {sum[x.c[0]], sum[x.c[1]], sum[x.c[2]], sum[x.c[3]]};
  multiply(to, from, b[x.b[0]], b[x.b[1]]);
  for (int i = 0; i < 4; ++i) sum[x.c[i]] = to[i];
}

}  // namespace fastgemm::test
