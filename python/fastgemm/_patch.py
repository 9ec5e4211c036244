"""``fastgemm.patch``: torch's own products, computed by fastgemm.

A TorchDispatchMode sees each op below autograd, autocast and torch.func, when all that is left to do is to
compute: ``torch.matmul``, ``linear``, ``einsum`` and the mathematical form of attention arrive as ``mm``,
``bmm``, ``addmm`` and ``baddbmm``, and so do the products of a backward pass.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from . import _errors, tuning
from ._routed import Routed
from .ops import _gemm_bare, _matmul_bare, torch_fp32_precision
from .table import kernels

try:  # what torch._dynamo.eval_frame.skip_code calls, without importing torch._dynamo, which takes 1 s
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:
    set_code_exec_strategy = None

aten = torch.ops.aten
_gemm_out = torch.ops.fastgemm.gemm.out._op
PRECISIONS = ("ieee", "tf32", "bf16x3", "bf16x6", "fp16x3")

# Types whose products torch computes in the same type, as fastgemm does. int8 is none of them: torch wraps its
# products to int8.
_SAME_TYPE = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32})
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_INT32_MAX = 2**31 - 1

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Handler = Callable[["_Mode", Any, Arguments, Keywords], Any]
F = TypeVar("F", bound=Callable[..., Any])


class _Mode(TorchDispatchMode):
    """One entry of a patch in one thread."""

    supports_higher_order_operators = True

    def __init__(self, options: Keywords, precision: str | None, routed: Routed, nested: bool) -> None:
        super().__init__()
        self.options = options  # of the op; without the precision, which only float32 takes
        self.precision = precision
        self.routed = routed
        self.nested = nested  # inside another patch, which must not see how this one computes

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile works under the mode, and what it compiled calls mm(out=), which the mode sees."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch's way to keep dynamo out costs 0.9 us a call; below, the frame is marked instead."""
        return set_code_exec_strategy is None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        handler = _HANDLERS.get(id(func), _first_sight)
        if handler is None:  # by far the most; func(...) would add a Python frame
            return func._op(*args, **kwargs) if kwargs else func._op(*args)
        return handler(self, func, args, kwargs or {})

    def pass_on(self, func: Any, args: Arguments, kwargs: Keywords, reason: str) -> Any:
        self.routed._add_passed_on(_name(func), reason)
        return func(*args, **kwargs)


def _name(func: Any) -> str:
    return func.overloadpacket.__name__ if isinstance(func, OpOverload) else str(func)


def _unfit(a: Tensor, b: Tensor, rank: int) -> str | None:
    """Why fastgemm does not take a product, as far as that can be told before it is tried."""
    for x in (a, b):
        if type(x) not in _PLAIN:
            return f"a tensor of type {type(x).__name__}"
        if not (x.is_cpu or x.is_cuda):
            return f"a tensor on {x.device.type}"
        if x.dtype not in _SAME_TYPE:
            return f"dtype {str(x.dtype).removeprefix('torch.')}"
        if x.dim() != rank:
            return f"a tensor of {x.dim()} dimensions"  # torch says what is wrong with it
    return "batches of different sizes" if rank == 3 and a.shape[0] != b.shape[0] else None


def _product(
    mode: _Mode,
    func: Any,
    args: Arguments,
    kwargs: Keywords,
    a: Tensor,
    b: Tensor,
    rank: int,
    c: Tensor | None = None,
    out: Tensor | None = None,
    **scales: Any,
) -> Any:
    """Runs a product, or passes it on. ``scales``: alpha, beta and out_dtype where they are not the defaults."""
    dtype = a.dtype
    cuda = a.is_cuda
    if (
        type(a) not in _PLAIN
        or type(b) not in _PLAIN
        or dtype not in _SAME_TYPE
        or not (cuda or a.is_cpu)
        or a.dim() != rank
        or b.dim() != rank
        or (rank == 3 and a.shape[0] != b.shape[0])
    ):
        return mode.pass_on(func, args, kwargs, _unfit(a, b, rank) or "operands that do not go together")
    options = {**mode.options, **scales} if scales else mode.options
    if dtype is torch.float32:
        precision = mode.precision or (torch_fp32_precision() if cuda else "ieee")
        if precision != "ieee":
            options = {**options, "precision": precision}
    try:
        if mode.nested:
            with torch._C._DisableTorchDispatch():
                result = _run(a, b, c, out, options)
        else:
            result = _run(a, b, c, out, options)
    except (ValueError, RuntimeError) as error:
        reason = _refusal(error, a, b, c, out)
        if reason is None:
            _errors.diagnose(error, a=a, b=b, c=c, out=out)
            raise
        return mode.pass_on(func, args, kwargs, reason)
    _count(mode, func, a, b, options)
    return result


def _run(a: Tensor, b: Tensor, c: Tensor | None, out: Tensor | None, options: Keywords) -> Tensor:
    if out is not None:
        _gemm_out(a, b, c, **options, out=out)
        return out
    if options or c is not None:
        return _gemm_bare(a, b, c, **options)
    return _matmul_bare(a, b)


def _refusal(error: Exception, *tensors: Tensor | None) -> str | None:
    """Why fastgemm does not take a call, in words; None: it took it and failed."""
    for x in tensors:
        if x is not None and x.layout is not torch.strided:
            return f"layout {str(x.layout).removeprefix('torch.')}"
        if x is not None and any(name is not None for name in x.names):
            return "a tensor with named dimensions"
    refused = isinstance(error, (ValueError, NotImplementedError)) or "cannot run" in str(error)
    return str(error).splitlines()[0] if refused else None


def _count(mode: _Mode, func: Any, a: Tensor, b: Tensor, options: Keywords) -> None:
    in_order = a.is_contiguous() and b.is_contiguous()
    strides = None if in_order else (a.stride(), b.stride())
    signature = id(func), a.dtype, a.shape, b.shape, strides, options.get("precision"), a.is_cuda
    mode.routed._add_routed(signature, lambda: (_name(func), _kernel(a, b, options)))


def _kernel(a: Tensor, b: Tensor, options: Keywords) -> str:
    if "impl" in options:
        return options["impl"]
    if 0 in a.shape or 0 in b.shape:
        return "none: nothing to multiply"
    key = tuning.gemm_key(a, b, options.get("out_dtype"), options.get("precision", "ieee"))
    return tuning.chosen_kernel(key, options.get("level"))


def _mm(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    return _product(mode, func, args, kwargs, args[0], args[1], 2, **kwargs)


def _bmm(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    return _product(mode, func, args, kwargs, args[0], args[1], 3, **kwargs)


def _with_c(rank: int, in_place: bool = False) -> Handler:
    """addmm (rank 2) and baddbmm (rank 3): ``beta * c + alpha * a @ b``."""

    def handler(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        c, a, b = args[:3]
        alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
        if reason := _unfit_scales(a, c, alpha, beta):
            return mode.pass_on(func, args, kwargs, reason)
        scales = {name: value for name, value in (("alpha", alpha), ("beta", beta)) if value != 1}
        out = c if in_place else kwargs.get("out")
        return _product(mode, func, args, kwargs, a, b, rank, c, out, **scales)

    return handler


def _unfit_scales(a: Tensor, c: Tensor, alpha: Any, beta: Any) -> str | None:
    if type(c) not in _PLAIN:
        return f"a tensor of type {type(c).__name__}"
    if alpha == 0:
        return "alpha = 0"  # then torch does not read the operands, so that their NaN does not count
    whole = abs(alpha) <= _INT32_MAX and abs(beta) <= _INT32_MAX and alpha == int(alpha) and beta == int(beta)
    if a.dtype is torch.int32 and not whole:
        return "scales that int32 does not hold"
    return None


def _with_out_dtype(rank: int) -> Handler:
    """mm.dtype and bmm.dtype, whose third argument is the dtype of the result."""

    def handler(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        a, b, out_dtype = args
        return _product(mode, func, args, kwargs, a, b, rank, out_dtype=out_dtype)

    return handler


def _composite(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """An op that torch defines by others: under torch.inference_mode it comes here before it is taken apart."""
    with mode:
        result = func.decompose(*args, **kwargs)
    return func(*args, **kwargs) if result is NotImplemented else result


def _call(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    return func(*args, **kwargs)


def _noted(reason: str) -> Handler:
    def handler(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        return mode.pass_on(func, args, kwargs, reason)

    return handler


_FUSED = "one kernel for all of attention; sdpa_kernel(SDPBackend.MATH) makes torch use products"
_NOT_ROUTED = {
    "mv": "a matrix and a vector",
    "addmv": "a matrix and a vector",
    "addmv_": "a matrix and a vector",
    "dot": "two vectors",
    "vdot": "two vectors",
    "addbmm": "a sum over the batch",
    "_addmm_activation": "a product with its activation",
    "_int_mm": "int8 products to int32: call fastgemm.matmul",
    "_scaled_mm": "float8",
    "_grouped_mm": "products of different sizes",
    "convolution": "a convolution",
    "_native_multi_head_attention": _FUSED,
    "_transformer_encoder_layer_fwd": "one kernel for a whole layer",
    "_scaled_dot_product_flash_attention": _FUSED,
    "_scaled_dot_product_flash_attention_for_cpu": _FUSED,
    "_scaled_dot_product_efficient_attention": _FUSED,
    "_scaled_dot_product_cudnn_attention": _FUSED,
    "_scaled_dot_product_fused_attention_overrideable": _FUSED,
}
_ROUTES: dict[OpOverload, Handler] = {
    aten.mm.default: _mm,
    aten.mm.out: _mm,
    aten.mm.dtype: _with_out_dtype(2),
    aten.bmm.default: _bmm,
    aten.bmm.out: _bmm,
    aten.bmm.dtype: _with_out_dtype(3),
    aten.addmm.default: _with_c(2),
    aten.addmm.out: _with_c(2),
    aten.addmm_.default: _with_c(2, in_place=True),
    aten.baddbmm.default: _with_c(3),
    aten.baddbmm.out: _with_c(3),
    aten.baddbmm_.default: _with_c(3, in_place=True),
}

# By id, since an OpOverload computes its hash in Python (0.2 us); None: nothing to do with products.
_HANDLERS: dict[int, Handler | None] = {id(func): handler for func, handler in _ROUTES.items()}
_KEPT_ALIVE: list[Any] = []  # so that an id stays that of its op


def _first_sight(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Finds the handler of an op that is seen for the first time."""
    handler: Handler | None = None
    if type(func) is not OpOverload:
        handler = _call
    elif func.namespace == "aten" and _name(func) in _NOT_ROUTED:
        handler = _noted(_NOT_ROUTED[_name(func)])
    elif func._can_decompose():
        handler = _composite
    _KEPT_ALIVE.append(func)
    _HANDLERS[id(func)] = handler
    return (handler or _call)(mode, func, args, kwargs)


if set_code_exec_strategy is not None:
    _SKIP = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)  # this frame, and what it calls
    set_code_exec_strategy(_Mode.__torch_dispatch__.__code__, _SKIP)


class _Entered(threading.local):
    """The modes that a patch has pushed in this thread, innermost last."""

    def __init__(self) -> None:
        self.modes: list[_Mode] = []


class patch(contextlib.ContextDecorator):  # named like the function that it is used as, as in torch.no_grad
    """Computes torch's matrix products by fastgemm, in a ``with`` block or in a function that it decorates.

    ``torch.matmul``, ``@``, ``mm``, ``bmm``, ``addmm``, ``baddbmm``, ``linear`` and what is made of them are
    routed: their values agree to within rounding, dtype, shape, strides and device are torch's, gradients work,
    and a backward pass inside the block is routed too. Calls that fastgemm does not take (vectors, complex,
    sparse, quantized, int8, fake and meta tensors, subclasses, fused attention) go to torch.

    The patch holds in the thread that entered it, and in autograd's threads for a backward pass started there.
    It may be entered again, nested and shared by threads. In nested patches the innermost decides; what it
    passes on reaches the next one.

    Args:
        level: 1 to 7, a rung of the ladder; ``None``: the fastest kernel known for each problem. A product that
            the level cannot compute goes to torch.
        kernel: the name of one kernel, instead of a level.
        precision: of float32 products, see :func:`fastgemm.matmul`. ``None`` follows torch.

    Raises:
        TypeError: ``level`` is no int, or a generator or coroutine function is decorated.
        ValueError: an unknown level, kernel or precision.

    >>> import torch, fastgemm
    >>> x, w = torch.randn(64, 32), torch.randn(48, 32)
    >>> with fastgemm.patch() as routed:
    ...     y = torch.nn.functional.linear(x, w)
    >>> routed.ops
    Counter({'mm': 1})
    """

    def __init__(
        self, level: int | None = None, *, kernel: str | None = None, precision: str | None = None
    ) -> None:
        _check_choice(level, kernel, precision)
        options = {"level": level, "impl": kernel}
        self._options = {name: value for name, value in options.items() if value is not None}
        self._precision = precision
        self._entered = _Entered()
        self.routed = Routed()

    def __enter__(self) -> Routed:
        stack = (torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack()))
        nested = any(isinstance(mode, _Mode) for mode in stack)
        mode = _Mode(self._options, self._precision, self.routed, nested)
        mode.__enter__()
        self._entered.modes.append(mode)
        return self.routed

    def __exit__(self, *error: Any) -> None:
        self._entered.modes.pop().__exit__(*error)

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError("fastgemm.patch decorates plain functions: use it as a context manager inside")
        return super().__call__(function)


def _check_choice(level: int | None, kernel: str | None, precision: str | None) -> None:
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise TypeError(f"fastgemm: level must be an int or None, got {type(level).__name__}")
    if level is not None and not 1 <= level <= 7:
        raise ValueError(f"fastgemm: level must be 1 to 7 or None, got {level}")
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"fastgemm: precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if kernel is not None:
        rows = [row for row in kernels("gemm") if row.name == kernel]
        if not rows:
            raise ValueError(f"fastgemm: there is no gemm kernel {kernel!r}; fastgemm.kernels('gemm') has all")
        if level is not None and all(row.level != level for row in rows):
            raise ValueError(f"fastgemm: kernel {kernel!r} is of level {rows[0].level}, not {level}")
