#include "simt/wgmma.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "cuda/device/fp8.cuh"
#include "cuda/device/swizzle.cuh"
#include "simt/box.h"
#include "simt/groups.h"
#include "simt/matrix.h"
#include "simt/order.h"
#include "simt/runtime.h"
#include "simt/trace.h"
#include "simt/wide.h"

namespace fastgemm::simt {

using runtime::kWarpgroup;

template <>
inline constexpr char kTypesText<Fp8Pair<E4M3, E4M3>>[] = ".f32.e4m3.e4m3";
template <>
inline constexpr char kTypesText<Fp8Pair<E4M3, E5M2>>[] = ".f32.e4m3.e5m2";
template <>
inline constexpr char kTypesText<Fp8Pair<E5M2, E4M3>>[] = ".f32.e5m2.e4m3";
template <>
inline constexpr char kTypesText<Fp8Pair<E5M2, E5M2>>[] = ".f32.e5m2.e5m2";

static float widen(E4M3 x) { return fp8::decode<Fp8::e4m3>(x.bits); }
static float widen(E5M2 x) { return fp8::decode<Fp8::e5m2>(x.bits); }

namespace {

constexpr int kM = 64, kUnit = 16;  // bytes

// An operand in shared memory, 32 bytes along k, laid out as its descriptor says.
class Operand {
 public:
  Operand(const WgmmaOperand& o, int rows) : transposed_(o.transposed), rows_(rows) {
    const auto field = [&](int from) { return uint32_t(o.descriptor >> from & 0x3fff) << 4; };
    constexpr uint32_t kWidths[] = {0, 128, 64, 32};
    leading_ = field(16), stride_ = field(32), width_ = kWidths[o.descriptor >> 62];
    // The descriptor holds 18 bits of the address, enough for shared memory.
    const auto base = reinterpret_cast<uintptr_t>(runtime::dynamic_shared());
    start_ = (field(0) - uint32_t(base)) & 0x3ffff;
    base_ = static_cast<std::byte*>(runtime::dynamic_shared());
  }

  // Reports operands that the hardware could not read, or would read from another address.
  void check(const void* site) const {
    const auto bad = [&](const std::string& what) {
      report_and_stop("descriptor", "a wgmma operand " + what, {trace::pc_of(site)});
    };
    if (width_ != 0) {
      const uint32_t period = 8 * width_, within = start_ % period;
      const uint32_t needed = transposed_ ? std::min(2 * uint32_t(rows_), width_) : 32;
      if (within + needed > width_)
        bad("begins " + std::to_string(within) + " bytes into a swizzled tile of 8 rows of " +
            std::to_string(width_) + " bytes: the part of the first row that it reads must lie in that row");
      if (stride_ % period != 0 || (transposed_ && leading_ % period != 0))
        bad("has swizzled tiles of " + std::to_string(period) +
            " bytes at distances that are not multiples of that");
    }
    for (int u = 0; u < units(); ++u)
      if (offset(u) + kUnit > runtime::dynamic_shared_bytes())
        bad("reaches past the dynamic shared memory of the block");
  }

  int units() const { return 2 * rows_; }
  // The address of unit u. If k-major, it is half u % 2 of row u / 2. If transposed, it is row k = u % 16 of
  // group u / 16 of m or n.
  std::byte* unit(int u) const { return base_ + offset(u); }

  // The position (row of m or n, k) of element e of a unit.
  Position place(int u, int e, int per_unit) const {
    if (transposed_) return {u / 16 * per_unit + e, u % 16};
    return {u / 2, u % 2 * per_unit + e};
  }
  // The group of 8 rows of a unit.
  int group(int u) const { return u / 16; }

 private:
  uint32_t offset(int u) const {
    const uint32_t across = width_ / kUnit, group = uint32_t(u) / 16, row = uint32_t(u) / 2 % 8,
                   k = uint32_t(u) % 16;
    if (!transposed_ && width_ == 0)
      return start_ + group * stride_ + row * kUnit + uint32_t(u) % 2 * leading_;
    if (!transposed_) return swizzle(start_ + group * stride_ + row * width_ + uint32_t(u) % 2 * kUnit);
    if (width_ == 0) return start_ + group * stride_ + k % 8 * kUnit + k / 8 * leading_;
    return swizzle(start_ + group / across * leading_ + group % across * kUnit + k % 8 * width_ +
                   k / 8 * stride_);
  }
  uint32_t swizzle(uint32_t offset) const {
    return width_ == 128  ? swizzled<Swizzle::bytes128>(offset)
           : width_ == 64 ? swizzled<Swizzle::bytes64>(offset)
                          : swizzled<Swizzle::bytes32>(offset);
  }

  bool transposed_;
  int rows_;
  uint32_t start_, leading_, stride_, width_;
  std::byte* base_;
};

// A register array that each thread of a warpgroup has.
struct RegisterArray {
  uint32_t* registers[kWarpgroup];
  int count;  // per thread
  uint32_t poison = 0;
  int in_flight = 0;  // products in flight that will write them
  // The values that the products in flight will give, for all threads. If none are in flight: the values
  // after the last product or fence, if known.
  std::vector<uint32_t> values;

  template <class Visit>
  void for_each(const Visit& visit) {
    for (int t = 0; t < kWarpgroup; ++t)
      for (int i = 0; i < count; ++i) visit(registers[t][i], values[size_t(t * count + i)]);
  }
  void remember() {
    values.resize(size_t(kWarpgroup * count));
    for_each([](uint32_t& r, uint32_t& value) { value = r; });
  }
  bool as_left() {
    bool same = true;
    for_each([&](uint32_t& r, uint32_t value) { same &= r == value; });
    return same;
  }
  bool poisoned() {
    bool all = true;
    for_each([&](uint32_t& r, uint32_t) { all &= r == poison; });
    return all;
  }
};

struct Product {
  WgmmaCall call;
  RegisterArray* d;
  std::vector<uint32_t> a;  // the registers of all threads
  void (*run)(const Product&);
};

struct Range {
  std::byte* begin;
  int bytes;
};

struct Warpgroup {
  Groups<Product> products;
  Groups<Range> reads;
  std::deque<RegisterArray> arrays;
  bool fenced = false;            // whether it fenced since it last waited
  char issued = 0, finished = 0;  // only their addresses are used, to publish clocks (order.h)

  // The array at pointer(thread).
  template <class Pointer>
  RegisterArray& find(const Pointer& pointer, int count) {
    for (RegisterArray& known : arrays)
      if (known.registers[0] == pointer(0) && known.count == count) return known;
    RegisterArray& added = arrays.emplace_back();
    for (int t = 0; t < kWarpgroup; ++t)
      added.registers[t] = static_cast<uint32_t*>(const_cast<void*>(pointer(t)));
    added.count = count;
    return added;
  }

  void check_fenced(RegisterArray& r, const void* site) const {
    if (r.values.empty() ? !fenced : !r.as_left())
      report("wgmma fence", "wgmma on registers that were written after the last wgmma_fence",
             {trace::pc_of(site)});
  }
};

Warpgroup warpgroups[runtime::kMostOfCluster / kWarpgroup];
int used_warpgroups = 0;  // how many this block has used
Warpgroup& mine() {
  const int i = runtime::thread_index() / kWarpgroup;
  used_warpgroups = std::max(used_warpgroups, i + 1);
  return warpgroups[i];
}

template <class T>
constexpr int kK = 32 / int(sizeof(T));

template <class T>
void load(const WgmmaOperand& from, int rows, Accumulator<T>* to /* (rows, kK) or (kK, rows) */,
          bool k_first) {
  const Operand operand(from, rows);
  constexpr int kPerUnit = kUnit / int(sizeof(T));
  for (int u = 0; u < operand.units(); ++u) {
    T elements[kPerUnit];
    std::memcpy(elements, operand.unit(u), kUnit);
    for (int e = 0; e < kPerUnit; ++e) {
      const Position at = operand.place(u, e, kPerUnit);
      to[k_first ? at.column * rows + at.row : at.row * kK<T> + at.column] = widen(elements[e]);
    }
  }
}

template <class T>
void run(const Product& p) {
  using Number = Accumulator<T>;
  static_assert(sizeof(Number) == 4);
  static Number a[kM * kK<T>], b[kK<T> * 256], sums[kM * 256];
  const int n = p.call.n;
  load<typename ElementsOf<T>::B>(p.call.b, n, b, true);
  if (p.a.empty()) {
    load<typename ElementsOf<T>::A>(p.call.a, kM, a, false);
  } else {
    const auto* elements = reinterpret_cast<const typename ElementsOf<T>::A*>(p.a.data());
    constexpr int kPerThread = 16 / int(sizeof(T));
    for (int i = 0; i < kWarpgroup * kPerThread; ++i) {
      const Position at = WgmmaLayout<T>::a(i / kPerThread, i % kPerThread);
      a[at.row * kK<T> + at.column] = widen(elements[i]);
    }
  }
  std::fill_n(sums, kM * n, Number(0));
  wide::multiply(sums, a, b, kM, n, kK<T>);
  auto* d = reinterpret_cast<Number*>(p.d->values.data());
  for (int i = 0; i < kWarpgroup * p.d->count; ++i) {
    const Position at = WgmmaLayout<T>::c(i / p.d->count, i % p.d->count);
    const Number sum = sums[at.row * n + at.column];
    d[i] = p.call.accumulate ? d[i] + sum : sum;
  }
}

void check_uniform(void* const (&records)[kWarpgroup]) {
  const auto& first = *static_cast<const WgmmaCall*>(records[0]);
  for (const void* record : records) {
    const auto& call = *static_cast<const WgmmaCall*>(record);
    if (call.a.descriptor != first.a.descriptor || call.b.descriptor != first.b.descriptor ||
        call.accumulate != first.accumulate || call.n != first.n)
      report_and_stop("descriptor",
                      "the threads of a warpgroup give wgmma different descriptors or predicates",
                      {trace::pc_of(call.site)});
  }
}

void check_untouched(RegisterArray& d, const void* site) {
  if (!d.poisoned())
    report("in flight", "accumulators of a wgmma under way were written", {trace::pc_of(site)});
}

// Runs when all threads of the warpgroup have reached a wgmma.
template <class T>
void issue(void* const (&records)[kWarpgroup]) {
  check_uniform(records);
  Warpgroup& w = mine();
  Product p{*static_cast<const WgmmaCall*>(records[0]), nullptr, {}, run<T>};
  const auto call = [&](int t) -> const WgmmaCall& { return *static_cast<const WgmmaCall*>(records[t]); };
  if (p.call.a_registers) {
    RegisterArray& a = w.find([&](int t) -> const void* { return call(t).a_registers; }, 4);
    w.check_fenced(a, p.call.site);
    a.remember();
    p.a = a.values;
  }
  RegisterArray& d = w.find([&](int t) -> const void* { return call(t).d; }, p.call.n / 2);
  p.d = &d;
  if (d.in_flight > 0) {
    check_untouched(d, p.call.site);
  } else {
    w.check_fenced(d, p.call.site);
    d.remember();
    d.poison = std::is_same_v<Accumulator<T>, float> ? 0xffffffffu : 0x7fffffffu;
    d.for_each([&](uint32_t& r, uint32_t) { r = d.poison; });
  }
  ++d.in_flight;
  w.products.open.push_back(std::move(p));
}

void finish(Product& p) {
  RegisterArray& d = *p.d;
  p.run(p);
  if (--d.in_flight > 0) return;
  check_untouched(d, p.call.site);
  d.for_each([](uint32_t& r, uint32_t value) { r = value; });
}

// Checks the order of the reads of the calling warp: its 16 rows of a. All warps read b, so each checks every
// fourth group of 8 rows.
void watch(const WgmmaOperand& o, int rows, const auto& is_mine, const void* site) {
  const Operand operand(o, rows);
  operand.check(site);
  std::vector<std::byte*> units;
  for (int u = 0; u < operand.units(); ++u)
    if (is_mine(operand.group(u))) units.push_back(operand.unit(u));
  std::ranges::sort(units);
  auto& open = mine().reads.open;
  order::release(&mine().issued);
  const order::AsWarpgroup engine;
  order::acquire(&mine().issued);
  for (size_t i = 0; i < units.size();) {
    const size_t first = i++;
    while (i < units.size() && units[i] == units[i - 1] + kUnit) ++i;
    open.push_back({units[first], int(i - first) * kUnit});
    begin_async_read(open.back().begin, open.back().bytes, site);
    check_written(open.back().begin, open.back().bytes, site);
  }
}

}  // namespace

template <class T>
void emulate_wgmma(const WgmmaCall& call) {
  const void* site = __builtin_return_address(0);
  const int thread = runtime::thread_index() % kWarpgroup, warp = thread / runtime::kWarp;
  if (thread == 0) {
    static const std::string k = "k" + std::to_string(kK<T>) + kTypesText<T>;
    note_mma(("wgmma.m64n" + std::to_string(call.n) + k).c_str(), int64_t{2} * kM * call.n * kK<T>, site);
  }
  if (thread % runtime::kWarp == 0) {
    if (!call.a_registers) watch(call.a, kM, [&](int group) { return group / 2 == warp; }, site);
    watch(call.b, call.n, [&](int group) { return group % 4 == warp; }, site);
  }
  WgmmaCall record = call;
  record.site = site;
  runtime::warpgroup_exchange(&record, issue<T>);
}

void emulate_wgmma_fence(const WgmmaRegisters* named, int count) {
  struct Record {
    const WgmmaRegisters* named;
    int count;
  } record{named, count};
  runtime::warpgroup_exchange(&record, [](void* const(&records)[kWarpgroup]) {
    Warpgroup& w = mine();
    const auto record = [&](int t) -> const Record& { return *static_cast<const Record*>(records[t]); };
    w.fenced = true;
    for (RegisterArray& r : w.arrays)
      if (r.in_flight == 0) r.values.clear();
    for (int i = 0; i < record(0).count; ++i) {
      RegisterArray& r = w.find([&](int t) { return record(t).named[i].first; }, record(0).named[i].count);
      if (r.in_flight == 0) r.remember();
    }
  });
}

void emulate_wgmma_commit() {
  runtime::warpgroup_exchange(nullptr, [](void* const(&)[kWarpgroup]) {
    mine().products.commit();
    mine().reads.commit();
  });
}

// A group belongs to the whole warpgroup: when it is complete for one warp, it is complete for all.
void emulate_wgmma_wait(int pending) {
  runtime::warpgroup_exchange(&pending, [](void* const(&records)[kWarpgroup]) {
    Warpgroup& w = mine();
    const int pending = *static_cast<const int*>(records[0]);
    if (int(w.products.committed.size()) > pending) w.fenced = false;
    w.products.wait(pending, finish);
    const order::AsWarpgroup engine;
    w.reads.wait(pending, [](const Range& r) { end_async_read(r.begin, r.bytes); });
    order::release_own(&w.finished);
  });
  order::acquire(&mine().finished);
}

void forget_wgmma() {
  for (int i = 0; i < used_warpgroups; ++i) warpgroups[i] = {};
  used_warpgroups = 0;
}

void check_descriptor(const void* shared, int swizzle, int leading, int stride) {
  constexpr int kMost = 0x3fff << 4;
  const auto bad = [](int bytes) { return bytes < 0 || bytes > kMost || bytes % kUnit != 0; };
  if (reinterpret_cast<uintptr_t>(shared) % kUnit != 0)
    runtime::fail("a wgmma operand is not 16-byte aligned");
  if (bad(leading) || bad(stride))
    runtime::fail("offsets of " + std::to_string(leading) + " and " + std::to_string(stride) +
                  " bytes in a wgmma descriptor: multiples of 16 up to 262128 are possible");
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    runtime::fail("a wgmma operand swizzled by " + std::to_string(swizzle) + " bytes");
}

template void emulate_wgmma<Half>(const WgmmaCall&);
template void emulate_wgmma<BFloat16>(const WgmmaCall&);
template void emulate_wgmma<Tf32>(const WgmmaCall&);
template void emulate_wgmma<int8_t>(const WgmmaCall&);
template void emulate_wgmma<uint8_t>(const WgmmaCall&);
template void emulate_wgmma<MixedBytes<uint8_t, int8_t>>(const WgmmaCall&);
template void emulate_wgmma<MixedBytes<int8_t, uint8_t>>(const WgmmaCall&);
template void emulate_wgmma<Fp8Pair<E4M3, E4M3>>(const WgmmaCall&);
template void emulate_wgmma<Fp8Pair<E4M3, E5M2>>(const WgmmaCall&);
template void emulate_wgmma<Fp8Pair<E5M2, E4M3>>(const WgmmaCall&);
template void emulate_wgmma<Fp8Pair<E5M2, E5M2>>(const WgmmaCall&);

}  // namespace fastgemm::simt
