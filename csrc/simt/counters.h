// The cost of one warp-wide request, a pure function of the addresses of its lanes.
#pragma once

#include <array>
#include <cstdint>

#include "simt/session.h"

namespace fastgemm::simt {

struct Request {
  Kind kind = Kind::load;
  int bytes = 0;       // per lane
  uint32_t lanes = 0;  // a bit for each active lane
  std::array<uintptr_t, runtime::kWarp> address;
};

struct Cost {
  int sectors = 0;     // 32-byte sectors of memory that are accessed
  int wavefronts = 0;  // passes over the 32 banks of shared memory
  int ideal_wavefronts = 0;
  int bytes_used = 0;  // distinct bytes
};

Cost global_cost(const Request&);
Cost shared_cost(const Request&);

}  // namespace fastgemm::simt
