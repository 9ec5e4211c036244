#include "core/select.h"

#include <algorithm>
#include <array>
#include <limits>
#include <ranges>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/can_run.h"
#include "core/simulator.h"

namespace fastgemm {
namespace {

constexpr int kLevels = 7;

// The rows of an op on a device.
auto rows_of(Op op, Device device) {
  return kernels_for(device) |
         std::views::filter([=](const Kernel& k) { return k.op == op && k.device == device; });
}
auto rows_of(const TuningKey& key) { return rows_of(key.op, key.device); }

// Whether level=None may pick this row.
bool is_candidate(const Kernel& k) { return k.role == Role::rung || k.role == Role::shortcut; }

std::string in_words(const TuningKey& key) {
  return std::string(to_string(key.op)) + " on " + std::string(to_string(key.device)) + " in " +
         std::string(to_string(key.type));
}

template <class Problem>
std::string levels_that_can(const Problem& p, const TuningKey& key) {
  std::array<bool, kLevels + 1> can{};
  for (const Kernel& k : rows_of(key))
    if (k.role == Role::rung && can_run(k, p)) can[k.level] = true;
  std::string text;
  for (int level = 1; level <= kLevels; ++level)
    if (can[level]) text += (text.empty() ? "" : ", ") + std::to_string(level);
  return text.empty() ? "none" : text;
}

// Part of the message for an unknown kernel name: whether another device has a kernel of this name.
std::string where_it_is(const TuningKey& key, std::string_view name) {
  const auto found =
      std::ranges::find_if(kernels(), [&](const Kernel& k) { return k.op == key.op && k.name == name; });
  if (found == kernels().end()) return {};
  std::string text = "; on " + std::string(to_string(found->device)) + " there is one";
  if (key.device == Device::cpu && found->level < kLevels) text += ", which fastgemm.simulate() runs";
  return text;
}

template <class Problem>
const Kernel& by_name(const Problem& p, const TuningKey& key, const Choice& choice) {
  std::vector<std::string_view> names;
  for (const Kernel& k : rows_of(key)) {
    if (k.name != choice.kernel) {
      names.push_back(k.name);
      continue;
    }
    std::string kernel("kernel '");
    kernel.append(k.name).append("'");
    if (choice.level && choice.level != k.level)
      throw std::invalid_argument("fastgemm: " + kernel + " is of level " + std::to_string(k.level) +
                                  ", not " + std::to_string(choice.level));
    if (const std::string why = obstacle(k, p); !why.empty())
      throw CannotRun(kernel + " cannot run here: " + why + " (" + in_words(key) +
                      "; levels that can: " + levels_that_can(p, key) + ")");
    return k;
  }
  const std::string near = nearest_names(choice.kernel, names), elsewhere = where_it_is(key, choice.kernel);
  throw std::invalid_argument("fastgemm: unknown kernel '" + std::string(choice.kernel) + "' for " +
                              std::string(to_string(key.op)) + " on " + std::string(to_string(key.device)) +
                              (!elsewhere.empty() ? elsewhere
                               : !near.empty()    ? "; the nearest names are " + near
                                                  : "; fastgemm.kernels lists all"));
}

// Whether a row takes this kind of operands: matrices, packed weights or groups.
bool takes(const Kernel& k, const GemmProblem& p) {
  return k.takes(p.packed) && k.takes(p.groups) && (k.gates || !p.gated) && (k.gathers || !p.groups.rows) &&
         (k.scales_parts || !scales_parts(p));
}
template <class Problem>
bool takes(const Kernel&, const Problem&) {
  return true;
}

// The row of a level with the smallest predicted time; without predictions, the first row.
template <class Problem>
const Kernel& by_level(const Problem& p, const TuningKey& key, int level) {
  std::string reasons;
  const Kernel* best = nullptr;
  double least = 0;
  bool is_there = false;
  for (const Kernel& k : rows_of(key)) {
    if (k.level != level || k.role != Role::rung) continue;
    is_there = true;
    if (!takes(k, p)) continue;
    if (can_run(k, p)) {
      const double seconds = predicted(k, p);
      if (!best || seconds < least) best = &k, least = seconds;
    } else if (!best) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(k.name) + ": " + obstacle(k, p);
    }
  }
  if (best) return *best;
  if (reasons.empty())
    reasons = key.device == Device::simt && level == kLevels
                  ? "it is a library, which the simulator does not run"
              : is_there ? "none of its kernels takes such operands"
                         : "there is no such rung";
  throw CannotRun("level " + std::to_string(level) + " cannot run " + in_words(key) + ": " + reasons +
                  ". Levels that can: " + levels_that_can(p, key));
}

// All rows that have a prediction, fastest first. Rows that reject the problem are included.
struct Predictions {
  std::vector<std::pair<double, const Kernel*>> rows;

  template <class Problem>
  Predictions(const Problem& p, const TuningKey& key) {
    double (*last)(const GemmProblem&, const Gpu&) = nullptr;  // rows of one library share their prediction
    double seconds = 0;
    for (const Kernel& k : rows_of(key)) {
      if (!is_candidate(k) || (!k.predict && !k.predict_on_cpu) || !takes(k, p)) continue;
      if (k.predict_on_cpu)
        seconds = predicted(k, p, key.threads);
      else if (k.predict != last)
        last = k.predict, seconds = predicted(k, p);
      if (seconds < std::numeric_limits<double>::infinity()) rows.emplace_back(seconds, &k);
    }
    std::ranges::stable_sort(rows, {}, [](const auto& row) { return row.first; });
  }
};

// A chosen kernel (null: none), and whether it holds for every problem of the key. It does not if a better
// kernel rejected only this problem, for example because of its leading dimensions.
struct Chosen {
  const Kernel* kernel = nullptr;
  bool by_key = true;
};

template <class Problem>
Chosen choose(const Problem& p, const TuningKey& key, const Candidates& measured,
              const Predictions& predictions, bool flags_allow) {
  const auto usable = [&](const Kernel* k) { return k && can_run(*k, p, flags_allow); };
  // A shortcut takes only its special products, and no table names it.
  if (!predictions.rows.empty()) {
    const Kernel* first = predictions.rows.front().second;
    if (first->role == Role::shortcut && usable(first)) return {first, true};
  }
  const Kernel* own = remembered(key);
  if (usable(own)) return {own, true};
  const auto ruled_out_by_flags = [&](const Kernel* k) { return !flags_allow && is_framework(*k); };
  bool by_key = !own || ruled_out_by_flags(own);
  for (size_t i = 0; i < measured.count; ++i) {
    if (usable(measured.kernels[i])) return {measured.kernels[i], by_key};
    by_key = by_key && ruled_out_by_flags(measured.kernels[i]);
  }
  for (const auto& [seconds, k] : predictions.rows)
    if (usable(k)) return {k, by_key};

  // Neither measured nor predicted: take the framework's kernel if it has the op, else our highest rung. For
  // transposition always take our highest rung: it is faster nearly everywhere on CPUs, and on an H100 by 1.2
  // to 10 times at every size and type of `benchmarks/run.py reference`.
  const bool own_is_faster = key.op == Op::transpose;
  const Kernel *highest = nullptr, *framework = nullptr;
  for (const Kernel& k : rows_of(key)) {
    if (k.role != Role::rung || !usable(&k)) continue;
    if (is_framework(k))
      framework = &k;
    else if (!highest || k.level > highest->level)
      highest = &k;
  }
  return {framework && !(own_is_faster && highest) ? framework : highest, by_key};
}

// A decision, and whether it holds for every problem of the key (see Chosen).
struct KeyDecision : Decision {
  bool by_key = true;

  const Kernel* of(const TuningKey& key) const { return kernel(key.device, key.type, key.precision); }
};

thread_local uint64_t decisions_count = 0;

template <class Problem>
KeyDecision find_fastest(const Problem& p, const TuningKey& key) {
  ++decisions_count;
  const Candidates measured = measured_candidates(key);
  const Predictions predictions(p, key);
  KeyDecision made;
  for (const bool flags_allow : {false, true}) {
    const Chosen chosen = choose(p, key, measured, predictions, flags_allow);
    made.by_flags[flags_allow] = chosen.kernel;
    made.by_key = made.by_key && chosen.by_key;
  }
  return made;
}

// A decision costs 1 us or more: a lock and a scan of the static table. On a GPU it costs 12 us, because
// vendor libraries are asked what they support. This is much for a 32 x 32 product, so each thread keeps its
// decisions, for more problems than a model has.
class Decisions {
 public:
  const KeyDecision* find(const TuningKey& key, uint64_t version) {
    if (version_ != version) made_.clear(), version_ = version;
    const auto it = made_.find(key);
    return it == made_.end() ? nullptr : &it->second;
  }
  void keep(const TuningKey& key, const KeyDecision& decision, uint64_t version) {
    if (version_ != version) return;  // a nested call changed the measurements
    if (made_.size() >= kMost) made_.clear();
    made_.insert_or_assign(key, decision);
  }

 private:
  static constexpr size_t kMost = 4096;
  std::unordered_map<TuningKey, KeyDecision, TuningKeyHash> made_;
  uint64_t version_ = 0;
};

CannotRun none_can_run(const TuningKey& key) {
  return CannotRun("no kernel can run " + in_words(key) + " here");
}

template <class Problem>
Decision fastest_known(const Problem& p, const TuningKey& key) {
  thread_local Decisions decisions;
  const uint64_t version = tuning_version();
  if (const KeyDecision* kept = decisions.find(key, version)) {
    // Check again that the kernel can run. A kernel may reject another problem of the same key, because the
    // key has no leading dimensions. The key does not name the current GPU, either.
    const KeyDecision decision = *kept;  // a copy, because reading flags may run Python code that multiplies
    const auto fits = [&](const Kernel* k) { return !k || can_run(*k, p, true); };
    const auto [without, with] = decision.by_flags;
    if (decision.of(key) && fits(with) && (without == with || fits(without))) return decision;
  }
  const KeyDecision decision = find_fastest(p, key);
  if (decision.by_key) decisions.keep(key, decision, version);
  if (!decision.of(key)) throw none_can_run(key);
  return decision;
}

// Whether level 7 exists for this op. Elementwise addition has no library rung.
bool has_library(const TuningKey& key) {
  return std::ranges::any_of(rows_of(key), [](const Kernel& k) { return k.level == kLevels; });
}

template <class Problem>
Decision decide_any(const Problem& p, Device device, int threads, const Choice& choice) {
  if (choice.level < 0 || choice.level > kLevels)
    throw std::invalid_argument("fastgemm: level must be 1 to 7 or None, got " +
                                std::to_string(choice.level));
  const TuningKey key = tuning_key(p, device, threads);
  const auto only = [&](const Kernel& k) {
    return Decision{{&k, &k}, !is_framework(k) || !depends_on_flags(k.op, k.device, key.type)};
  };
  if (!choice.kernel.empty()) return only(by_name(p, key, choice));
  const bool any_level = choice.level == 0 || (choice.level == kLevels && has_library(key));
  return any_level ? fastest_known(p, key) : only(by_level(p, key, choice.level));
}

template <class Problem>
const Kernel& select_any(const Problem& p, Device device, int threads, const Choice& choice) {
  const TuningKey key = tuning_key(p, device, threads);
  const Kernel* kernel = decide_any(p, device, threads, choice).kernel(device, key.type, key.precision);
  if (!kernel) throw none_can_run(key);
  return *kernel;
}

}  // namespace

const Kernel* Decision::kernel(Device device, DType type, Precision precision) const {
  if (by_flags[0] == by_flags[1]) return by_flags[0];
  return by_flags[framework_computes(device, type, precision)];
}

Decision decide(const GemmProblem& p, Device d, int threads, const Choice& c) {
  return decide_any(p, d, threads, c);
}
const Kernel& select(const GemmProblem& p, Device d, int threads, const Choice& c) {
  return select_any(p, d, threads, c);
}
const Kernel& select(const TransposeProblem& p, Device d, int threads, const Choice& c) {
  return select_any(p, d, threads, c);
}
const Kernel& select(const AddProblem& p, Device d, int threads, const Choice& c) {
  return select_any(p, d, threads, c);
}

bool is_taken(const GemmProblem& p, Device device, const Choice& choice) {
  const bool any_level = choice.level == 0 || choice.level == kLevels;
  return std::ranges::any_of(rows_of(Op::gemm, device), [&](const Kernel& k) {
    const bool is_meant = choice.kernel.empty() ? k.role == Role::rung : k.name == choice.kernel;
    return (any_level || k.level == choice.level) && is_meant && can_run(k, p);
  });
}

uint64_t decisions_made() { return decisions_count; }

const Kernel* next_choice(const GemmProblem& p, Device device, int threads,
                          std::span<const Kernel* const> tried) {
  const TuningKey key = tuning_key(p, device, threads);
  const auto left = [&](const Kernel& k) {
    return std::ranges::find(tried, &k) == tried.end() && can_run(k, p);
  };
  const Candidates measured = measured_candidates(key);
  for (size_t i = 0; i < measured.count; ++i)
    if (left(*measured.kernels[i])) return measured.kernels[i];
  for (const auto& [seconds, k] : Predictions(p, key).rows)
    if (left(*k)) return k;
  const Kernel* best = nullptr;
  for (const Kernel& k : rows_of(key))
    if (k.role == Role::rung && left(k) && (!best || k.level > best->level)) best = &k;
  return best;
}

std::vector<const Kernel*> likely_kernels(const GemmProblem& p, Device device, int threads, size_t most) {
  constexpr double kNear = 2.5;  // times the least prediction
  const TuningKey key = tuning_key(p, device, threads);
  const Predictions predictions(p, key);
  std::vector<const Kernel*> found;
  const auto add = [&](const Kernel& k) {
    if (found.size() < most && std::ranges::find(found, &k) == found.end() && can_run(k, p))
      found.push_back(&k);
    return !found.empty() && found.back() == &k;
  };
  const auto is_library = [](const Kernel& k) { return k.level == kLevels && k.role == Role::rung; };
  add(select(p, device, threads, {}));
  for (const Kernel& k : rows_of(key))  // predictions of a library are the least certain ones
    if (is_library(k) && add(k)) break;
  const Candidates measured = measured_candidates(key);
  for (size_t i = 0; i < measured.count; ++i) add(*measured.kernels[i]);
  for (const auto& [seconds, k] : predictions.rows)
    if (seconds <= kNear * predictions.rows.front().first) add(*k);
  for (const Kernel& k : rows_of(key))
    if (is_library(k)) add(k);
  return found;
}

}  // namespace fastgemm
