#include <algorithm>
#include <vector>

#include "core/select.h"

namespace fastgemm {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_names(std::string_view wrong, std::span<const std::string_view> names) {
  std::vector<std::string_view> near;
  for (std::string_view name : names)
    if (3 * edit_distance(wrong, name) <= std::max(wrong.size(), name.size())) near.push_back(name);
  std::stable_sort(near.begin(), near.end(), [&](std::string_view x, std::string_view y) {
    return edit_distance(wrong, x) < edit_distance(wrong, y);
  });
  std::string text;
  for (size_t i = 0; i < near.size() && i < 3; ++i) text += (i ? ", '" : "'") + std::string(near[i]) + "'";
  return text;
}

}  // namespace fastgemm
