#include "simt/session.h"

#include <algorithm>
#include <stdexcept>

#include "simt/symbols.h"

namespace fastgemm::simt {

std::string_view to_string(Space s) {
  constexpr std::string_view names[] = {"none", "global", "shared"};
  return names[int(s)];
}

std::string_view to_string(Kind k) {
  constexpr std::string_view names[] = {"load",      "store",    "cp.async", "tma load",
                                        "tma store", "ldmatrix", "stmatrix", "mma"};
  return names[int(k)];
}

namespace {
thread_local Session of_thread;
}
Session& session() { return of_thread; }

void report(const char* check, const std::string& message, std::vector<uint32_t> sites) {
  if (session().options.raise_problems) {
    std::string text = std::string(check) + ": " + message;
    for (size_t i = 0; i < sites.size(); ++i)
      text += (i ? ", " : " (") + symbols::source_line(sites[i]) + (i + 1 == sites.size() ? ")" : "");
    runtime::stop(text);
    return;
  }
  auto& problems = session().launch().problems;
  const auto same = [&](const Problem& p) { return p.check == check && p.sites == sites; };
  if (const auto known = std::ranges::find_if(problems, same); known != problems.end())
    ++known->count;
  else
    problems.push_back({check, message, std::move(sites), blockIdx, runtime::thread_place()});
}

void report_and_stop(const char* check, const std::string& message, std::vector<uint32_t> sites) {
  report(check, message, std::move(sites));
  runtime::stop(std::string(check) + ": " + message);
}

}  // namespace fastgemm::simt
