// Kernels with wrong accesses (faulty_kernels.h): outside of allocations, at misaligned addresses, and to
// uninitialized memory.
#include "cuda/device/vector.cuh"
#include "faulty_kernels.h"

namespace fastgemm::simt::faults {
namespace {

using Vector4 = Vector<int, 4>;

template <bool faulty>
void read_past_end(Arguments x) {
  const int i = int(threadIdx.x), first = kIn - 32 + faulty;
  x.out[i] = x.in[first + i];  // fault: read_past_end
}

template <bool faulty>
void read_before_begin(Arguments x) {
  const int i = int(threadIdx.x);
  x.out[i] = x.in[i - faulty];  // fault: read_before_begin
}

template <bool faulty>
void write_past_end(Arguments x) {
  const int i = int(threadIdx.x), last = 40 - !faulty;
  if (i <= last) x.out[i] = x.in[i];  // fault: write_past_end
}

template <bool faulty>
void write_to_input(Arguments x) {
  const int i = int(threadIdx.x);
  int* to = faulty ? const_cast<int*>(x.in) : x.out;
  to[i] = x.in[31 - i];  // fault: write_to_input
}

// 42 elements are ten and a half vectors.
template <bool faulty>
void vector_past_end(Arguments x) {
  const int i = 4 * int(threadIdx.x);
  if (i >= 42) return;
  if (faulty || i + 4 <= 42) {
    store_vector(x.out + i, load_vector<Vector4>(x.in + i));  // fault: vector_past_end
  } else {
    for (int j = i; j < 42; ++j) x.out[j] = x.in[j];
  }
}

template <bool faulty>
void static_shared_past_end(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  FASTGEMM_SHARED int next[32];
  const int i = int(threadIdx.x);
  next[i] = 0;
  __syncwarp();
  tile[i + faulty] = x.in[i];  // fault: static_shared_past_end
  __syncwarp();
  x.out[i] = tile[i] + next[i];
}

template <bool faulty>
void dynamic_shared_past_end(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tile);
  const int i = int(threadIdx.x);
  tile[i + faulty] = x.in[i];  // fault: dynamic_shared_past_end
  __syncwarp();
  if (!faulty) x.out[i] = tile[i];
}

template <bool faulty>
void misaligned_global(Arguments x) {
  const int i = int(threadIdx.x);
  const auto v = load_vector<Vector4>(x.in + 4 * i + 2 * faulty);  // fault: misaligned_global
  x.out[i] = v[0] + v[3];
}

// Rows are still padded by one word although reads are now vectors.
template <bool faulty>
void misaligned_shared(Arguments x) {
  constexpr int kPitch = faulty ? 5 : 8;
  alignas(16) FASTGEMM_SHARED int tile[32 * kPitch];
  const int i = int(threadIdx.x);
  for (int j = 0; j < 4; ++j) tile[i * kPitch + j] = x.in[4 * i + j];
  __syncwarp();
  const auto v = load_vector<Vector4>(tile + i * kPitch);  // fault: misaligned_shared
  x.out[i] = v[0] + v[3];
}

// A tile of 32 columns. Its last column is not filled.
template <bool faulty>
void uninitialized_shared(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  if (i < 32 - faulty) tile[i] = x.in[i];
  __syncwarp();
  x.out[i] = tile[i];  // fault: uninitialized_shared
}

// Shared memory does not keep values from one block to the next.
template <bool faulty>
void shared_of_block_before(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  if (!faulty || blockIdx.x == 0) tile[i] = x.in[i];
  __syncwarp();
  x.out[i] = tile[i];  // fault: shared_of_block_before
}

// C is read although beta = 0. The value there happens not to change the result.
template <bool faulty>
void uninitialized_output(Arguments x) {
  const int i = int(threadIdx.x);
  int sum = x.in[i];
  if (faulty) sum += x.out[i] + 1;  // fault: uninitialized_output
  x.out[i] = sum;
}

// The second half of a reduction reads one partial sum more than the first half wrote.
template <bool faulty>
void uninitialized_workspace(Arguments x) {
  const int i = int(threadIdx.x);
  x.scratch[i] = x.in[i];
  __syncthreads();
  x.out[i] = x.scratch[i + faulty];  // fault: uninitialized_workspace
}

int same(int i) { return input(i); }
int reversed(int i) { return input(31 - i); }
int last_32(int i) { return input(kIn - 32 + i); }
int first_and_last(int i) { return input(4 * i) + input(4 * i + 3); }

constexpr Case kCases[] = {
    {FASTGEMM_CASE(read_past_end), "out of bounds", last_32},
    {FASTGEMM_CASE(read_before_begin), "out of bounds", same},
    {FASTGEMM_CASE(write_past_end), "out of bounds", same, {.threads = 64, .results = 40}},
    {FASTGEMM_CASE(write_to_input), "out of bounds", reversed},
    {FASTGEMM_CASE(vector_past_end), "out of bounds", same, {.results = 42}},
    {FASTGEMM_CASE(static_shared_past_end), "out of bounds", same},
    {FASTGEMM_CASE(dynamic_shared_past_end), "out of bounds", same, {.shared_bytes = 128}},
    {FASTGEMM_CASE(misaligned_global), "misaligned", first_and_last},
    {FASTGEMM_CASE(misaligned_shared), "misaligned", first_and_last},
    {FASTGEMM_CASE(uninitialized_shared), "uninitialized", same},
    {FASTGEMM_CASE(shared_of_block_before), "uninitialized", same, {.grid = 2}},
    {FASTGEMM_CASE(uninitialized_output), "uninitialized", same},
    {FASTGEMM_CASE(uninitialized_workspace), "uninitialized", same},
};

}  // namespace

std::span<const Case> memory_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
