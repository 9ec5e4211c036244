"""Fake kernels: shape and dtype of each result, for torch.compile, torch.export and meta tensors.

They raise the same types of exceptions as real calls, for all errors that can be found without data. Only
real calls check whether a kernel is available, and whether it takes these sizes and strides under torch's flags.
The checks are those of csrc/torch/gemm.cpp, transpose.cpp and add.cpp.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from .._errors import (
    ARITHMETIC,
    MULTIPLIED,
    go_together,
    multiplied_as,
    part_dtype,
    product_type,
    result_dtype,
)
from .._ops.activations import ACTIVATIONS
from .._ops.linear import FLOATS
from .._ops.registration import library
from ..table import check_choice, check_precision, takes_product
from .aliasing import may_overlap, same_view, shares_elements

HALF = (torch.float16, torch.bfloat16)
MOST_DIMENSIONS = 64
WIDTHS = (1, 2, 4, 8, 16)  # bytes


def _require(holds: Any, text: Callable[..., str]) -> None:
    torch._check_value(holds, lambda: f"fastgemm: {text()}")


def same_sizes(shape: tuple[int, ...], expected: tuple[int, ...]) -> Any:
    """Whether two shapes are equal, for :func:`_require`: as the last part of a condition, because ``and`` would
    ask for sizes that torch.compile does not know yet."""
    from torch.fx.experimental.symbolic_shapes import sym_eq  # takes long to import

    return sym_eq(shape, expected)


def _result_dtype(dtype: torch.dtype, out_dtype: torch.dtype | None) -> torch.dtype:
    usual = result_dtype(dtype)
    accepted = (
        usual,
        *((torch.float32,) if dtype in HALF else (torch.int32,) if dtype == torch.int16 else ()),
    )
    _require(
        out_dtype is None or out_dtype in accepted,
        lambda: f"out_dtype={out_dtype} is not available for {dtype} operands",
    )
    return usual if out_dtype is None else out_dtype


def check_activation(activation: str | None, accepted: Iterable[str] = ACTIVATIONS) -> None:
    _require(
        activation is None or activation in accepted,
        lambda: f"unknown activation {activation!r}; accepted: {', '.join(accepted)} or None",
    )


def check_invariant(invariant: bool, level: int | None, impl: str | None) -> None:
    _require(
        not invariant or (level is None and impl is None),
        lambda: "invariant=True chooses the kernel; it takes no level and no kernel",
    )


def _check_scales(dtype: torch.dtype, **scales: float | None) -> None:
    for name, value in scales.items():
        _require(
            dtype.is_floating_point or dtype.is_complex or value is None or _is_whole(value),
            lambda name=name, value=value: (
                f"{name} must be a whole number of 64 bits for integer operands, got {value}"
            ),
        )


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and value == int(value) and -(2**63) <= value < 2**63


def _check_tensors(*tensors: Tensor | None) -> None:
    for t in tensors:
        if t is None:
            continue
        torch._check_not_implemented(
            t.layout is torch.strided,
            lambda t=t: f"fastgemm: only dense (strided) tensors are supported, got layout {t.layout}",
        )
        _require(
            t.dim() <= MOST_DIMENSIONS,
            lambda t=t: f"a tensor has {t.dim()} dimensions; at most {MOST_DIMENSIONS} are supported",
        )


def _check_out(out: Tensor, expected: Tensor, name: str = "out") -> None:
    _require(
        same_sizes(out.shape, expected.shape),
        lambda: f"{name} has shape {tuple(out.shape)}, expected {tuple(expected.shape)}",
    )
    _require(out.dtype == expected.dtype, lambda: f"{name} has dtype {out.dtype}, expected {expected.dtype}")
    _require(not shares_elements(out), lambda: f"{name} has elements that share memory (an expanded tensor?)")


def _check_overlap(out: Tensor, may_be_out: str, out_name: str = "out", **operands: Tensor | None) -> None:
    """``may_be_out``: the operands with which out may be identical."""
    for name, x in operands.items():
        _require(
            x is None or (name in may_be_out and same_view(x, out)) or not may_overlap(out, x),
            lambda name=name: f"{out_name} overlaps {name} in memory; pass a separate tensor",
        )


def _check_devices(*tensors: Tensor | None) -> None:
    devices = [t.device for t in tensors if t is not None]
    _require(
        len(set(devices)) == 1,
        lambda: f"all tensors must be on one device, got {', '.join(map(str, devices))}",
    )


def _check_dtypes(a: Tensor, b: Tensor, accepted: tuple[torch.dtype, ...] = ARITHMETIC) -> None:
    together = a.dtype == b.dtype or (accepted is MULTIPLIED and go_together(a.dtype, b.dtype))
    _require(together, lambda: f"dtypes differ: {a.dtype} and {b.dtype}")
    torch._check_type(a.dtype in accepted, lambda: f"fastgemm: dtype {a.dtype} is not supported")


@contextlib.contextmanager
def _shapes_go_together(text: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # of symbolic sizes, which torch catches itself
            raise
        raise ValueError(f"fastgemm: {text()}") from error


def _broadcast(what: str, x: torch.Size, y: torch.Size) -> torch.Size:
    with _shapes_go_together(lambda: f"{what} {tuple(x)} and {tuple(y)} do not broadcast"):
        return torch.broadcast_shapes(x, y)


def _gemm_shape(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> list[int]:
    _require(a.dim() >= 2 and b.dim() >= 2, lambda: "a and b must have at least 2 dimensions")
    m, k = (a.shape[-1], a.shape[-2]) if trans_a else (a.shape[-2], a.shape[-1])
    n, k_of_b = (b.shape[-2], b.shape[-1]) if trans_b else (b.shape[-1], b.shape[-2])
    _require(k == k_of_b, lambda: f"inner sizes differ: {k} and {k_of_b}")
    return [*_broadcast("batches of", a.shape[:-2], b.shape[:-2]), m, n]


def _check_c(c: Tensor, shape: list[int], dtype: torch.dtype) -> None:
    _require(c.dtype == dtype, lambda: f"c has dtype {c.dtype}, expected {dtype}")
    with _shapes_go_together(
        lambda: f"c has shape {tuple(c.shape)}, which does not broadcast to {tuple(shape)}"
    ):
        c.expand(shape)


def _gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    level: int | None = None,
    impl: str | None = None,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
    symmetric: bool = False,
) -> Tensor:
    _check_tensors(a, b, c)
    _check_devices(a, b, c)
    _check_dtypes(a, b, MULTIPLIED)
    dtype = _result_dtype(a.dtype, out_dtype)
    check_precision(precision, part_dtype(a.dtype))
    shape = _gemm_shape(a, b, trans_a, trans_b)
    if symmetric:
        _require(
            shape[-1] == shape[-2],
            lambda: f"symmetric=True is for square results, not for {tuple(shape[-2:])}",
        )
    _check_scales(a.dtype, alpha=alpha, beta=beta)
    _require(c is not None or beta is None or beta == 0, lambda: f"beta is {beta} but there is no c")
    if c is not None:
        _check_c(c, shape, dtype)
    types = a.dtype, b.dtype, out_dtype
    if not takes_product(product_type(*types), a.device, level, impl):
        check_choice("gemm", a.device, multiplied_as(*types), level, impl, precision)
    return a.new_empty(shape, dtype=dtype)


def _linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    activation: str | None = None,
    **options: Any,
) -> Tensor:
    check_activation(activation)
    _require(
        input.dtype in FLOATS or input.is_complex(),
        lambda: (
            f"input has dtype {input.dtype}; accepted are float64, float32, float16, bfloat16, complex128, "
            "complex64 and complex32 (fastgemm.matmul also multiplies integers)"
        ),
    )
    _require(
        activation is None or not input.is_complex(),
        lambda: f"complex input takes no activation; got {input.dtype}",
    )
    _require(
        weight.dim() == 2, lambda: f"weight must have 2 dimensions (N, K), got shape {tuple(weight.shape)}"
    )
    result = _gemm(input, weight, trans_b=True, **options)
    _check_tensors(bias, residual)
    _check_devices(input, bias, residual)
    check_terms(input, result, bias, residual)
    return result


def check_terms(input: Tensor, result: Tensor, bias: Tensor | None, residual: Tensor | None) -> None:
    """The checks of what a layer adds to its product."""
    if bias is not None:
        _require(
            bias.dtype in (input.dtype, result.dtype) and same_sizes(bias.shape, result.shape[-1:]),
            lambda: f"bias of shape {tuple(bias.shape)} and {bias.dtype} does not fit weight",
        )
    if residual is not None:
        _require(
            residual.dtype == result.dtype and same_sizes(residual.shape, result.shape),
            lambda: (
                f"residual has shape {tuple(residual.shape)} and {residual.dtype}, expected "
                f"{tuple(result.shape)} and {result.dtype}"
            ),
        )


def _transpose(a: Tensor, *, level: int | None = None, impl: str | None = None) -> Tensor:
    _check_tensors(a)
    _require(a.dim() >= 2, lambda: "a must have at least 2 dimensions")
    _require(a.itemsize in WIDTHS, lambda: f"elements of {a.dtype} are not accepted")
    check_choice("transpose", a.device, a.dtype, level, impl)
    return a.new_empty([*a.shape[:-2], a.shape[-1], a.shape[-2]])


def _add(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, level: int | None = None, impl: str | None = None
) -> Tensor:
    _check_tensors(a, b)
    _check_devices(a, b)
    _check_dtypes(a, b)
    _check_scales(a.dtype, alpha=alpha)
    shape = _broadcast("shapes", a.shape, b.shape)
    check_choice("add", a.device, part_dtype(a.dtype), level, impl)
    return a.new_empty(shape)


def _gemm_out(a: Tensor, b: Tensor, c: Tensor | None = None, *, out: Tensor, **options: Any) -> None:
    _check_tensors(out)
    _check_devices(a, b, c, out)
    _check_out(out, _gemm(a, b, c, **options))
    _check_overlap(out, "c", a=a, b=b, c=c)


def _transpose_out(a: Tensor, *, out: Tensor, **options: Any) -> None:
    _check_tensors(out)
    _check_devices(a, out)
    _check_out(out, _transpose(a, **options))
    _check_overlap(out, "", a=a)


def _add_out(a: Tensor, b: Tensor, *, out: Tensor, name: str = "out", **options: Any) -> None:
    _check_tensors(out)
    _check_devices(a, b, out)
    _check_out(out, _add(a, b, **options), name)
    _check_overlap(out, "ab", name, a=a, b=b)


def _add_in_place(a: Tensor, b: Tensor, **options: Any) -> None:
    _add_out(a, b, out=a, name="a", **options)


def _register(name: str, function: Callable[..., object]) -> None:
    """Like torch.library.register_fake, but without its search for the calling line: ``inspect`` looks at every
    loaded module, which takes 3 to 6 ms of an import."""
    name = f"fastgemm::{name}"
    try:
        of_op = torch._library.simple_registry.singleton.find(name).fake_impl
        of_op.register(function, __file__, lib=library)
    except (AttributeError, TypeError):  # another torch
        torch.library.register_fake(name, function)


def register() -> None:
    fakes: dict[str, Callable[..., Tensor]] = {"gemm": _gemm, "transpose": _transpose, "add": _add}
    into: dict[str, Callable[..., None]] = {"gemm": _gemm_out, "transpose": _transpose_out, "add": _add_out}
    for name, fake in fakes.items():
        _register(name, fake)
        _register(f"_{name}", fake)
        _register(f"{name}.out", into[name])
    _register("_matmul", _gemm)
    _register("linear", _linear)
    _register("_fused_linear", _linear)
    _register("add_", _add_in_place)
