// Asynchronous operations in groups: an instruction adds to the open one, another closes it, a third waits
// until at most so many of the closed ones are left.
#pragma once

#include <deque>
#include <utility>
#include <vector>

namespace fastgemm::simt {

template <class Item>
struct Groups {
  std::vector<Item> open;
  std::deque<std::vector<Item>> committed;  // the oldest first

  void commit() {
    committed.push_back(std::move(open));
    open.clear();
  }

  // Finishes and removes the items of all groups but the last `pending`.
  template <class Finish>
  void wait(int pending, const Finish& finish) {
    for (; int(committed.size()) > pending; committed.pop_front())
      for (Item& item : committed.front()) finish(item);
  }
};

}  // namespace fastgemm::simt
