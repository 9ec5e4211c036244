// The names of operations, devices, types and precisions in messages and in Python.
#pragma once

#include <string_view>

#include "core/table.h"

namespace fastgemm {

constexpr std::string_view to_string(Op op) {
  constexpr std::string_view names[] = {"gemm", "transpose", "add"};
  return names[static_cast<int>(op)];
}
constexpr std::string_view to_string(Device d) {
  constexpr std::string_view names[] = {"cpu", "cuda", "the simulator"};
  return names[static_cast<int>(d)];
}
constexpr std::string_view to_string(DType t) {
  constexpr std::string_view names[] = {"float64",
                                        "float32",
                                        "float16",
                                        "bfloat16",
                                        "int8",
                                        "int32",
                                        "int64",
                                        "uint8",
                                        "int16",
                                        "bits8",
                                        "bits16",
                                        "bits32",
                                        "bits64",
                                        "bits128",
                                        "uint8 with int8",
                                        "int8 with uint8",
                                        "int16 to int64",
                                        "float8_e4m3fn",
                                        "float8_e5m2",
                                        "float8_e4m3fn with float8_e5m2",
                                        "float8_e5m2 with float8_e4m3fn"};
  return names[static_cast<int>(t)];
}
inline constexpr int kPrecisions = int(Precision::crt18) + 1;
constexpr std::string_view to_string(Precision p) {
  constexpr std::string_view names[] = {"ieee",  "tf32",  "bf16x3", "bf16x6", "fp16x3",
                                        "crt14", "crt15", "crt16",  "crt17",  "crt18"};
  return names[static_cast<int>(p)];
}

}  // namespace fastgemm
