// Vector clocks: of each thread, what it knows of every thread's clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastgemm::simt::order {

using Clocks = std::vector<uint32_t>;  // by thread

inline void join_into(Clocks& to, const Clocks& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t u = 0; u < from.size(); ++u) to[u] = std::max(to[u], from[u]);
}

// What threads know of each other's clocks. A barrier of the whole block tells everybody everything, so its
// outcome is kept once, and the rows of single threads start anew.
class Knowledge {
 public:
  void start(size_t threads) { common_.assign(threads, 0), own_.assign(threads, {}); }
  uint32_t of(size_t thread, size_t other) const {
    const Clocks& own = own_[thread];
    return own.empty() ? common_[other] : std::max(own[other], common_[other]);
  }
  void learn(size_t thread, const Clocks& published) {
    if (!published.empty()) join_into(own_[thread], published);
  }
  void tell(size_t thread, Clocks& published) const {
    if (!own_[thread].empty()) join_into(published, own_[thread]);
  }
  void learn_all(const Clocks& published) {
    join_into(common_, published);
    for (Clocks& own : own_) own.clear();
  }

 private:
  Clocks common_;
  std::vector<Clocks> own_;  // empty: nothing beyond what is common
};

struct Published {
  Clocks seen, fenced;
};

}  // namespace fastgemm::simt::order
