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
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from . import _errors, _flags, tuning
from ._calls import gemm_bare, matmul_bare
from ._flags import torch_fp32_precision
from ._routed import Count, Routed
from .table import check_product_choice

try:  # what torch._dynamo.eval_frame.skip_code calls, without importing torch._dynamo, which takes 1 s
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:
    set_code_exec_strategy = None

aten = torch.ops.aten
_gemm_out = torch.ops.fastgemm.gemm.out._op

# Types whose products torch computes in the same type, as fastgemm does. int8 is none of them: torch wraps its
# products to int8.
_SAME_TYPE = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32})
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_DENSE = torch.strided

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Handler = Callable[["_Mode", Any, Arguments, Keywords], Any]
F = TypeVar("F", bound=Callable[..., Any])


class _Mode(TorchDispatchMode):
    """One entry of a patch in one thread."""

    supports_higher_order_operators = True

    def __init__(self, options: Keywords, precision: str | None, routed: Routed) -> None:
        super().__init__()
        self.options = options  # of the op; without the precision, which only float32 takes
        self.precision = precision
        self.routed = routed

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

    def options_for(self, a: Tensor, scales: Keywords) -> Keywords:
        """The op's keyword arguments, without those left at their defaults: each costs 0.2 us."""
        options = {**self.options, **scales}
        if a.dtype is torch.float32:
            precision = self.precision or (torch_fp32_precision() if a.is_cuda else "ieee")
            if precision != "ieee":
                options["precision"] = precision
        return options


def _name(func: Any) -> str:
    return func.overloadpacket.__name__ if isinstance(func, OpOverload) else str(func)


def _product(
    mode: _Mode,
    func: Any,
    args: Arguments,
    kwargs: Keywords,
    operands: tuple[Tensor, Tensor],
    c: Tensor | None,
    out: Tensor | None,
    scales: tuple[tuple[str, Any], ...],
) -> Any:
    """Runs a product, or passes it on. ``scales``: alpha, beta and out_dtype where they are not the defaults.

    What was found out about a signature is kept: to look it up takes 0.9 us, half of what it would take to find
    out again.
    """
    a, b = operands
    if type(a) not in _PLAIN or type(b) not in _PLAIN:
        odd = a if type(a) not in _PLAIN else b
        return mode.pass_on(func, args, kwargs, f"a tensor of type {type(odd).__name__}")
    if a.layout is not _DENSE or b.layout is not _DENSE:
        odd = a if a.layout is not _DENSE else b
        return mode.pass_on(func, args, kwargs, f"layout {str(odd.layout).removeprefix('torch.')}")
    try:
        flags = _flags.of_products(a.dtype, a.is_cuda)
        sizes = a.shape, b.shape, a.stride(), b.stride()
        signature = id(func), a.dtype, b.dtype, a.device, b.device, sizes, flags, scales
        route = mode.routed._routes.get(signature)
        if route is None:
            route = _route(mode, func, a, b, c is not None, dict(scales))
            mode.routed._keep(signature, route)
        if type(route) is not str:
            result = _run(a, b, c, out, route.options)
            mode.routed._add(route.count)
            return result
    except (ValueError, RuntimeError) as error:
        route = _refusal(error, a, b, c, out)
        if route is None:
            _errors.diagnose(error, a=a, b=b, c=c, out=out)
            raise
    # Here, since what torch raises is not fastgemm's failure.
    return mode.pass_on(func, args, kwargs, route)


def _run(a: Tensor, b: Tensor, c: Tensor | None, out: Tensor | None, options: Keywords) -> Tensor:
    if out is not None:
        _gemm_out(a, b, c, **options, out=out)
        return out
    return gemm_bare(a, b, c, **options) if options or c is not None else matmul_bare(a, b)


class _Route(NamedTuple):
    """The options with which a product is computed, and where it counts."""

    options: Keywords
    count: Count


def _route(mode: _Mode, func: Any, a: Tensor, b: Tensor, adds: bool, scales: Keywords) -> _Route | str:
    """How a product of this signature is computed, or why fastgemm does not take it."""
    rank = 3 if "bmm" in _name(func) else 2
    for x in (a, b):
        if x.device.type not in ("cpu", "cuda"):
            return f"a tensor on {x.device.type}"
        if x.dtype not in _SAME_TYPE:
            return f"dtype {str(x.dtype).removeprefix('torch.')}"
        if x.dim() != rank:
            return f"a tensor of {x.dim()} dimensions"  # torch says what is wrong with it
    if rank == 3 and a.shape[0] != b.shape[0]:
        return "batches of different sizes"  # torch does, too
    options = mode.options_for(a, scales)
    return _Route(options, mode.routed._count_of(_name(func), _kernel(a, b, options, adds)))


def _kernel(a: Tensor, b: Tensor, options: Keywords, adds: bool) -> str:
    if "impl" in options:
        return options["impl"]
    if 0 in a.shape or 0 in b.shape:
        return "none: nothing to multiply"
    accumulates = (adds and options.get("beta", 1) != 0) or "alpha" in options
    types = options.get("out_dtype"), options.get("precision", "ieee")
    key = tuning.gemm_key(a, b, *types, accumulates=accumulates)
    return tuning.chosen_kernel(key, options.get("level"))


def _refusal(error: Exception, *tensors: Tensor | None) -> str | None:
    """Why fastgemm does not take a call, in words; None: it took it and failed."""
    for x in tensors:
        if x is not None and x.layout is not torch.strided:
            return f"layout {str(x.layout).removeprefix('torch.')}"
    refused = isinstance(error, (ValueError, NotImplementedError)) or "cannot run" in str(error)
    return str(error).splitlines()[0] if refused else None


def _plain(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """mm and bmm, also with out=."""
    return _product(mode, func, args, kwargs, args, None, kwargs.get("out"), ())


def _with_out_dtype(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """mm.dtype and bmm.dtype, whose third argument is the dtype of the result."""
    return _product(mode, func, args, kwargs, args[:2], None, None, (("out_dtype", args[2]),))


def _with_c(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """addmm and baddbmm, also with out=: ``beta * c + alpha * a @ b``."""
    return _scaled(mode, func, args, kwargs, kwargs.get("out"))


def _onto_c(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """addmm_ and baddbmm_."""
    return _scaled(mode, func, args, kwargs, args[0])


def _scaled(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords, out: Tensor | None) -> Any:
    c, a, b = args
    if type(c) not in _PLAIN:
        return mode.pass_on(func, args, kwargs, f"a tensor of type {type(c).__name__}")
    if not kwargs:
        return _product(mode, func, args, kwargs, (a, b), c, out, ())
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    if alpha == 0:  # then torch does not read the operands, so that a NaN in them does not count
        return mode.pass_on(func, args, kwargs, "alpha = 0")
    if a.dtype is torch.int32 and not (_fits_int32(alpha) and _fits_int32(beta)):
        return mode.pass_on(func, args, kwargs, "scales that int32 does not hold")
    scales = tuple((name, value) for name, value in (("alpha", alpha), ("beta", beta)) if value != 1)
    return _product(mode, func, args, kwargs, (a, b), c, out, scales)


def _fits_int32(scale: float) -> bool:
    return abs(scale) < 2**31 and scale == int(scale)


def _composite(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """An op that torch defines by others: under torch.inference_mode it comes here before it is taken apart."""
    if not torch.is_inference_mode_enabled():
        return func(*args, **kwargs)
    with mode:
        return func.decompose(*args, **kwargs)


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
    aten.mm.default: _plain,
    aten.mm.out: _plain,
    aten.mm.dtype: _with_out_dtype,
    aten.bmm.default: _plain,
    aten.bmm.out: _plain,
    aten.bmm.dtype: _with_out_dtype,
    aten.addmm.default: _with_c,
    aten.addmm.out: _with_c,
    aten.addmm_.default: _onto_c,
    aten.baddbmm.default: _with_c,
    aten.baddbmm.out: _with_c,
    aten.baddbmm_.default: _onto_c,
}

# By id, since an OpOverload computes its hash in Python (0.2 us); None: nothing to do with products.
_HANDLERS: dict[int, Handler | None] = {id(func): handler for func, handler in _ROUTES.items()}
_KEPT_ALIVE: list[Any] = []  # so that an id stays that of its op


def _first_sight(mode: _Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Finds the handler of an op that is seen for the first time."""
    handler: Handler | None = None
    if type(func) is not OpOverload:
        handler = _call
    elif func.namespace == "aten":
        if _name(func) in _NOT_ROUTED:
            handler = _noted(_NOT_ROUTED[_name(func)])
        elif func._can_decompose():
            handler = _composite
    _KEPT_ALIVE.append(func)
    _HANDLERS[id(func)] = handler
    return (handler or _call)(mode, func, args, kwargs)


class _Entered(threading.local):
    """The modes that a patch has pushed in this thread, innermost last."""

    def __init__(self) -> None:
        self.modes: list[_Mode] = []


# What they return runs after the decorated call has ended.
_NOT_PLAIN = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


class patch(contextlib.ContextDecorator):  # named like the function that it is used as, as in torch.no_grad
    """Computes torch's matrix products by fastgemm, in a ``with`` block or in a function that it decorates.

    ``torch.matmul``, ``@``, ``mm``, ``bmm``, ``addmm``, ``baddbmm``, ``linear`` and what is made of them are
    routed: their values agree to within rounding, dtype, shape, strides and device are torch's, gradients work,
    and a backward pass inside the block is routed too. Calls that fastgemm does not take (vectors, complex,
    sparse, quantized, int8, fake and meta tensors, subclasses, fused attention) go to torch, and so do products at
    which nothing was measured to be faster.

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
        check_product_choice(level, kernel, precision)
        options = {"level": level, "impl": kernel}
        self._options = {name: value for name, value in options.items() if value is not None}
        self._precision = precision
        self._entered = _Entered()
        self.routed = Routed()

    def __enter__(self) -> Routed:
        mode = _Mode(self._options, self._precision, self.routed)
        mode.__enter__()
        self._entered.modes.append(mode)
        return self.routed

    def __exit__(self, *error: Any) -> None:
        self._entered.modes.pop().__exit__(*error)

    def __call__(self, function: F) -> F:
        if inspect.isclass(function) or any(is_kind(function) for is_kind in _NOT_PLAIN):
            raise TypeError("fastgemm.patch decorates plain functions: use it as a context manager inside")
        return super().__call__(function)


if set_code_exec_strategy is not None:
    _SKIP = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)  # a frame, and those it calls
    for _function in (_Mode.__torch_dispatch__, patch.__init__, patch.__enter__, patch.__exit__):
        set_code_exec_strategy(_function.__code__, _SKIP)
