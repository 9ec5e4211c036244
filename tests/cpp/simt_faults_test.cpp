// Each check of csrc/simt has a case with the fault that it is made for. It must find the fault in any order
// of the threads, and name the lines of the fault. The twin
// without the fault must pass all checks and give the right result. This file is not instrumented.
//
//   simt_faults_test                     all cases
//   simt_faults_test NAME prints the report for one case
//   simt_faults_test --check FILE ...    whether documents that show that are up to date; --write makes them
//   so
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
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

// Memory with exactly the size of an array, aligned like allocations on a GPU.
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
    run_grid(
        c.name, c.shape.grid, dim3(unsigned(c.shape.threads)), c.shape.shared_bytes,
        [&] { kernel(arguments); }, "", c.shape.cluster);
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
    const std::string place = symbols::source_line(pc);
    std::string line = line_at(place);
    line.erase(std::min(line.size(), line.rfind("  // fault: ")));
    line.erase(0, line.find_first_not_of(' ')), line.erase(line.find_last_not_of(' ') + 1);
    s += "\n    " + place.substr(place.rfind('/') + 1) + ": " + line;
  }
  return s;
}

// The simulator's report on the faulty kernel, and the outcome.
std::string text(const Outcome& o) {
  std::string s;
  for (const Problem& p : o.problems) s += text(p) + "\n";
  return s + (!o.error.empty() ? "ends there\n" : o.right ? "right result\n" : "wrong result\n");
}

void check_clean(const Case& c) {
  const Outcome o = run(c, c.clean);
  const std::string who = std::string(c.name) + ", the kernel without the fault: ";
  for (const Problem& p : o.problems) fail(who + text(p));
  if (!o.error.empty()) fail(who + o.error);
  if (!o.right) fail(who + "wrong result");
}

void check_faulty(const Case& c) {
  const Outcome o = run(c, c.faulty);
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

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto& some : {memory_cases(), order_cases(), async_cases(), mbarrier_cases(), tma_cases(),
                           cluster_cases(), matrix_cases(), product_cases()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

// Each block runs warps and lanes in the reverse order of the block before it, so each kernel runs twice.
void check_all() {
  session().options.raise_problems = false;
  for (const Case& c : all_cases()) {
    for (int order = 0; order < 2; ++order) check_faulty(c);
    for (int order = 0; order < 2; ++order) check_clean(c);
  }
}

std::string said_of(const std::string& name) {
  const std::vector<Case> cases = all_cases();
  const auto c = std::ranges::find(cases, name, &Case::name);
  if (c == cases.end()) return "no such case\n";
  const std::string said = text(run(*c, c->faulty));
  run(*c, c->clean);  // an even number of blocks, so that the next case starts in the same order
  return said;
}

// Updates a document that shows the output of this program below "$ simt_faults_test 'NAME'".
std::string brought_up_to_date(const std::string& document) {
  constexpr std::string_view kCommand = "$ simt_faults_test '", kEnd = "```";
  std::istringstream lines(document);
  std::string result, line;
  while (std::getline(lines, line)) {
    result += line + "\n";
    if (!line.starts_with(kCommand)) continue;
    result += said_of(line.substr(kCommand.size(), line.size() - kCommand.size() - 1));
    while (std::getline(lines, line) && !line.starts_with(kEnd) && !line.empty()) continue;
    result += line + "\n";
  }
  return result;
}

void check_document(const char* path, bool write) {
  std::stringstream found;
  found << std::ifstream(path).rdbuf();
  const std::string wanted = brought_up_to_date(found.str());
  if (wanted == found.str()) return;
  if (write)
    std::ofstream(path) << wanted;
  else
    fail(std::string(path) + " is out of date: simt_faults_test --write " + path);
}

}  // namespace
}  // namespace fastgemm::simt::faults

int main(int count, char** arguments) {
  using namespace fastgemm::simt;
  using namespace fastgemm::simt::faults;
  session().options.raise_problems = false;
  const std::string command = count > 1 ? arguments[1] : "";
  if (command.starts_with("--")) {
    for (int i = 2; i < count; ++i) check_document(arguments[i], command == "--write");
  } else if (count > 1) {
    std::printf("%s", said_of(command).c_str());
  } else {
    check_all();
    std::thread(check_all).join();  // in a thread with its own shared memory
    std::printf("%d cases, %d failures\n", int(all_cases().size()), failures);
  }
  return failures ? 1 : 0;
}
