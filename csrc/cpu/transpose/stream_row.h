// Writes a part of a row with non-temporal stores, for transpose and add.
#pragma once

#include "cpu/transpose/simd.h"

namespace fastgemm::FASTGEMM_ISA {

// Writes bytes [begin, end) of the row that starts at `row`: whole lines with non-temporal stores, and the
// rest at either end with ordinary ones. `data` points to the byte for position `begin`.
FASTGEMM_INLINE void stream_row(char* row, const char* data, int64_t begin, int64_t end) {
  char *p = row + begin, *const stop = row + end;
  int64_t head = -reinterpret_cast<intptr_t>(p) & (kLine - 1);
  if (head > end - begin) head = end - begin;
  if (head) std::memcpy(p, data, head);
  p += head;
  data += head;
  for (; p + kLine <= stop; p += kLine, data += kLine) {
#pragma GCC unroll 4
    for (int k = 0; k < kLine; k += Widest::kBytes) Widest::stream(p + k, Widest::load(data + k));
  }
  if (p < stop) std::memcpy(p, data, stop - p);
}

// Orders the non-temporal stores before later stores, such as a flag that another thread reads.
FASTGEMM_INLINE void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace fastgemm::FASTGEMM_ISA
