// What a fastgemm.patch computes torch's products by, and what it counts. Python makes them (csrc/python),
// the overrides of torch's products read them (csrc/torch/override).
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

// Calls by op, and the kernel that computed them or the reason why none did. Shared by threads.
class Counts {
 public:
  enum class What : uint8_t { routed, passed_on };
  using Rows = std::map<std::string, std::map<std::string, uint64_t, std::less<>>, std::less<>>;

  void add(What, std::string_view op, std::string_view by, uint64_t calls = 1);
  Rows rows(What) const;

 private:
  Rows rows_[2];
};

// One entry of a patch. Never changed once it is made.
struct PatchFrame {
  int level = 0;
  std::string kernel;
  std::optional<Precision> precision;       // of float32 products; none: torch's own
  std::shared_ptr<Counts> counts;           // null: nothing is counted
  std::shared_ptr<const PatchFrame> outer;  // gets what this one passes on
};

// The name of the capsules around a std::shared_ptr<const PatchFrame>, and of the slot of torch's
// thread-local state in which that of the innermost patch stands.
inline constexpr char kPatchSlot[] = "fastgemm.patch";

// Frames of the whole process: of fastgemm.enable(), and of the environment, which comes after it. Null:
// none. What was set once lives as long as the process, since other threads may be reading it.
enum class Everywhere : uint8_t { enabled, environment };
void set_everywhere(Everywhere, std::shared_ptr<const PatchFrame>);
const PatchFrame* everywhere(Everywhere);

}  // namespace fastgemm
