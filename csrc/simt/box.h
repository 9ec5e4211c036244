// A box of a tensor, which the tensor memory accelerator (TMA) moves between global and shared memory.
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

  int bytes() const { return row_bytes() * map_.box_rows * map_.box_planes; }

  // Counts the accesses of the instruction (bulk_load or bulk_store). Reports what the hardware could not do,
  // and accesses outside of the launch's buffers.
  void note(Kind, const void* shared, const void* site) const;

  // Copies the box to shared memory; elements outside of the tensor are zero.
  void load(std::byte* shared) const;
  // take() reads the box from shared memory and undoes the swizzle; store() writes it to the tensor, without
  // the elements outside.
  std::vector<std::byte> take(const std::byte* shared) const;
  void store(const std::vector<std::byte>& taken) const;
  // Sets all bits of the destination, until the box is stored.
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

// Reports bytes that were never written, for reads of the asynchronous engines.
void check_written(const std::byte* from, int bytes, const void* site);

}  // namespace fastgemm::simt
