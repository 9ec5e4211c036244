// What one warp-wide request costs: a pure function of the addresses of its lanes.
#pragma once

#include <array>
#include <cstdint>

#include "simt/session.h"

namespace fastgemm::simt {

struct Request {
  Kind kind = Kind::load;
  int bytes = 0;       // of each lane
  uint32_t lanes = 0;  // a bit for each that takes part
  std::array<uintptr_t, runtime::kWarp> address;
};

struct Cost {
  int sectors = 0;     // 32-byte pieces of memory that hold what was asked for
  int wavefronts = 0;  // passes over the 32 banks of shared memory
  int ideal_wavefronts = 0;
  int bytes_used = 0;  // distinct ones
};

Cost global_cost(const Request&);
Cost shared_cost(const Request&);

}  // namespace fastgemm::simt
