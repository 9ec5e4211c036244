// The settings of a fastgemm.patch, which replaces torch's products, and the calls that it counts.
// csrc/python makes both, and the overrides of torch's products (csrc/torch/override) read them.
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

// Counts calls by op, and by the kernel that computed them or the reason why they were passed on to torch.
// Threads share it.
class Counts {
 public:
  enum class What : uint8_t { routed, passed_on };
  using Rows = std::map<std::string, std::map<std::string, uint64_t, std::less<>>, std::less<>>;

  void add(What, std::string_view op, std::string_view by, uint64_t calls = 1);
  Rows rows(What) const;

 private:
  Rows rows_[2];
};

// The settings of one patch. They never change once the frame is made.
struct PatchFrame {
  int level = 0;
  std::string kernel;
  std::optional<Precision> precision;       // for products of its type; none: torch's own
  std::shared_ptr<Counts> counts;           // null: nothing is counted
  std::shared_ptr<const PatchFrame> outer;  // the patch around it, which gets what this one passes on
};

// Names the capsules that hold a std::shared_ptr<const PatchFrame>, and the slot of torch's thread-local
// state that holds the capsule of the innermost patch.
inline constexpr char kPatchSlot[] = "fastgemm.patch";

// The frames that hold for the whole process: that of fastgemm.enable(), and after it that of the environment
// variable; null where there is none. A frame that was set once lives as long as the process, since other
// threads may be reading it.
enum class Everywhere : uint8_t { enabled, environment };
void set_everywhere(Everywhere, std::shared_ptr<const PatchFrame>);
const PatchFrame* everywhere(Everywhere);

}  // namespace fastgemm
