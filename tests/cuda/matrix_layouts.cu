// Runs every case of tests/cpp/matrix_cases.h on the GPU and on the simulator, compiled into this program,
// and prints a line for each: whether the GPU's result is right, and how it compares with the simulator's.
// Exit code 1 if any result is wrong, or differs where it must not (integers, fp64, and sums that are exact
// whatever their order).
//
// By hand, on a machine with a GPU of compute capability 9.0 (add -x c++ to compile a .cu file for the
// simulator):
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -Icsrc -Itests/cpp -c
//   tests/cuda/matrix_layouts.cu \
//     tests/cpp/matrix_kernels.cu csrc/cuda/device/launch.cu csrc/cuda/device/tma.cu
//   g++ -std=c++20 -O2 -fno-strict-aliasing -Icsrc -Itests/cpp -x c++ -c tests/cpp/matrix_kernels.cu -o
//   simt.o
//   g++ ... csrc/simt/*.cpp (without rows.cpp) tests/cpp/matrix_check.cpp \
//     tests/cpp/matrix_simulated.cpp; link all with cudart
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "matrix_check.h"

namespace fastgemm::test {
namespace {

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// A copy in device memory, with room around it, so that a stray read is no fault.
class OnDevice {
 public:
  explicit OnDevice(const Bytes& from) : size_(from.size()) {
    require(cudaMalloc(&data_, size_ + 4096));
    require(cudaMemcpy(data_, from.data(), size_, cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  void* data() const { return data_; }
  Bytes read() const {
    Bytes to(size_);
    require(cudaDeviceSynchronize());
    require(cudaMemcpy(to.data(), data_, size_, cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  void* data_;
  size_t size_;
};

Bytes on_gpu(const MatrixCase& c, const MatrixData& d, Swap swap) {
  const OnDevice a(d.a), b(d.b), result(d.c);
  c.run(a.data(), b.data(), result.data(), swap);
  return result.read();
}

// Elements of two results that differ in any bit.
int differing(const MatrixCase& c, const Bytes& x, const Bytes& y) {
  const size_t bytes = size_t(result_bytes_of(c.number));
  int count = 0;
  for (size_t at = 0; at < x.size(); at += bytes)
    count += std::memcmp(x.data() + at, y.data() + at, bytes) != 0;
  return count;
}

// Swaps of fragment registers that the GPU's result does not show.
int unnoticed_swaps(const MatrixCase& c, const MatrixData& d, int* tried) {
  int unnoticed = 0;
  for (const Swap::Where where : {Swap::a, Swap::b, Swap::d})
    for (int i = 0; i < c.swaps[where]; ++i)
      for (int j = 0; j < i; ++j, ++*tried)
        unnoticed += error_of(c, d, Fill::random, on_gpu(c, d, {where, i, j}).data()) <= 1;
  return unnoticed;
}

bool compare(const MatrixCase& on_cuda, const MatrixCase& on_simt, bool swaps, std::mt19937& random) {
  const bool same_bits = is_integer(on_cuda.number) || on_cuda.number == Number::f64;
  const MatrixData exact = make_data(on_cuda, Fill::exact, random),
                   any = make_data(on_cuda, Fill::random, random);
  const Bytes gpu_exact = on_gpu(on_cuda, exact, {}), gpu = on_gpu(on_cuda, any, {});
  const int exact_differ = differing(on_cuda, gpu_exact, simulate(on_simt, exact, {}));
  const Bytes simulated = simulate(on_simt, any, {});
  const int differ = differing(on_cuda, gpu, simulated);
  const double exact_error = error_of(on_cuda, exact, Fill::exact, gpu_exact.data());
  const double error = error_of(on_cuda, any, Fill::random, gpu.data());
  const double simulated_error = error_of(on_simt, any, Fill::random, simulated.data());
  int tried = 0;
  const int unnoticed = swaps ? unnoticed_swaps(on_cuda, any, &tried) : 0;
  const bool fine = exact_error == 0 && exact_differ == 0 && error <= 1 && simulated_error <= 1 &&
                    unnoticed == 0 && !(same_bits && differ > 0);
  std::printf(
      "%-6s %-62s exact data: %s, %d of %d different; random: %d different, error gpu %.3f "
      "simulator %.3f of bound; %d swaps, %d unnoticed\n",
      fine ? "ok" : "WRONG", on_cuda.name.c_str(), exact_error == 0 ? "right" : "wrong", exact_differ,
      on_cuda.m * on_cuda.n, differ, error, simulated_error, tried, unnoticed);
  return fine;
}

bool compare_pipelines(std::mt19937& random) {
  constexpr int kM = 256, kN = 192, kK = 1024;
  MatrixCase shape{"pipeline", Number::bf16, kM, kN, kK};
  shape.accumulates = false;
  bool fine = true;
  for (const Fill fill : {Fill::exact, Fill::random}) {
    const MatrixData d = make_data(shape, fill, random);
    const OnDevice a(d.a), b(d.b), c(d.c);
    cuda::pipelined_product(a.data(), b.data(), static_cast<float*>(c.data()), kM, kN, kK);
    const Bytes gpu = c.read();
    const Bytes simulated = simulate_pipeline(shape, d, Mistake::none);
    const double error = error_of(shape, d, fill, gpu.data()),
                 other = error_of(shape, d, fill, simulated.data());
    fine &= error <= 1 && other <= 1;
    std::printf(
        "%-6s pipelined product, %s data: error gpu %.3f simulator %.3f of bound, %d of %d different\n",
        error <= 1 && other <= 1 ? "ok" : "WRONG", fill == Fill::exact ? "exact" : "random", error, other,
        differing(shape, gpu, simulated), kM * kN);
  }
  return fine;
}

}  // namespace

int run_all(bool swaps) {
  std::mt19937 random(std::random_device{}());
  const std::vector<MatrixCase> on_cuda = cuda::matrix_cases(), on_simt = simt::matrix_cases();
  int wrong = 0;
  for (size_t i = 0; i < on_cuda.size(); ++i) {
    try {
      wrong += !compare(on_cuda[i], on_simt[i], swaps, random);
    } catch (const std::exception& e) {
      std::printf("WRONG  %s: %s\n", on_cuda[i].name.c_str(), e.what());
      ++wrong;
      if (cudaGetLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess)
        break;  // the context is lost
    }
    std::fflush(stdout);
  }
  try {
    wrong += !compare_pipelines(random);
  } catch (const std::exception& e) {
    std::printf("WRONG  pipelined product: %s\n", e.what());
    ++wrong;
  }
  std::printf("%zu cases, %d wrong\n", on_cuda.size(), wrong);
  return wrong ? 1 : 0;
}

}  // namespace fastgemm::test

// With an argument, without the swaps: for compute-sanitizer.
int main(int count, char**) { return fastgemm::test::run_all(count == 1); }
