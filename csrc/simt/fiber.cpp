#include "simt/fiber.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace fastgemm::simt::runtime {
namespace {

// AddressSanitizer must know which stack is in use, and that an abandoned fiber's data on a stack is invalid.
#if defined(__SANITIZE_ADDRESS__)
void leave_for(void** fake, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
void arrived_from(void* fake, const void** stack, size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
void forget(const void* stack, size_t bytes) { __asan_unpoison_memory_region(stack, bytes); }
#else
void leave_for(void**, const void*, size_t) {}
void arrived_from(void*, const void**, size_t*) {}
void forget(const void*, size_t) {}
#endif

}  // namespace

void Fiber::resume() {
  void* fake = nullptr;
  leave_for(&fake, stack_, bytes_);
  exchange(outside_, inside_);
  arrived_from(fake, nullptr, nullptr);
}

void Fiber::suspend() {
  void* fake = nullptr;
  leave_for(&fake, outer_stack_, outer_bytes_);
  exchange(inside_, outside_);
  arrived_from(fake, &outer_stack_, &outer_bytes_);
}

void Fiber::enter(Fiber* self) {
  arrived_from(nullptr, &self->outer_stack_, &self->outer_bytes_);
  self->entry_(self->argument_);
  std::abort();
}

#if defined(__x86_64__)

// Saves the registers that a call preserves (System V) on the current stack, changes stacks, and restores
// them. This takes a few ns; swapcontext takes longer, because a system call sets the signal mask.
extern "C" void fastgemm_simt_exchange(void** save, void* load);
extern "C" void fastgemm_simt_enter();
asm(R"(
.text
.type fastgemm_simt_exchange, @function
fastgemm_simt_exchange:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fastgemm_simt_exchange, . - fastgemm_simt_exchange
.type fastgemm_simt_enter, @function
fastgemm_simt_enter:
  movq %r12, %rdi
  jmp *%rbx
.size fastgemm_simt_enter, . - fastgemm_simt_enter
)");

void Fiber::exchange(Registers& save, Registers& load) { fastgemm_simt_exchange(&save, load); }

void Fiber::start(std::byte* stack, size_t bytes, void (*entry)(void*), void* argument) {
  forget(stack, bytes);
  entry_ = entry, argument_ = argument, stack_ = stack, bytes_ = bytes;
  // The stack looks as if the fiber had been suspended at the first instruction of fastgemm_simt_enter, which
  // calls enter(this). Unwinding ends at the null return address.
  void* saved[] = {nullptr,                                       // r15
                   nullptr,                                       // r14
                   nullptr,                                       // r13
                   this,                                          // r12
                   reinterpret_cast<void*>(&Fiber::enter),        // rbx
                   nullptr,                                       // rbp
                   reinterpret_cast<void*>(fastgemm_simt_enter),  // where exchange returns to
                   nullptr};
  auto** top = reinterpret_cast<void**>(stack + bytes) - std::size(saved);
  std::copy(std::begin(saved), std::end(saved), top);
  inside_ = top;
}

#else

void Fiber::exchange(Registers& save, Registers& load) { swapcontext(&save, &load); }

void Fiber::start(std::byte* stack, size_t bytes, void (*entry)(void*), void* argument) {
  forget(stack, bytes);
  entry_ = entry, argument_ = argument, stack_ = stack, bytes_ = bytes;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack;
  inside_.uc_stack.ss_size = bytes;
  inside_.uc_link = nullptr;
  // makecontext passes only ints, so the pointer is passed in two halves.
  const auto self = reinterpret_cast<uintptr_t>(this);
  const auto enter_halves =
      +[](unsigned high, unsigned low) { enter(reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low)); };
  makecontext(&inside_, reinterpret_cast<void (*)()>(enter_halves), 2, unsigned(self >> 32), unsigned(self));
}

#endif

}  // namespace fastgemm::simt::runtime
