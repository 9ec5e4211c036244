// The one way to launch a kernel: on the caller's stream, with the shared memory that the shape asks for, and
// with a check for errors.
#pragma once

#include <cstdint>
#include <source_location>
#include <typeinfo>

#include "core/context.h"
#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic
  // Programmatic dependent launch: blocks may begin as soon as all blocks of the kernel before have called
  // launch_dependents() (sync.cuh) and there is room for them. They must call grid_dependency_wait() before
  // they read what that kernel writes, or write what it reads. On GPUs other than sm_90a the kernels run one
  // after another.
  bool overlaps = false;
  // The number of neighbouring blocks (along x) that form a cluster, on GPUs since 9.0: they run at the same
  // time and can access each other's shared memory (cluster.cuh). grid.x must be a multiple of it.
  int cluster = 1;
};

// launch<kernel>("name", {grid, block, shared_bytes}, context)(arguments...);
template <auto kernel>
struct Launcher;

#if defined(__CUDACC__)

// Throws std::runtime_error with the kernel, the shape, the place of the launch, and the code and text of the
// error.
[[noreturn]] void launch_failed(const char* kernel, const LaunchShape&, cudaError_t,
                                const std::source_location&);
// Launches with the attributes that the shape asks for.
cudaError_t launch_kernel(const void* kernel, const LaunchShape&, void** arguments, cudaStream_t);
// Allows a kernel more than 48 KB of dynamic shared memory, which CUDA asks for once per kernel and device. A
// kernel must always use the same amount. `done` has one bit for each device.
void allow_shared_bytes(const void* kernel, const char* name, const LaunchShape&, uint64_t& done,
                        const std::source_location&);

template <class... Parameters, void (*kernel)(Parameters...)>
struct Launcher<kernel> {
  const char* name;
  LaunchShape shape;
  cudaStream_t stream;
  std::source_location where;

  void operator()(Parameters... parameters) const {
    const auto* function = reinterpret_cast<const void*>(kernel);
    static uint64_t done = 0;
    if (shape.shared_bytes > 48 * 1024) allow_shared_bytes(function, name, shape, done, where);
    void* arguments[] = {&parameters...};
    const cudaError_t error = launch_kernel(function, shape, arguments, stream);
    if (error != cudaSuccess) launch_failed(name, shape, error, where);
  }
};

template <auto kernel>
Launcher<kernel> launch(const char* name, const LaunchShape& shape, Context& context,
                        std::source_location where = std::source_location::current()) {
  return {name, shape, static_cast<cudaStream_t>(context.stream()), where};
}

#else

template <class... Parameters, void (*kernel)(Parameters...)>
struct Launcher<kernel> {
  const char* name;
  LaunchShape shape;

  void operator()(Parameters... parameters) const {
    const auto body = [&] { kernel(parameters...); };
    simt::run_grid(name, shape.grid, shape.block, shape.shared_bytes, body, typeid(Launcher).name(),
                   shape.cluster);
  }
};

template <auto kernel>
Launcher<kernel> launch(const char* name, const LaunchShape& shape, Context&) {
  return {name, shape};
}

#endif

// The multiprocessors of the current device, which decide the size of a persistent grid.
int multiprocessors();
// The most shared memory that the current device gives a block.
int64_t block_bytes();

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace fastgemm::FASTGEMM_TARGET
