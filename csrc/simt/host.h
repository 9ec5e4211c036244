// The part of runtime.h for the files of the simulator, which files of kernels need not read.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "simt/runtime.h"

namespace fastgemm::simt::runtime {

// Locked while a grid runs, or code that launches grids.
std::recursive_mutex& one_at_a_time();

// Throws if a grid is running. This happens if a signal handler, called because the grid polls for signals,
// launches another grid. Call it with one_at_a_time() locked, before changing state that the grid uses.
void refuse_within_launch(const char* kernel);

// The functions below are called inside of a kernel.

[[noreturn]] void fail(const std::string& what);

// Like fail(), for code that exceptions must not pass through: ends the block and does not return.
[[noreturn]] void stop(const std::string& what);

// Registers a copy in flight to shared memory. `land` runs when no thread can continue without it, the latest
// copy first. `site` is the instruction that requested it.
void land_later(const void* to_shared, std::function<void()> land, const void* site);

}  // namespace fastgemm::simt::runtime
