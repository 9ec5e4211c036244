// A box of a tensor: what the tensor memory accelerator moves between global and shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simt/async.h"
#include "simt/session.h"

namespace fastgemm::simt {

class Box {
 public:
  Box(const TensorMap& map, int column, int row, int plane)
      : map_(map), column_(column), row_(row), plane_(plane) {}

  int bytes() const { return row_bytes() * map_.box_rows; }

  // What the instruction (bulk_load or bulk_store) does to memory: counts it, and reports what the hardware
  // could not do, or what lies outside the buffers of the launch.
  void note(Kind, const void* shared, const void* site) const;

  // To shared memory, with zeros for what the tensor does not have.
  void load(std::byte* shared) const;
  // From shared memory, without swizzle from now on; and to the tensor, as far as it goes.
  std::vector<std::byte> take(const std::byte* shared) const;
  void store(const std::vector<std::byte>& taken) const;
  // Where it will be stored, all bits set until then.
  void poison() const;

 private:
  int row_bytes() const { return map_.box_columns * map_.element_bytes; }
  template <class Visit>
  void for_each_row(const Visit& visit) const;
  void check_place(bool store, const void* shared, const void* site) const;
  void check_written(const std::byte* shared, const void* site) const;

  TensorMap map_;
  int column_, row_, plane_;
};

// For what the asynchronous engines read: reports bytes that nothing has written.
void check_written(const std::byte* from, int bytes, const void* site);

}  // namespace fastgemm::simt
