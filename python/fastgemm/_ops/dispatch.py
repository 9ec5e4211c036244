"""How a call of a public function reaches ``torch.ops.fastgemm``.

A call takes one of these paths, because each feature of torch costs time in every call:

- ``torch.compile``, ``torch.export`` and ``torch.jit.trace`` see ``torch.ops.fastgemm.gemm``, which has an
  autograd formula and what ``torch.func`` transforms need (_tracing/functorch.py);
- ``out=`` uses the out overload (in a graph only if :func:`graph_writes`);
- a product or layer of plain tensors is one function of the library of csrc/torch/override
  (``matmul_at_once``, ``gemm_at_once`` also with ``out=``, ``fused_linear_at_once``; ``linear_at_once`` for layers
  of fastgemm.nn without a level or kernel);
- everything else calls the bare op ``_gemm``. With that library the op itself checks in C++ whether a gradient is
  needed. Without it, ``torch.func`` transforms, forward-mode AD and eager calls that need a gradient first go
  through an autograd.Function.

:class:`Op` chooses among all paths except the third.

Tensor subclasses, torch function modes and fx proxies can override the call first, as with torch's own functions;
for them the library's functions return NotImplemented. Modes that do not affect products are skipped: that of
``torch.set_default_device`` would cost 1 us for each property that Python reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch.compiler import is_compiling, is_dynamo_compiling, is_exporting
from torch.overrides import BaseTorchFunctionMode, handle_torch_function
from torch.utils._device import DeviceContext

from .. import _errors, _override_library
from ..table import FLOAT64_PRECISIONS
from . import autocast
from .sizes import same
from .torch_flags import torch_fp32_precision

if TYPE_CHECKING:
    from typing_extensions import Unpack

increment_version = torch._C._increment_version  # so that autograd notices what the ops wrote; 0.16 us
tracing_state = torch._C._get_tracing_state  # the function behind torch.jit.is_tracing
ops = torch.ops.fastgemm
_unsafe_view = torch.ops.aten._unsafe_view.default

# Types whose products torch computes in the same type, as fastgemm does. Integers of 8 and 16 bits do not belong
# here, because torch wraps their products to their type. complex32 does not belong here, because torch does not
# multiply it.
SAME_TYPE = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64),
        *(torch.complex128, torch.complex64),
    }
)
WITH_PRECISION = frozenset({torch.float32, torch.complex64})
"""Types whose products follow torch's precision of float32."""
PLAIN = frozenset({Tensor, torch.nn.Parameter})
CHOICE = ("level", "kernel", "precision", "out_dtype")
"""The options of every product, in the order of the ops' schemas."""
DENSE = torch.strided

# OpOverload.__call__ calls these. Calling them directly saves its Python frame, 0.4 to 1 us of about 3.
matmul_bare = ops._matmul.default._op
gemm_bare = ops._gemm.default._op

FINDS_GRADIENTS = _override_library.use_in_eager_mode()
"""Whether the bare ops of products are differentiable, on a CPU and a GPU."""


KNOWS_EXPORT = _override_library.TORCH != "2.11"
"""Whether torch.compile tells itself from torch.export. In torch 2.11 it takes is_exporting() for true."""


def _not_here(*_: Any) -> Any:
    return NotImplemented


_library, _ = _override_library.load()
# NotImplemented for what only Python knows how to hand on: tensor subclasses, modes, traces, other devices.
matmul_at_once: Callable[..., Any] = _library.matmul if _library else _not_here
gemm_at_once: Callable[..., Any] = _library.gemm if _library else _not_here
fused_linear_at_once: Callable[..., Any] = _library.fused_linear if _library else _not_here
linear_at_once: Callable[..., Any] = _library.linear if _library else _not_here
linear_bare: Callable[..., Tensor] | None = ops._linear.default._op if _library else None
if _library:
    for _mode in (DeviceContext, BaseTorchFunctionMode):
        _library.leave_alone(_mode)


def overridden(function: Callable[..., Any], tensors: tuple[Any, ...], *given: Any, **options: Any) -> Any:
    """Passes a call on to the ``__torch_function__`` of one of its tensors or of a mode."""
    options = {name: value for name, value in options.items() if value is not None}
    result = out_of_sight(function, tensors, *given, **options)
    return handle_torch_function(function, tensors, *given, **options) if result is NotImplemented else result


def out_of_sight(function: Callable[..., Any], tensors: tuple[Any, ...], *given: Any, **options: Any) -> Any:
    """Repeats a call if only modes that can be skipped would see it; otherwise returns NotImplemented."""
    if _library is None or is_dynamo_compiling() or _library.is_overridden(*tensors):
        return NotImplemented
    return _library.call_unseen(function, *given, **options)


compiled_overrides: list[tuple[type, Callable[..., Any]]] = []
"""Tensor subclasses of this package, each with its function for calls: ``__torch_function__`` without types."""


def only_override(x: object, *others: object) -> Callable[..., Any] | None:
    """The function for eager calls with this operand if nothing else overrides them. The search of
    handle_torch_function costs 5 us."""
    for kind, call in compiled_overrides:
        if type(x) is kind and _library is not None and not _library.is_overridden(*others):
            return call
    return None


def compiled_override(x: object) -> Callable[..., Any] | None:
    """The function that overrides calls with this operand while torch.compile records them. It finds
    ``__torch_function__`` for torch's functions only: has_torch_function_variadic is False there."""
    if is_dynamo_compiling():
        for kind, call in compiled_overrides:
            if isinstance(x, kind):
                return call
    return None


class Op:
    """What a call of a public function runs.

    Args:
        name: the op that graphs hold, whose overload ``out`` writes into a tensor.
        others: ops with the same arguments, which eager calls use.
        bare: runs eager calls without a gradient.
        differentiable: runs calls that need a gradient or a transform, after autocast's casts.
        cast: makes autocast's casts of an op's tensors; None if autocast does not change the op.
        finds_gradients: whether ``bare`` is differentiable, on a CPU and a GPU.
    """

    def __init__(
        self,
        name: str,
        others: tuple[str, ...],
        bare: Callable[..., Tensor],
        differentiable: Callable[..., Tensor],
        cast: Callable[..., tuple[Tensor | None, ...]] | None = None,
        finds_gradients: bool = False,
    ) -> None:
        self.names = name, *others
        self.packet = getattr(ops, name)
        self.into: Any = self.packet.out._op if "out" in self.packet.overloads() else None
        self.bare, self.differentiable, self.cast = bare, differentiable, cast
        self.finds_gradients = finds_gradients

    def call(
        self,
        operands: tuple[Tensor, Unpack[tuple[Tensor | None, ...]]],
        options: dict[str, Any],
        out: Tensor | None = None,
    ) -> Tensor:
        """Runs the op; ``options`` holds the schema's keyword arguments that differ from their defaults."""
        if is_compiling():
            if out is None:
                return self.packet.default(*operands, **options)
            _errors.refuse_gradient_into_out(*operands, out)
            if graph_writes(out):
                self.packet.out(*operands, **options, out=out)
                return out
            # Autocast does not change calls with out=.
            with torch.autocast(operands[0].device.type, enabled=False):
                return written(self.packet.default(*operands, **options), out)
        if out is not None:
            tensors = (*operands, out)
            _errors.refuse_gradient_into_out(*tensors)
            _errors.refuse_transform_into_out(*tensors)
            _errors.refuse_inference_tensor(out)
            self.into(*operands, **options, out=out)
            increment_version((out,))
            return out
        if tracing_state() is not None:
            return self.packet.default(*operands, **options)
        found = self.finds_gradients and (operands[0].is_cpu or operands[0].is_cuda)
        if not found and needs_function(*operands):
            run = self.packet.default if functionalizes() else self.differentiable
            return run(*operands, **options)
        return self.bare(*operands, **options) if options else self.bare(*operands)


def graph_writes(out: Tensor) -> bool:
    """Whether an op of a graph may write into a tensor. Inductor gives the op another place if this is a view
    whose storage offset is symbolic (pytorch issue 198068). It does not know such ops of complex numbers, and
    torch.export refuses them.
    """
    if not is_dynamo_compiling() or (KNOWS_EXPORT and is_exporting()):
        return False
    return out._base is None and not out.is_complex()


def written(result: Tensor, out: Tensor) -> Tensor:
    """Copies a result into ``out``."""
    if not same(out.shape, result.shape):
        raise ValueError(f"fastgemm: out has shape {tuple(out.shape)}, expected {tuple(result.shape)}")
    if out.dtype != result.dtype:
        raise ValueError(f"fastgemm: out has dtype {out.dtype}, expected {result.dtype}")
    if out.device != result.device:
        raise ValueError(f"fastgemm: out is on {out.device}, expected {result.device}")
    return out.copy_(result)


def needs_function(*operands: Tensor | None) -> bool:
    """Whether this eager call must go through an autograd.Function."""
    if torch.is_grad_enabled():
        for x in operands:
            if x is not None and x.requires_grad:
                return True
    if peek_interpreter_stack() is not None:
        return True
    return _errors.has_tangent(*operands)


def functionalizes() -> bool:
    """Whether torch.func.functionalize is the innermost transform, for which autograd functions have no rule."""
    transform = peek_interpreter_stack()
    return transform is not None and transform.key() == TransformType.Functionalize


def has_precision(dtype: torch.dtype, precision: str) -> bool:
    """Whether products of this type, or of the real parts of complex numbers, may have this precision."""
    if precision in FLOAT64_PRECISIONS:
        return dtype in (torch.float64, torch.complex128)
    return dtype in WITH_PRECISION


def choice_of(level: int | None, kernel: str | None) -> dict[str, Any]:
    """The arguments that all ops share, without those left at their defaults: each costs 0.2 us."""
    options: dict[str, Any] = {}
    if level is not None:
        _errors.refuse_level(level)
        options["level"] = level
    if kernel is not None:
        options["impl"] = kernel
    return options


def options_of(
    a: Tensor,
    level: int | None,
    kernel: str | None,
    precision: str | None,
    out: Tensor | None,
    out_dtype: torch.dtype | None,
) -> dict[str, Any]:
    """The arguments that all products share, without those left at their defaults."""
    options = choice_of(level, kernel)
    if precision is not None:
        options["precision"] = precision
    elif (
        a.is_cuda
        and a.dtype in WITH_PRECISION
        and torch_fp32_precision() == "tf32"
        and not (out is None and autocast.is_enabled("cuda"))  # then it will not be a float32 product
    ):
        options["precision"] = "tf32"
    if out_dtype is not None:
        options["out_dtype"] = out_dtype
    return options


def in_shape(result: Tensor, shape: Sequence[Any], kept_by: object = None) -> Tensor:
    """A product in another shape. As in torch this is no view, whose changes autograd would restrict.

    ``kept_by``: the activation, if it is the last step. The gradient of relu keeps this result, and notices only
    changes of the result and its views. Inside a transform, an outer level may ask for it.
    """
    if tracing_state() is not None:  # a graph keeps sizes only as operands of reshape
        return result.reshape(shape)
    if kept_by == "relu" and (result.requires_grad or peek_interpreter_stack() is not None):
        return result.reshape(shape)
    return _unsafe_view(result, shape)


def public(options: dict[str, Any]) -> dict[str, Any]:
    """The ops' keyword arguments under the names that the public functions take."""
    return {"kernel" if name == "impl" else name: value for name, value in options.items()}
