// Tests, on small tables, the choice of a kernel by the nearest measured points.
#include <cstdio>
#include <span>

#include "core/nearest.h"

namespace fastgemm {
namespace {

int failures = 0;
void expect(bool right, const char* what) {
  if (!right) ++failures, std::printf("wrong: %s\n", what);
}

constexpr std::string_view kNames[] = {"library", "own", "other", "named_once"};
constexpr int kHalf = -100, kTwice = 100;

// `own` is twice as fast around 1024 and half as fast around 64. At 512, a kernel without speeds won.
constexpr Measured kPoints[] = {
    {0, 1, 1024, 1024, 1024, false, false, 1, {0, kTwice, kHalf}},
    {0, 1, 1024, 1024, 1536, false, false, 1, {0, kTwice, kHalf}},
    {0, 1, 1536, 1024, 1024, false, false, 1, {0, kTwice, kHalf}},
    {0, 1, 1024, 1536, 1024, false, false, 1, {0, kTwice, kHalf}},
    {0, 1, 768, 1024, 1024, false, false, 1, {0, kTwice, kHalf}},
    {0, 1, 1024, 768, 1024, false, false, 1, {0, kTwice, kHalf}},
    {0, 1, 1024, 1024, 768, false, false, 1, {0, kTwice, kHalf}},
    {0, 1, 1536, 1536, 1024, false, false, 1, {0, kTwice, kHalf}},
    {0, 1, 64, 64, 64, false, false, 0, {0, kHalf, kHalf}},
    {0, 1, 512, 512, 512, true, false, 3, {0, kTwice, kHalf}},
};
constexpr StaticTable kTable{"a GPU", Op::transpose, DType::bits16, Precision::ieee, 1, 3, kNames, kPoints};

TuningKey key_of(int64_t m, int64_t n, int64_t k) {
  TuningKey key;
  key.device = Device::cuda, key.type = key.out_type = DType::bf16;
  key.m = m, key.n = n, key.k = k;
  key.alignment = contiguous_alignment(key);
  return key;
}
std::string_view first(const TuningKey& key, const StaticTable& table = kTable) {
  return kNames[rank(table, key).kernels[0]];
}

void check_alignment() {
  expect(key_of(8, 16, 24).alignment == Alignment{true, true}, "multiples of 16 bytes");
  expect(key_of(8, 9, 16).alignment == Alignment{false, false}, "rows of B and of the result");
  expect(key_of(1, 16, 9).alignment == Alignment{true, true}, "a single row starts where the matrix does");
  expect(key_of(16, 1, 9).alignment == Alignment{false, true}, "a single column too");
  TuningKey key = key_of(9, 16, 16);
  key.batch = 3;
  expect(contiguous_alignment(key) == Alignment{true, true}, "members of a batch, whole rows apart");
  key.a_transposed = true;
  expect(contiguous_alignment(key) == Alignment{false, true}, "a column-major operand");

  GemmProblem p;
  p.type = p.out_type = DType::bf16, p.m = 4, p.n = 9, p.k = 16;
  alignas(16) static char memory[64];
  p.a = {memory, 24, 1, 0}, p.b = {memory, 16, 1, 0}, p.out = {memory, 16, 1, 0};
  expect(tuning_key(p, Device::cpu, 1).alignment == Alignment{}, "on a CPU there is one alignment");
}

void check_rule() {
  expect(first(key_of(1024, 1024, 1024)) == "own", "a measured problem");
  expect(first(key_of(1152, 1280, 1024)) == "own", "between points that agree");
  expect(first(key_of(64, 64, 128)) == "library", "near a point where the library won");
  TuningKey key = key_of(512, 512, 512);
  expect(first(key) != "named_once", "a measured problem in another layout");
  key.a_transposed = true;
  const Ranking ranking = rank(kTable, key);
  expect(kNames[ranking.kernels[0]] == "named_once" && ranking.count == 4,
         "the fastest, then all with speeds");
  key.b_transposed = true;
  expect(first(key) != "named_once", "a measured problem whose second operand has another layout");
}

// At two equally near points the same kernel is twice as fast and half as fast: the estimate is uncertain.
constexpr Measured kDoubtful[] = {
    {0, 1, 512, 1024, 1024, false, false, 1, {0, 2 * kTwice}},
    {0, 1, 2048, 1024, 1024, false, false, 0, {0, kHalf}},
};
constexpr Measured kClose[] = {{0, 1, 512, 1024, 1024, false, false, 1, {0, 2}}};
constexpr Measured kCpu[] = {{1, 1, 64, 64, 64, false, false, 2}, {2, 1, 64, 64, 64, false, false, 1}};

void check_caution() {
  const auto with = [](std::span<const Measured> points, uint8_t libraries, uint8_t speeds) {
    return StaticTable{"", Op::transpose, DType::bits16, Precision::ieee, libraries, speeds, kNames, points};
  };
  const TuningKey key = key_of(1024, 1024, 1024);
  expect(first(key, with(kDoubtful, 1, 2)) == "library", "points that disagree");
  expect(first(key, with(kClose, 1, 2)) == "library", "less than two per cent");
  expect(first(key, with(kClose, 0, 2)) == "own", "less than two per cent, but no library");
  expect(rank(with({}, 0, 2), key).count == 0, "nothing measured");
  TuningKey cpu = key_of(100, 100, 100);
  cpu.device = Device::cpu, cpu.threads = 8;
  expect(first(cpu, with(kCpu, 0, 0)) == "own" && rank(with(kCpu, 0, 0), cpu).count == 1,
         "all threads of a CPU");
}

}  // namespace
}  // namespace fastgemm

int main() {
  fastgemm::check_alignment();
  fastgemm::check_rule();
  fastgemm::check_caution();
  return fastgemm::failures != 0;
}
