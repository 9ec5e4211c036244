// torch.ops.fastgemm._dequantize: a packed weight as a matrix, each number rounded once.
#include "core/passes.h"
#include "torch/context.h"
#include "torch/ops.h"
#include "torch/packed_arguments.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

DType type_of(int32_t dtype) {
  if (dtype == kFloat) return DType::f32;
  if (dtype == kBFloat16) return DType::bf16;
  if (dtype == kHalf) return DType::f16;
  bad_value("a packed weight becomes torch.float32, torch.bfloat16 or torch.float16, not " +
            dtype_text(dtype));
}

}  // namespace

void dequantize(StableIValue* stack, uint64_t, uint64_t) {
  // In the order of the schema in library.cpp.
  StackReader s(stack);
  PackedArguments args = PackedArguments::tensors(s);
  args.n = s.integer();
  const int64_t k = s.integer();
  args.read_format(s);
  const std::optional<int32_t> dtype = s.optional_dtype();

  const View codes(args.codes);
  if (k < 0) bad_value("k must not be negative, got " + std::to_string(k));
  const DType type = type_of(dtype.value_or(kFloat));
  const PackedOperands packed = packed_operands(args, k, codes, "codes");
  const Tensor out = empty_contiguous(std::array{args.n, k}, dtype.value_or(kFloat), codes);
  with_context(codes, [&](Context& context, Device device, int) {
    if (packed.weight.units != (device != Device::cpu))
      bad_value("the codes lie in the order of another device");
    if (args.n == 0 || k == 0) return;
    passes_of(device).dequantize({type, args.n, k, packed.codes, packed.weight, {View(out).data, k, 1, 0}},
                                 context);
  });
  return_tensor(stack, out);
}

}  // namespace fastgemm::torch_ops
