// Groups of uneven size: a product whose m, n or k is cut into groups, as the experts of a mixture cut its
// tokens. The ends of the groups lie in the memory of the device, so that nobody waits for the device to
// learn them.
//
//   rows of a     0 ...... 5 | 5 5 | ....... 17 |         ends = {5, 5, 17}: group 1 is empty
//   b               b[0]     |     |    b[2]
#pragma once

#include <cstdint>

#include "core/epilogue.h"  // FASTGEMM_ANYWHERE

namespace fastgemm {

// What the groups divide: rows of a (m), columns of b (n), or k. In the last case each group has a result of
// its own.
enum class GroupedBy : uint8_t { none, m, n, k };
using GroupedBySet = uint8_t;
constexpr GroupedBySet groups_by(GroupedBy by) { return GroupedBySet(1u << int(by)); }
inline constexpr GroupedBySet kNoGroups = groups_by(GroupedBy::none);
inline constexpr GroupedBySet kAnyGroups = groups_by(GroupedBy::m) | groups_by(GroupedBy::k);

// The number of groups is GemmProblem::batch.
struct Groups {
  GroupedBy by = GroupedBy::none;
  const int32_t* ends = nullptr;  // [batch]: where each group ends; the next group begins there
  // If given, a's rows are gathered: row i of the product is row rows[i] of a, which has rows_of_a rows. Only
  // for groups of m; kernels take it if they have Kernel::gathers. A number of no row gives any result.
  const int32_t* rows = nullptr;
  int64_t rows_of_a = 0;

  bool are_given() const { return by != GroupedBy::none; }
};

// The extent of group `index` of `count`: [begin, end) of 0 .. size. Ends that descend, are negative or lie
// beyond `size` give other groups, but no group outside of 0 .. size.
struct GroupRange {
  int begin, end;

  FASTGEMM_ANYWHERE static GroupRange of(const int32_t* ends, int index, int size) {
    const int before = index > 0 ? inside(ends[index - 1], size) : 0, end = inside(ends[index], size);
    return {before, end > before ? end : before};
  }
  FASTGEMM_ANYWHERE int size() const { return end - begin; }

 private:
  FASTGEMM_ANYWHERE static int inside(int end, int size) { return end < 0 ? 0 : end < size ? end : size; }
};

}  // namespace fastgemm
