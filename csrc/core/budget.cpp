#include "core/budget.h"

#include <atomic>

namespace fastgemm {
namespace {
std::atomic<size_t> limit{kNoLimit};
}

size_t workspace_limit() { return limit.load(std::memory_order_relaxed); }
void set_workspace_limit(size_t bytes) { limit.store(bytes, std::memory_order_relaxed); }

}  // namespace fastgemm
