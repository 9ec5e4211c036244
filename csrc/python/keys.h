// The keys of measurements, as Python describes them.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "core/tuning.h"
#include "python/parse.h"

namespace fastgemm {

// (op, device, type, out_type, precision, a_transposed, b_transposed, accumulates, threads, batch, m, n, k)
using KeyTuple = std::tuple<std::string, std::string, std::string, std::string, std::string, bool, bool, bool,
                            int, int64_t, int64_t, int64_t, int64_t>;

inline KeyTuple from_key(const TuningKey& k) {
  const auto text = [](auto value) { return std::string(to_string(value)); };
  return {text(k.op),
          text(k.device),
          text(k.type),
          text(k.out_type),
          text(k.precision),
          k.a_transposed,
          k.b_transposed,
          k.accumulates,
          k.threads,
          k.batch,
          k.m,
          k.n,
          k.k};
}

inline TuningKey to_key(const KeyTuple& t) {
  TuningKey k;
  k.op = parse<Op>(std::get<0>(t), 3, "op");
  k.device = parse<Device>(std::get<1>(t), 3, "device");
  k.type = parse<DType>(std::get<2>(t), kDTypes, "dtype");
  k.out_type = parse<DType>(std::get<3>(t), kDTypes, "dtype");
  k.precision = parse<Precision>(std::get<4>(t), kPrecisions, "precision");
  std::tie(k.a_transposed, k.b_transposed, k.accumulates) =
      std::tuple(std::get<5>(t), std::get<6>(t), std::get<7>(t));
  std::tie(k.threads, k.batch) = std::tuple(std::get<8>(t), std::get<9>(t));
  std::tie(k.m, k.n, k.k) = std::tuple(std::get<10>(t), std::get<11>(t), std::get<12>(t));
  return k;
}

// The further parts of the key of a first call. A tuple of 13 values is a key of autotune, which lacks them.
enum Detail : int { kAlignedInputs = 1, kAlignedOut = 2, kAddsRow = 4, kEpilogue = 8 };

inline int details_of(const TuningKey& k) {
  return k.alignment.inputs * kAlignedInputs | k.alignment.out * kAlignedOut | k.adds_row * kAddsRow |
         k.epilogue * kEpilogue;
}

// The key of a measurement; details: none for one of autotune's.
inline TuningKey to_detailed_key(const KeyTuple& tuple, const std::string& gpu, std::optional<int> details) {
  TuningKey key = to_key(tuple);
  key.gpu = gpu_number(gpu);
  if (!details) return key;
  if (*details < 0 || *details >= 2 * kEpilogue) throw std::invalid_argument("unknown details of a key");
  key.alignment = {(*details & kAlignedInputs) != 0, (*details & kAlignedOut) != 0};
  key.adds_row = *details & kAddsRow, key.epilogue = *details & kEpilogue;
  return key;
}

}  // namespace fastgemm
