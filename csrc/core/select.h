// Choosing a kernel: by name, by level, or the fastest known.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/names.h"
#include "core/table.h"
#include "core/tuning.h"

namespace fastgemm {

// What the caller asked for. level 0: none given. An empty kernel: none given.
struct Choice {
  int level = 0;
  std::string_view kernel;
};

// A level or kernel that was asked for does not take a problem, or does not run here; the text says why and
// what can.
struct CannotRun : std::runtime_error {
  explicit CannotRun(const std::string& why) : std::runtime_error("fastgemm: " + why) {}
};

// Returns a kernel that can run this problem here. Throws std::invalid_argument (a level outside 1..7, an
// unknown kernel, a kernel that is not of the level) or CannotRun. Level 7, where the op has it, and "none
// given" mean the fastest known (where the op has a level 7).
const Kernel& select(const GemmProblem&, Device, int threads, const Choice&);
const Kernel& select(const TransposeProblem&, Device, int threads, const Choice&);
const Kernel& select(const AddProblem&, Device, int threads, const Choice&);

// A choice for callers that keep it for a problem of just these sizes, strides, alignments and types, for as
// long as tuning_version() stays.
class Decision {
 public:
  // The row, null where none can run. Asks for the framework's flags where they decide: to ask for them may
  // take the interpreter's lock.
  const Kernel* kernel(Device, DType, Precision) const;

  std::array<const Kernel*, 2> by_flags{};  // [1]: they allow the framework's product
  bool keeps = true;                        // false: it was made for the flags of the moment
};
// Throws as select() does.
Decision decide(const GemmProblem&, Device, int threads, const Choice&);

// Whether a row that such a choice may come to takes a problem here.
bool is_taken(const GemmProblem&, Device, const Choice&);

// How often this thread had to find out what is the fastest known, and could not take what it had found
// before.
uint64_t decisions_made();

// For a call that leaves the choice to the library (level 0 or 7): the kernel to try after those, none of
// which got the memory that it asked for. Null when every kernel that can run was tried.
const Kernel* next_choice(const GemmProblem&, Device, int threads, std::span<const Kernel* const> tried);

inline bool is_free(const Choice& c) { return c.kernel.empty() && (c.level == 0 || c.level == 7); }

// The given names nearest to a misspelt one: "did you mean ...?" material, comma separated.
std::string nearest_names(std::string_view wrong, std::span<const std::string_view> names);

}  // namespace fastgemm
