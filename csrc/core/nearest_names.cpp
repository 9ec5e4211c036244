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
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::string_view x, std::string_view y) {
    return edit_distance(wrong, x) < edit_distance(wrong, y);
  });
  std::string text;
  for (size_t i = 0; i < sorted.size() && i < 3; ++i)
    text += (i ? ", '" : "'") + std::string(sorted[i]) + "'";
  return text.empty() ? "none" : text;
}

}  // namespace fastgemm
