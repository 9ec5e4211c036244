// Every check of csrc/simt finds the fault that it is there for, whichever way the threads run, and names its
// lines; the twin without the fault passes all checks and computes what it should. This file is not
// instrumented.
//
//   simt_faults_test           all cases
//   simt_faults_test NAME      one, with what the simulator says
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "faulty_kernels.h"
#include "simt/memory.h"
#include "simt/session.h"
#include "simt/symbols.h"

namespace fastgemm::simt::faults {
namespace {

int failures = 0;

void fail(const std::string& what) {
  ++failures;
  std::printf("%s\n", what.c_str());
}

// As much memory as an array takes, aligned as a GPU aligns what it allocates.
class Ints {
 public:
  explicit Ints(int count) : count_(count), data_(static_cast<int*>(::operator new(bytes(), kAlign))) {
    std::fill_n(data(), count, -1);
  }
  int* data() const { return data_.get(); }
  size_t bytes() const { return size_t(count_) * sizeof(int); }

 private:
  static constexpr std::align_val_t kAlign{256};
  struct Free {
    void operator()(int* p) const { ::operator delete(p, kAlign); }
  };
  int count_;
  std::unique_ptr<int, Free> data_;
};

std::string line_at(const std::string& place) {
  const size_t colon = place.rfind(':');
  std::ifstream file(place.substr(0, colon));
  std::string line;
  for (int n = colon == std::string::npos ? 0 : std::atoi(place.c_str() + colon + 1); n > 0; --n)
    std::getline(file, line);
  return line;
}

struct Outcome {
  std::vector<Problem> problems;
  std::string error;   // the message of an exception
  bool right = false;  // the results
};

Outcome run(const Case& c, void (*kernel)(Arguments)) {
  const Ints in(kIn), out(c.shape.results), scratch(kScratch);
  for (int i = 0; i < kIn; ++i) in.data()[i] = input(i);
  memory::add_global(in.data(), in.bytes(), "in", false, true);
  memory::add_global(out.data(), out.bytes(), "out", true, false);
  memory::add_global(scratch.data(), scratch.bytes(), "scratch", true, false);
  const auto map = [](const Ints& of, int rows) {
    return make_tensor_map({of.data(), 4, kRow, rows, 1, 4 * kRow, 4 * kRow * rows, kRow, 1});
  };
  const Arguments arguments{in.data(),
                            out.data(),
                            scratch.data(),
                            map(in, kIn / kRow),
                            map(in, kIn / kRow + 1),
                            map(out, std::max(1, c.shape.results / kRow))};
  Outcome outcome;
  try {
    run_grid(c.name, c.shape.grid, dim3(unsigned(c.shape.threads)), c.shape.shared_bytes,
             [&] { kernel(arguments); });
  } catch (const std::runtime_error& e) {
    outcome.error = e.what();
  }
  outcome.problems = session().launch().problems;
  outcome.right = true;
  for (int i = 0; i < c.shape.results; ++i) outcome.right &= out.data()[i] == c.want(i);
  memory::remove_all_global();
  return outcome;
}

std::string text(const Problem& p) {
  std::string s = p.check + ": " + p.message;
  for (const uint32_t pc : p.sites) {
    const std::string place = symbols::source_line(pc), line = line_at(place);
    s += "\n    " + place.substr(place.rfind('/') + 1) + "  " +
         line.substr(std::min(line.find_first_not_of(' '), line.size()));
  }
  return s;
}

void check_clean(const Case& c) {
  const Outcome o = run(c, c.clean);
  const std::string who = std::string(c.name) + ", the kernel without the fault: ";
  for (const Problem& p : o.problems) fail(who + text(p));
  if (!o.error.empty()) fail(who + o.error);
  if (!o.right) fail(who + "wrong result");
}

void check_faulty(const Case& c, bool print) {
  const Outcome o = run(c, c.faulty);
  if (print) {
    for (const Problem& p : o.problems) std::printf("%s\n", text(p).c_str());
    std::printf("%s%s\n", o.error.c_str(), o.right ? "the result is right" : "the result is wrong");
  }
  const std::string who = std::string(c.name) + ": ",
                    mark = "// fault: " + std::string(c.name, std::strcspn(c.name, " "));
  if (!std::strcmp(c.check, kNothing) || !std::strcmp(c.check, kWrongResult)) {
    for (const Problem& p : o.problems) fail(who + "not expected: " + text(p));
    if (o.right == !std::strcmp(c.check, kWrongResult))
      fail(who + (o.right ? "right result" : "wrong result"));
    return;
  }
  bool found = false;
  for (const Problem& p : o.problems) {
    found |= std::strstr(c.check, p.check.c_str()) != nullptr;
    if (p.sites.empty()) fail(who + "no line is named by " + text(p));
    for (const uint32_t pc : p.sites)
      if (!line_at(symbols::source_line(pc)).ends_with(mark))
        fail(who + "the wrong line is named by " + text(p));
  }
  if (!found) fail(who + "not found by check '" + c.check + "' " + o.error);
}

// Every block runs the warps and lanes in the other order than the block before it, so each kernel runs
// twice.
int check_all(const char* only) {
  int cases = 0;
  for (const auto& some : {memory_cases(), order_cases(), async_cases(), mbarrier_cases(), tma_cases(),
                           matrix_cases(), product_cases()})
    for (const Case& c : some) {
      if (only && std::strcmp(c.name, only)) continue;
      for (int order = 0; order < 2; ++order) check_faulty(c, only != nullptr);
      for (int order = 0; order < 2; ++order) check_clean(c);
      ++cases;
    }
  return cases;
}

}  // namespace
}  // namespace fastgemm::simt::faults

int main(int count, char** arguments) {
  using namespace fastgemm::simt;
  session().options.raise_problems = false;
  const char* only = count > 1 ? arguments[1] : nullptr;
  const int cases = faults::check_all(only);
  // The shared memory of another OS thread lies elsewhere.
  if (!only) std::thread([] { faults::check_all(nullptr); }).join();
  std::printf("%d cases, %d failures\n", cases, faults::failures);
  return faults::failures || cases == 0 ? 1 : 0;
}
