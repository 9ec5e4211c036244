// Tests the measured peak rate, and the error if the system cannot start more threads.
#include "cpu/peak/peak.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

std::atomic<int> threads_left = 1 << 20;

int failures = 0;
void expect(bool right, const char* what) {
  if (!right) ++failures, std::printf("wrong: %s\n", what);
}

}  // namespace

// Replaces the C library's function, and fails as that function does at the limit of processes or memory.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  return threads_left-- > 0 ? create(thread, attributes, run, argument) : EAGAIN;
}

int main() {
  using fastgemm::DType, fastgemm::measure_peak;
  expect(measure_peak(DType::f32, 2, 0.01) > 0, "two threads multiply");
  for (const int started : {0, 1, 3}) {
    threads_left = started;
    std::string message;
    try {
      measure_peak(DType::f64, 8, 0.01);
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    expect(message.starts_with("cannot start 8 threads"), "a thread that does not start is an error");
  }
  threads_left = 1 << 20;
  expect(measure_peak(DType::i32, 8, 0.01) > 0, "and no thread remains");
  if (!failures) std::printf("peak: right\n");
  return failures != 0;
}
