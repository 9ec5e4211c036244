// A simulation: its options, and what it recorded about the kernels that it ran. Each OS thread has its own;
// only one launch runs at a time (runtime::one_at_a_time).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "simt/host.h"

namespace fastgemm::simt {

enum class Space : uint8_t { none, global, shared };
// The kinds of instructions that access memory, with PTX's names for matrix instructions.
enum class Kind : uint8_t {
  load,
  store,
  async_copy,    // cp.async
  bulk_load,     // cp.async.bulk.tensor, global to shared
  bulk_store,    // the same, shared to global
  matrix_load,   // ldmatrix
  matrix_store,  // stmatrix
  mma,           // mma.sync, wmma, wgmma
};
std::string_view to_string(Space);
std::string_view to_string(Kind);

struct Options {
  bool count = false;          // keep counters per site
  bool raise_problems = true;  // a problem throws and ends the launch; otherwise it is recorded
  int multiprocessors = 3;     // few, so that persistent blocks get several tiles even in a small problem
  int64_t max_blocks = 0;      // how many blocks of a grid to count; 0: all
  bool run = true;             // false: launches are only checked against the limits of the GPU
};

// One place in a kernel's code that accesses one kind of memory, with the counters of all warps.
struct Site {
  uint32_t pc = 0;  // return address of the instrumented access, relative to the module
  Space space = Space::none;
  Kind kind = Kind::load;
  int bytes = 0;            // per lane
  std::string instruction;  // mma only
  std::string buffer;       // the buffer of the first access

  int64_t requests = 0, lanes = 0;
  int64_t sectors = 0;                           // global; 32 bytes each
  int64_t wavefronts = 0, ideal_wavefronts = 0;  // shared
  int64_t bytes_used = 0;                        // distinct bytes that the lanes requested
  int64_t flops = 0;
  std::array<int64_t, runtime::kWarp>
      example;  // the costliest request: its offsets in the buffer; -1: no access
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
  std::string row;  // the row of the kernel table that launched it
  std::string kernel, function;
  dim3 grid, block;
  int cluster = 1;  // blocks
  int64_t dynamic_shared = 0, static_shared = 0;
  int64_t blocks = 0, blocks_counted = 0, barriers = 0;
  int64_t bytes_in_flight = 0;  // maximum in one block
  bool complete = true;         // every block ran
  std::vector<Buffer> buffers;
  std::map<std::tuple<uint32_t, Space, std::string>, Site> sites;
  std::vector<Problem> problems;
};

struct Session {
  Options options;
  std::string_view row;  // the one that runs
  std::vector<Launch> launches;

  Launch& launch() { return launches.back(); }
};

Session& session();  // of the calling thread

// Reports an error in the kernel. With options.raise_problems it throws and the block stops. Otherwise each
// combination of check and sites is recorded once.
void report(const char* check, const std::string& message, std::vector<uint32_t> sites);
// The same if the block cannot continue.
[[noreturn]] void report_and_stop(const char* check, const std::string& message, std::vector<uint32_t> sites);

}  // namespace fastgemm::simt
