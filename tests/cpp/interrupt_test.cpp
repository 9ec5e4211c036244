// Tests products that end early in a program without Python, on the program's request or at a time limit.
#include "core/interrupt.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "core/context.h"
#include "core/table.h"

namespace fastgemm {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif
constexpr int64_t kSide = kInstrumented ? 512 : 1024;  // level 1 needs a second or more

class PollingContext final : public Context {
 public:
  explicit PollingContext(int threads) : threads_(threads) {}
  int threads() const override { return threads_; }
  void parallel(int64_t tasks, Task task) override {
    std::vector<std::thread> others;
    for (int64_t i = 1; i < tasks; ++i) others.emplace_back(task, i);
    task(0);
    for (std::thread& t : others) t.join();
    poll_.check();
  }
  bool stopped() override { return poll_.stopped(); }
  void check() const { poll_.check(); }
  void* allocate(size_t bytes) override {
    scratch_.emplace_back(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64})));
    return scratch_.back().get();
  }
  void callers_gemm(const GemmProblem&) override {}
  void callers_transpose(const TransposeProblem&) override {}

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  int threads_;
  Poll poll_;
  std::vector<std::unique_ptr<std::byte, Free>> scratch_;
};

struct Enough {};
int asked = 0;
bool yes() { return ++asked, true; }
bool no() { return ++asked, false; }
void raise() { throw Enough(); }
constexpr Interruption kStops{yes, raise}, kGoesOn{no, raise};

struct Product {
  std::vector<float> a = std::vector<float>(kSide * kSide, 1), out = std::vector<float>(kSide * kSide, -1);

  void run(std::string_view kernel, int threads) {
    GemmProblem p;
    p.type = p.out_type = DType::f32;
    p.m = p.n = p.k = kSide;
    p.a = p.b = {a.data(), kSide, 1, 0};
    p.out = {out.data(), kSide, 1, 0};
    PollingContext context(threads);
    for (const Kernel& k : cpu_gemm_kernels())
      if (k.name == kernel) k.gemm(p, context);
    context.check();
  }
  bool is_done() const { return out.back() == float(kSide); }
  bool is_begun() const { return out.front() == float(kSide); }
};

int failures = 0;
void expect(bool holds, const char* what) {
  if (!holds) std::printf("FAILED: %s\n", what), ++failures;
}

void test_a_program_stops_a_product() {
  set_interruption(&kStops);
  Product product;
  bool thrown = false;
  try {
    product.run("naive", 1);
  } catch (const Enough&) {
    thrown = true;
  }
  expect(thrown && asked == 1, "the program is asked once, and its exception ends the product");
  expect(product.is_begun() && !product.is_done(), "the product had begun");
}

void test_a_product_goes_on() {
  set_interruption(&kGoesOn);
  asked = 0;
  Product product;
  product.run("naive", 1);
  expect(asked >= 1 && product.is_done(), "the program was asked, and the product is complete");
}

void test_a_time_limit(std::string_view kernel, int threads) {
  Product product;
  bool late = false;
  set_time_limit(0);
  try {
    product.run(kernel, threads);
  } catch (const TimeLimitPassed&) {
    late = true;
  }
  expect(late && !product.is_done(), "a product ends with its time limit");
  set_time_limit(std::numeric_limits<double>::infinity());
  if (threads == 1) return;
  product.run(kernel, threads);
  expect(product.is_done(), "without a limit the next product is complete");
}

}  // namespace
}  // namespace fastgemm

int main() {
  using namespace fastgemm;
  test_a_program_stops_a_product();
  test_a_product_goes_on();
  for (const char* kernel : {"naive", "blocked", "packed", "simd", "microkernel", "pipelined"})
    for (const int threads : {1, 3}) test_a_time_limit(kernel, threads);
  if (failures == 0) std::printf("all right\n");
  return failures > 0;
}
