// A simulation: what it is asked for, and what it saw of the kernels that it ran. Each OS thread has its own;
// their launches take turns (runtime::one_at_a_time).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "simt/runtime.h"

namespace fastgemm::simt {

enum class Space : uint8_t { none, global, shared };
// What an instruction does to memory; matrix instructions as PTX calls them.
enum class Kind : uint8_t {
  load,
  store,
  async_copy,    // cp.async
  bulk_load,     // cp.async.bulk.tensor, global to shared
  bulk_store,    // and back
  matrix_load,   // ldmatrix
  matrix_store,  // stmatrix
  mma,           // mma.sync, wmma, wgmma
};
std::string_view to_string(Space);
std::string_view to_string(Kind);
inline bool writes_shared(Kind k) {
  return k != Kind::load && k != Kind::matrix_load && k != Kind::bulk_store;
}

struct Options {
  bool count = false;          // keep counters by site
  bool raise_problems = true;  // a problem ends the launch with an exception; otherwise it is kept
  int multiprocessors = 3;     // few, so that persistent blocks take several turns even on a small problem
  int64_t max_blocks = 0;      // of a grid, count this many; 0: all
  bool run = true;             // false: launches are held to what the GPU gives a block, and no block runs
};

// One place in a kernel's code that accesses one kind of memory, with what all warps did there.
struct Site {
  uint32_t pc = 0;  // return address of the instrumented access, from the start of the module
  Space space = Space::none;
  Kind kind = Kind::load;
  int bytes = 0;            // of one lane
  std::string instruction;  // mma only
  std::string buffer;       // where the first access went

  int64_t requests = 0, lanes = 0;
  int64_t sectors = 0;                           // global: of 32 bytes
  int64_t wavefronts = 0, ideal_wavefronts = 0;  // shared
  int64_t bytes_used = 0;                        // distinct bytes that the lanes asked for
  int64_t flops = 0;
  std::array<int64_t, runtime::kWarp>
      example;  // offsets in the buffer of the costliest request; -1: no access
  int64_t example_cost = -1;
};

struct Problem {
  std::string check, message;
  std::vector<uint32_t> sites;
  dim3 block, thread;
  int64_t count = 1;
};

struct Buffer {
  std::string name;
  int64_t bytes, bytes_touched;  // in 32-byte sectors
};

struct Launch {
  std::string row;  // of the kernel table, whose launcher launched it
  std::string kernel, function;
  dim3 grid, block;
  int cluster = 1;  // blocks
  int64_t dynamic_shared = 0, static_shared = 0;
  int64_t blocks = 0, blocks_counted = 0, barriers = 0;
  int64_t bytes_in_flight = 0;  // most at once in one block
  bool complete = true;         // every block ran
  std::vector<Buffer> buffers;
  std::map<std::tuple<uint32_t, Space, std::string>, Site> sites;
  std::vector<Problem> problems;
};

struct Session {
  Options options;
  std::string_view row;  // that runs
  std::vector<Launch> launches;

  Launch& launch() { return launches.back(); }
};

Session& session();  // of the calling thread

// The simulated GPU found a mistake in the kernel. Says so at once if options.raise_problems (the block
// stops), and once for each check and set of sites otherwise.
void report(const char* check, const std::string& message, std::vector<uint32_t> sites);
// The same where the block cannot go on.
[[noreturn]] void report_and_stop(const char* check, const std::string& message, std::vector<uint32_t> sites);

}  // namespace fastgemm::simt
