// Groups of asynchronous operations, as in PTX. An instruction adds to the open group. "commit" closes it.
// "wait" waits until at most `pending` closed groups are unfinished.
#pragma once

#include <deque>
#include <utility>
#include <vector>

namespace fastgemm::simt {

template <class Item>
struct Groups {
  std::vector<Item> open;
  std::deque<std::vector<Item>> committed;  // oldest first

  void commit() {
    committed.push_back(std::move(open));
    open.clear();
  }

  // Calls finish(item) for all groups but the last `pending`, and removes them.
  template <class Finish>
  void wait(int pending, const Finish& finish) {
    for (; int(committed.size()) > pending; committed.pop_front())
      for (Item& item : committed.front()) finish(item);
  }
};

}  // namespace fastgemm::simt
