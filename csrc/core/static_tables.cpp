#include "core/tuning.h"

namespace fastgemm {

std::span<const StaticTable> static_tables() { return {}; }

}  // namespace fastgemm
