// Sees every access of a kernel: those of instrumented code through the callbacks of -fsanitize=thread, whose
// runtime is not linked, and those of emulated instructions through note(). Checks them at once, and counts
// them by warp-wide request and by site.
#pragma once

#include <cstdint>

#include "simt/session.h"

namespace fastgemm::simt {

// What one lane reads or writes in an emulated instruction, before it happens. `site` is the
// __builtin_return_address(0) of the function that the kernel calls.
void note(Kind, const void* address, int bytes, const void* site);
// An instruction of the asynchronous engines that moves `bytes` of global memory in `sectors` by itself.
void note_bulk(Kind, const void* address, int64_t bytes, int64_t sectors, const void* site);
// A matrix instruction; one lane of the warp (or of the warpgroup) calls it.
void note_mma(const char* instruction, int64_t flops, const void* site);

namespace trace {

uint32_t pc_of(const void* site);
// Whether the kernels were compiled with instrumentation. Without it they run, but what they do to memory is
// not seen, and nothing is checked against it.
bool instrumented();
// In a block that is not checked, only bounds are.
void begin_block(bool counted, bool checked);
void let_undefined(const void* address);  // the next access there may read what nothing wrote
bool counting();                          // in this block
// The lanes of a warp all wait: groups what they did since into requests.
void end_of_turn();
int64_t accesses();  // so far, of all launches

}  // namespace trace
}  // namespace fastgemm::simt
