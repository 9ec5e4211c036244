// Records every memory access of a kernel. Instrumented code calls the callbacks of -fsanitize=thread (whose
// runtime is not linked); emulated instructions call note(). Each access is checked at once. Accesses are
// counted per warp-wide request and per site.
#pragma once

#include <cstdint>

namespace fastgemm::simt {

enum class Kind : uint8_t;  // session.h

// Records the access of one lane in an emulated instruction, before it happens. `site` is the
// __builtin_return_address(0) of the function that the kernel calls.
void note(Kind, const void* address, int bytes, const void* site);
// Records an instruction of the asynchronous engines that moves `bytes` of global memory in `sectors`.
void note_bulk(Kind, const void* address, int64_t bytes, int64_t sectors, const void* site);
// Records a matrix instruction; one lane of the warp (or of the warpgroup) calls it.
void note_mma(const char* instruction, int64_t flops, const void* site);

namespace trace {

uint32_t pc_of(const void* site);
// Whether the kernels were compiled with instrumentation. Without it they run, but their memory accesses are
// neither counted nor checked.
bool instrumented();
// If a block is not `checked`, its accesses are only checked for their bounds.
void begin_block(bool counted, bool checked);
void let_undefined(const void* address);  // the next access there may read uninitialized memory
bool counting();                          // whether this block is counted
// Called when all lanes of a warp wait. Groups their accesses since the last wait into requests.
void end_of_turn();
int64_t accesses();  // of all launches so far

}  // namespace trace
}  // namespace fastgemm::simt
