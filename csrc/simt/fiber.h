// One thread of a block. It has its own stack, and runs until it suspends itself.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace fastgemm::simt::runtime {

class Fiber {
 public:
  // Prepares to run entry(argument) on this stack; an earlier run is abandoned. entry must not return or
  // throw. It ends with a suspend() that is never resumed.
  void start(std::byte* stack, size_t bytes, void (*entry)(void*), void* argument);

  void resume();   // called from outside: runs the fiber until it suspends
  void suspend();  // called by the fiber: returns to where it was resumed

 private:
#if defined(__x86_64__)
  using Registers = void*;  // the stack pointer; the registers are on the stack
#else
  using Registers = ucontext_t;
#endif
  [[noreturn]] static void enter(Fiber*);
  static void exchange(Registers& save, Registers& load);

  Registers inside_, outside_;  // the saved registers of the fiber and of its resumer
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::byte* stack_ = nullptr;
  size_t bytes_ = 0;
  const void* outer_stack_ = nullptr;
  size_t outer_bytes_ = 0;
};

}  // namespace fastgemm::simt::runtime
