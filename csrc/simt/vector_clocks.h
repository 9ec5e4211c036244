// Vector clocks: for each thread, the clocks of all threads as far as it knows them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simt/wide.h"

namespace fastgemm::simt::order {

using Clocks = std::vector<uint32_t>;  // one per thread

inline void join_into(Clocks& to, const Clocks& from) {
  if (to.size() < from.size()) to.resize(from.size());
  wide::raise(to.data(), from.data(), from.size());
}

// What the threads know about each other's clocks. After a barrier of the whole block all threads know the
// same, so this is kept once, and the rows of single threads are cleared.
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
  std::vector<Clocks> own_;  // empty: knows only what all know
};

struct Published {
  Clocks seen, fenced;
};

}  // namespace fastgemm::simt::order
