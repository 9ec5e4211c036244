// Chooses a kernel: by name, by level, or the fastest known.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.h"
#include "core/table.h"
#include "core/tuning.h"

namespace fastgemm {

// What the caller asked for. level 0: none given. An empty kernel: none given.
struct Choice {
  int level = 0;
  std::string_view kernel;
};

// The requested level or kernel cannot compute this problem, or cannot run here. The text says why, and which
// levels can.
struct CannotRun : std::runtime_error {
  explicit CannotRun(const std::string& why) : std::runtime_error("fastgemm: " + why) {}
};

// Returns a kernel that can run this problem here. Without a level, and with level 7 if the op has it, this
// is the fastest known kernel. Throws CannotRun or std::invalid_argument (a level outside 1..7, an unknown
// kernel, a kernel of another level).
const Kernel& select(const GemmProblem&, Device, int threads, const Choice&);
const Kernel& select(const TransposeProblem&, Device, int threads, const Choice&);
const Kernel& select(const AddProblem&, Device, int threads, const Choice&);

// A choice that callers may keep and use again for problems of exactly the same sizes, strides, alignments
// and types, until tuning_version() changes.
class Decision {
 public:
  // The row; null if none can run. Where the framework's flags decide, it reads them, which may take Python's
  // interpreter lock.
  const Kernel* kernel(Device, DType, Precision) const;

  std::array<const Kernel*, 2> by_flags{};  // [1]: the flags allow the framework's product
  bool keeps = true;                        // false: it holds for the current flags only
};
// Throws as select() does.
Decision decide(const GemmProblem&, Device, int threads, const Choice&);

// Whether any row that this choice could select can run the problem here.
bool is_taken(const GemmProblem&, Device, const Choice&);

// How often this thread had to search for the fastest known kernel, because no kept decision applied.
uint64_t decisions_made();

// For calls without a level or with level 7: the kernel to try next, after all of `tried` failed to get their
// scratch memory. Null if every kernel that can run was tried.
const Kernel* next_choice(const GemmProblem&, Device, int threads, std::span<const Kernel* const> tried);

// Up to `most` kernels, any of which may be the fastest for a problem. They are the kernel that a call
// without a level takes, a kernel of a library, and the kernels that are predicted to be little slower than
// the fastest.
std::vector<const Kernel*> likely_kernels(const GemmProblem&, Device, int threads, size_t most);

inline bool is_free(const Choice& c) { return c.kernel.empty() && (c.level == 0 || c.level == 7); }

// The given names nearest to a misspelt one, separated by commas, for "did you mean ...?".
std::string nearest_names(std::string_view wrong, std::span<const std::string_view> names);

}  // namespace fastgemm
