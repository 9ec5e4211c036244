"""Adds to errors of the op library the exception types that it cannot raise, and names that it does not know.

The op library reports bad input as ValueError or RuntimeError before it does any work. After a call has failed,
this module recognizes errors that torch would raise as TypeError or NotImplementedError. So a valid call spends no
time on the distinction.

A message begins with the function of this package that was called: "fastgemm.matmul: ...". Inner functions do not
know this name and begin with "fastgemm: "; the outermost public function puts its name there. If no public
function was called (a patch computes torch's own functions), "fastgemm: " remains."""

from __future__ import annotations

import re
import warnings

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling, is_dynamo_compiling

from . import _introspect

COMPLEX_PARTS = {
    torch.complex128: torch.float64,
    torch.complex64: torch.float32,
    torch.complex32: torch.float16,
}
ARITHMETIC = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *COMPLEX_PARTS,
    *(torch.int8, torch.int32, torch.int64, torch.uint8, torch.int16),
)


MULTIPLIED = (*ARITHMETIC, torch.bool)
BYTES = (torch.int8, torch.uint8, torch.bool)  # operands of these types may be mixed


def part_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type whose kernels compute the product: of the real parts for complex numbers, uint8 for bool."""
    return torch.uint8 if dtype == torch.bool else COMPLEX_PARTS.get(dtype, dtype)


def go_together(a: torch.dtype, b: torch.dtype) -> bool:
    """Whether operands of these types are multiplied."""
    return a == b or (a in BYTES and b in BYTES)


def multiplied_as(a: torch.dtype, b: torch.dtype, out_dtype: torch.dtype | None = None) -> torch.dtype:
    """The type to which operands of two types are widened if no kernel multiplies them directly."""
    if a == b == torch.int16 and out_dtype in (None, torch.int64):
        return torch.int64
    return part_dtype(a) if part_dtype(a) == part_dtype(b) else torch.int16


def product_type(a: torch.dtype, b: torch.dtype, out_dtype: torch.dtype | None = None) -> str | None:
    """The op library's name for the type of a product that differs from the types of its operands; else None."""
    if a == b == torch.int16 and out_dtype in (None, torch.int64):
        return "int16 to int64"
    names = [str(part_dtype(x)).removeprefix("torch.") for x in (a, b)]
    return None if names[0] == names[1] else " with ".join(names)


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of a product of operands of a type, unless ``out_dtype`` asks for another."""
    return torch.int32 if dtype in BYTES else torch.int64 if dtype == torch.int16 else dtype


def not_a_tensor(**arguments: object) -> TypeError:
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            return TypeError(f"fastgemm: {name} must be a torch.Tensor, got {type(value).__name__}")
    raise AssertionError("every argument is a tensor")


def refuse_tensor_scales(**scales: object) -> None:
    """alpha and beta are numbers: torch would convert a tensor of one element, and its gradient would be lost."""
    for name, value in scales.items():
        if isinstance(value, Tensor):
            raise TypeError(
                f"fastgemm: {name} must be a number, got a tensor, which would get no gradient: "
                f"pass {name}.item(), or multiply an operand or the result by it"
            )


def has_tangent(*operands: object) -> bool:
    """Whether forward-mode AD asks for the tangent of a result."""
    return forward_ad._current_level >= 0 and any(isinstance(x, Tensor) and _is_dual(x) for x in operands)


def _is_dual(x: Tensor) -> bool:
    # The vmap by which gradcheck batches tangents has no rule for unpack_dual, so its tensors count as dual: what
    # is done for a tangent is right without one, too.
    return is_legacy_batchedtensor(x) or forward_ad.unpack_dual(x).tangent is not None


def wants_gradient(*operands: object) -> bool:
    """Whether reverse-mode AD asks for the gradient of a result."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in operands)


def wants_derivative(*operands: object) -> bool:
    """Whether a result needs a gradient, or a tangent, which torch.compile does not ask for."""
    return wants_gradient(*operands) or (not is_compiling() and has_tangent(*operands))


def is_sharded(*tensors: object) -> bool:
    """Whether there are DTensors. Sharded along a sequence or in uneven parts, they cannot be reshaped to rows."""
    return any(type(x).__name__ == "DTensor" for x in tensors)


def refuse_sharded(function: str, **tensors: object) -> None:
    """For a call that has failed, of a function without rules for DTensors: torch names an op inside of it."""
    for name, t in tensors.items():
        if is_sharded(t):
            raise NotImplementedError(
                f"fastgemm.{function}: {name} is a DTensor, which this product does not take; call it with plain "
                f"tensors, such as {name}.to_local(), the part of this device (docs/scale.md)"
            )


def refuse_gradient_into_out(*tensors: Tensor | None) -> None:
    if not torch.is_grad_enabled():
        return
    for t in tensors:  # faster than any(), and than isinstance(None, Tensor), which runs Python code
        if t is not None and isinstance(t, Tensor) and t.requires_grad:
            raise RuntimeError(
                "fastgemm: out= does not support automatic differentiation, but one of the arguments requires grad"
            )


def refuse_transform_into_out(*tensors: Tensor | None) -> None:
    """Forward-mode AD and torch.func do not see writes into out: the tangents would be zero."""
    if peek_interpreter_stack() is not None:
        raise RuntimeError("fastgemm: out= does not work inside torch.func transforms (vmap, grad, jvp)")
    if has_tangent(*tensors):
        raise RuntimeError("fastgemm: out= does not support forward-mode automatic differentiation")


def alert_not_deterministic(caller: str) -> None:
    """Raises, or warns if the user asked for that, as torch does for an op without a deterministic
    implementation. For public functions that choose by measured time."""
    if not torch.are_deterministic_algorithms_enabled():
        return
    text = (
        f"fastgemm.{caller} chooses by measured time, so what it chooses, and with it the last bits of results, "
        "can differ from run to run; tune before torch.use_deterministic_algorithms(True), or in a run of its own"
    )
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(text)
    warnings.warn(text, UserWarning, stacklevel=3)


def refuse_level(level: object) -> None:
    """Refuses arguments that the ops cannot refuse: torch takes a bool as an int, and rejects an int of more than
    64 bits in its own words."""
    if isinstance(level, bool):
        raise TypeError("fastgemm: level must be an int or None, got bool")
    if isinstance(level, int) and not 1 <= level <= 7:
        raise ValueError(f"fastgemm: level must be 1 to 7 or None, got {level}")


def refuse_inference_tensor(out: Tensor) -> None:
    """Autograd keeps no version counter for an inference tensor, so it could not notice the change."""
    if isinstance(out, Tensor) and out.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            "fastgemm: Inplace update to inference tensor outside InferenceMode is not allowed; clone it to get a "
            "normal tensor, or write to it inside torch.inference_mode()"
        )


def refuse_shape(a: Tensor, expected: torch.Size) -> None:
    """``a``: what ``add_`` changes."""
    if a.shape != expected:
        raise ValueError(f"fastgemm: a has shape {tuple(a.shape)}, expected {tuple(expected)}")


_OF_THE_PACKAGE = re.compile(r"fastgemm(\.\w+)*: ")


def attribute(error: Exception, function: str) -> None:
    """Puts the name of the called function at the beginning of an exception's message."""
    if is_dynamo_compiling():  # which refuses to change an exception
        return
    text = str(error)
    start = _OF_THE_PACKAGE.match(text)
    if start:
        error.args = (f"fastgemm.{function}: {text[start.end() :]}",)


def diagnose(
    error: Exception,
    function: str,
    *,
    accepted: tuple[torch.dtype, ...] = MULTIPLIED,
    **tensors: Tensor | None,
) -> None:
    """Raises a more precise exception than ``error`` if the arguments explain it; otherwise returns.

    ``function``: the public function that was called; its name goes into the message.
    """
    try:
        _diagnose(error, accepted, **tensors)
    except Exception as better:
        attribute(better, function)
        raise
    attribute(error, function)


def _diagnose(error: Exception, accepted: tuple[torch.dtype, ...], **tensors: Tensor | None) -> None:
    refused = error.__cause__  # DTensor wraps exceptions of the fake kernels
    if isinstance(refused, (ValueError, TypeError)) and str(refused).startswith("fastgemm"):
        raise refused
    for name, t in tensors.items():
        if t is None and name not in ("a", "b", "x", "w", "weight"):
            continue
        if not isinstance(t, Tensor):
            raise not_a_tensor(**{name: t}) from None
        if t.layout is not torch.strided:
            raise NotImplementedError(
                f"fastgemm: {name} has layout {t.layout}; only dense (strided) tensors are supported"
            ) from error
        if t.is_nested:
            raise NotImplementedError(f"fastgemm: {name} is a nested tensor; unbind it or pad it") from error
        if t.is_quantized:
            raise NotImplementedError(f"fastgemm: {name} is quantized; dequantize it or use int8") from error
    _explain_option(error)
    if isinstance(error, RuntimeError) and _OUT_OF_MEMORY in str(error):
        raise torch.OutOfMemoryError(str(error)) from error
    given = {name: t for name, t in tensors.items() if t is not None}
    devices = {name: t.device for name, t in given.items()}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"fastgemm: all tensors must be on one device, got {listed}") from error
    device = next(iter(devices.values()))
    if device.type == "cuda":
        _explain_cuda(error)
    if device.type not in ("cpu", "cuda", "meta"):
        raise NotImplementedError(f"fastgemm: no kernels for device type {device.type!r}") from error
    if "b" in given:
        _explain_dtypes(given, accepted, error)


_WRONG_TYPE = re.compile(
    r"Expected a value of type '(.*)' for argument '(\w+)' but instead found type '(.*)'"
)
_OUT_OF_MEMORY = "fastgemm: out of memory"
_PUBLIC = {"impl": "kernel"}  # the ops' name of an argument, and the one that the public functions take
_KINDS = {
    "Optional[int]": "an int or None",
    "Optional[str]": "a str or None",
    "Optional[float]": "a float or None",
}


def _explain_option(error: Exception) -> None:
    """torch reports an argument of the wrong type as a RuntimeError, with the schema's names."""
    found = _WRONG_TYPE.search(str(error))
    if found:
        wanted, name, got = found.groups()
        kind = "a torch.dtype or None" if name == "out_dtype" else _KINDS.get(wanted, f"a {wanted}")
        raise TypeError(f"fastgemm: {_PUBLIC.get(name, name)} must be {kind}, got {got}") from error


def _explain_dtypes(given: dict[str, Tensor], accepted: tuple[torch.dtype, ...], error: Exception) -> None:
    for name in ("a", "b"):
        if given[name].dtype not in accepted:
            names = ", ".join(str(d).removeprefix("torch.") for d in accepted)
            raise TypeError(
                f"fastgemm: {name} has dtype {given[name].dtype}, which is not supported; accepted: {names}"
            ) from error


def _explain_cuda(error: Exception) -> None:
    if not _introspect.build_info()["cuda_kernels"]:
        raise RuntimeError(
            "fastgemm was built without CUDA kernels, but got CUDA tensors. Rebuild it where nvcc is installed "
            "with FASTGEMM_CUDA=1 pip install --no-build-isolation ."
        ) from error
