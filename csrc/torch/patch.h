// The settings of a fastgemm.patch, which replaces torch's products, and the calls that it counts.
// csrc/python creates both, and the overrides of torch's products (csrc/torch/override) use them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/problem.h"

namespace fastgemm {

// Counts calls per op, and per kernel that computed them or per reason why torch computed them. Threads share
// it.
class Counts {
 public:
  enum class What : uint8_t { routed, passed_on };
  using Rows = std::map<std::string, std::map<std::string, uint64_t, std::less<>>, std::less<>>;

  void add(What, std::string_view op, std::string_view by, uint64_t calls = 1);
  Rows rows(What) const;

 private:
  Rows rows_[2];
};

// The settings of one patch. They never change after construction.
struct PatchFrame {
  int level = 0;
  std::string kernel;
  std::optional<Precision> precision;       // for products of its type; none: torch's precision
  bool tune = false;                        // products are measured where they first run
  bool extends = false;                     // also products that torch has no kernel for
  std::shared_ptr<Counts> counts;           // null: nothing is counted
  std::shared_ptr<const PatchFrame> outer;  // the patch around it: gets calls that this one does not take

  // Whether it leaves to torch what torch computes faster.
  bool is_free() const { return level == 0 && kernel.empty(); }
};

// The name of the capsules that hold a std::shared_ptr<const PatchFrame>, and of the slot of torch's
// thread-local state that holds the capsule of the innermost patch.
inline constexpr char kPatchSlot[] = "fastgemm.patch";

// The frames of the whole process: the one of fastgemm.enable() is tried first, then the one of the
// environment variable. Null if there is none. A frame is never freed once it was set, because other threads
// may be reading it.
enum class Everywhere : uint8_t { enabled, environment };
void set_everywhere(Everywhere, std::shared_ptr<const PatchFrame>);
const PatchFrame* everywhere(Everywhere);

}  // namespace fastgemm
