// Reading and writing the argument stack of a boxed op (torch stable ABI).
//
// TORCH_BOX would do this from a C++ signature, but up to torch 2.13 it leaks every str argument: 48 bytes or
// more per call. The few conversions that these ops need are therefore written here. The callee owns every
// argument on the stack. The reader takes all of them before any work, so that an exception leaks nothing.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

namespace fastgemm::torch_ops {

using torch::stable::Tensor;

struct TorchError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(AOTITorchError error, const char* call) {
  if (error != AOTI_TORCH_SUCCESS) throw TorchError(std::string("torch: ") + call + " failed");
}

class StackReader {
 public:
  explicit StackReader(StableIValue* stack) : next_(stack) {}

  Tensor tensor() { return take_tensor(*next_++); }
  std::optional<Tensor> optional_tensor() { return take_optional(take_tensor); }
  int64_t integer() { return as<int64_t>(*next_++); }
  std::string string() { return take_string(*next_++); }
  double number() { return as<double>(*next_++); }
  std::optional<double> optional_number() { return take_optional(as<double>); }
  bool flag() { return as<bool>(*next_++); }
  std::optional<int64_t> optional_integer() { return take_optional(as<int64_t>); }
  std::optional<int32_t> optional_dtype() { return take_optional(as<int32_t>); }
  std::optional<std::string> optional_string() { return take_optional(take_string); }

 private:
  template <class T>
  static T as(StableIValue v) {
    T t;
    static_assert(sizeof(T) <= sizeof(v) && std::is_trivially_copyable_v<T>);
    std::memcpy(&t, &v, sizeof(T));
    return t;
  }
  static Tensor take_tensor(StableIValue v) { return Tensor(as<AtenTensorHandle>(v)); }
  static std::string take_string(StableIValue v) {
    const auto handle = as<StringHandle>(v);
    size_t length = 0;
    const char* text = nullptr;
    std::string copy;
    if (torch_string_length(handle, &length) == AOTI_TORCH_SUCCESS &&
        torch_string_c_str(handle, &text) == AOTI_TORCH_SUCCESS)
      copy.assign(text, length);
    check(torch_delete_string(handle), "torch_delete_string");
    return copy;
  }
  // None is a null pointer. Any other value is on the heap, and we must delete it.
  template <class Take>
  auto take_optional(Take take) -> std::optional<decltype(take(StableIValue{}))> {
    auto* boxed = as<StableIValue*>(*next_++);
    if (!boxed) return std::nullopt;
    auto value = take(*boxed);
    delete boxed;
    return value;
  }

  StableIValue* next_;
};

// Gives a new tensor to the caller.
inline void return_tensor(StableIValue* stack, const Tensor& t) { stack[0] = torch::stable::detail::from(t); }

}  // namespace fastgemm::torch_ops
