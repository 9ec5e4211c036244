"""The TorchDispatchMode that a ``fastgemm.patch`` is where there is no library for this torch (_overrides.py).

It sees each op below autograd, autocast and torch.func, when all that is left to do is to compute: ``matmul``,
``linear``, ``einsum`` and the mathematical form of attention arrive as ``mm``, ``bmm``, ``addmm`` and ``baddbmm``,
and so do the products of a backward pass. What torch multiplies inside of C++ is not shown to a mode, and every op
that is shown costs some microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, _dispatch_has_kernel
from torch._C import _dispatch_has_kernel_for_dispatch_key as has_kernel
from torch._C import _dispatch_tls_set_dispatch_key_excluded as set_excluded
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from . import _errors, _flags
from ._calls import DENSE, PLAIN, SAME_TYPE, WITH_PRECISION, gemm_bare, has_precision, matmul_bare
from ._flags import has_names, torch_fp32_precision
from ._introspect import take_last_gemm_kernel
from ._routed import Routed
from ._scales import exact_product

try:  # what torch._dynamo.eval_frame.skip_code calls, without importing torch._dynamo, which takes 1 s
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:
    set_code_exec_strategy = None


def hide_from_dynamo(*functions: Any) -> None:
    """So that torch.compile, which looks at every Python frame between two graphs, compiles none of these."""
    if set_code_exec_strategy is not None:
        skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)  # a frame, and those it calls
        for function in functions:
            set_code_exec_strategy(function.__code__, skip)


aten = torch.ops.aten
_gemm_out = torch.ops.fastgemm.gemm.out._op

_COMPOSITE = DispatchKey.CompositeImplicitAutograd
_CONJUGATE, _NEGATIVE, _ZERO = DispatchKey.Conjugate, DispatchKey.Negative, DispatchKey.ZeroTensor

# The magnitudes that a scale but 0 may have in the type in which the products of a type are scaled: beyond them it
# would be rounded to 0 or to infinity.
_OF_FLOAT32 = 2.0**-149, torch.finfo(torch.float32).max
_OF_FLOAT64 = 2.0**-1074, torch.finfo(torch.float64).max
_SCALES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: _OF_FLOAT64,
    torch.complex128: _OF_FLOAT64,
    torch.float32: _OF_FLOAT32,
    torch.complex64: _OF_FLOAT32,
    torch.float16: _OF_FLOAT32,
    torch.bfloat16: _OF_FLOAT32,
    torch.int32: (1, 2**31 - 1),
    torch.int64: (1, 2**63),
}

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Handler = Callable[["Mode", Any, Arguments, Keywords], Any]


class Mode(TorchDispatchMode):
    """One entry of a patch in one thread."""

    supports_higher_order_operators = True

    def __init__(self, options: Keywords, precision: str | None, routed: Routed) -> None:
        super().__init__()
        self.options = options  # of the op; without the precision, which only float32 and complex64 take
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
        if handler is not None:
            if handler is not _call:
                return handler(self, func, args, kwargs or {})
            set_excluded(_CONJUGATE, False)  # _call, written out, which saves 0.2 us
            set_excluded(_NEGATIVE, False)
            set_excluded(_ZERO, False)
        return func._op(*args, **kwargs) if kwargs else func._op(*args)  # func(...) would add a Python frame

    def pass_on(self, func: Any, args: Arguments, kwargs: Keywords, reason: str) -> Any:
        self.routed._add_passed_on(_name(func), reason)
        return _call(self, func, args, kwargs)

    def options_for(self, a: Tensor, scales: Keywords) -> Keywords:
        """The op's keyword arguments, without those left at their defaults: each costs 0.2 us."""
        options = {**self.options, **scales}
        if self.precision is not None and has_precision(a.dtype, self.precision):
            options["precision"] = self.precision
        elif a.is_cuda and a.dtype in WITH_PRECISION and torch_fp32_precision() == "tf32":
            options["precision"] = "tf32"
        return options


def _resolve_lazily() -> None:
    """Lets torch resolve conjugate and negative views and zero tensors in what an op is made of.

    While a mode handles an op torch leaves out what it does before a mode sees one, this too. An op that takes
    adjoints (pinv, lstsq) would multiply by what such a view has in memory, and one that is made of another
    (``mul`` by a number) read a zero tensor, which has none. What is set here ends with the handling.
    """
    set_excluded(_CONJUGATE, False)
    set_excluded(_NEGATIVE, False)
    set_excluded(_ZERO, False)


def _name(func: Any) -> str:
    return func.overloadpacket.__name__ if isinstance(func, OpOverload) else str(func)


def _product(
    mode: Mode,
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
    if type(a) not in PLAIN or type(b) not in PLAIN:
        odd = a if type(a) not in PLAIN else b
        return mode.pass_on(func, args, kwargs, f"a tensor of type {type(odd).__name__}")
    if a.layout is not DENSE or b.layout is not DENSE:
        odd = a if a.layout is not DENSE else b
        return mode.pass_on(func, args, kwargs, f"layout {str(odd.layout).removeprefix('torch.')}")
    try:
        flags = _flags.of_products(a.dtype, a.is_cuda)
        sizes = a.shape, b.shape, a.stride(), b.stride()
        signature = id(func), a.dtype, b.dtype, a.device, b.device, sizes, flags, scales
        route = mode.routed._routes.get(signature)
        if route is None:
            route = _route(mode, func, a, b, dict(scales))
            mode.routed._keep(signature, route)
        if type(route) is not str:
            result = _run(a, b, c, out, route)
            mode.routed._add(_name(func), take_last_gemm_kernel())
            return result
    except (ValueError, RuntimeError) as error:
        route = _refusal(error, a, b, c, out)
        if route is None:
            _errors.diagnose(error, None, a=a, b=b, c=c, out=out)
            raise
    # Here, since what torch raises is not fastgemm's failure.
    return mode.pass_on(func, args, kwargs, route)


def _run(a: Tensor, b: Tensor, c: Tensor | None, out: Tensor | None, options: Keywords) -> Tensor:
    if a.is_complex():
        _resolve_lazily()  # torch's products take conjugated views, which a mode is shown as they are
    if out is not None:
        _gemm_out(a, b, c, **options, out=out)
        return out
    return gemm_bare(a, b, c, **options) if options or c is not None else matmul_bare(a, b)


def _route(mode: Mode, func: Any, a: Tensor, b: Tensor, scales: Keywords) -> Keywords | str:
    """The options with which a product of this signature is computed, or why fastgemm does not take it."""
    rank = 3 if "bmm" in _name(func) else 2
    for x in (a, b):
        if x.device.type not in ("cpu", "cuda"):
            return f"a tensor on {x.device.type}"
        if x.dtype not in SAME_TYPE:
            return f"dtype {str(x.dtype).removeprefix('torch.')}"
        if x.dim() != rank:
            return f"a tensor of {x.dim()} dimensions"  # torch says what is wrong with it
    if rank == 3 and a.shape[0] != b.shape[0]:
        return "batches of different sizes"  # torch does, too
    return mode.options_for(a, scales)


def _refusal(error: Exception, *tensors: Tensor | None) -> str | None:
    """Why fastgemm does not take a call, in words; None: it took it and failed."""
    for x in tensors:
        if x is not None and x.layout is not DENSE:
            return f"layout {str(x.layout).removeprefix('torch.')}"
        if x is not None and x.is_nested:
            return "a nested tensor"
    refused = isinstance(error, (ValueError, NotImplementedError)) or "cannot run" in str(error)
    return str(error).splitlines()[0] if refused else None


def _plain(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """mm and bmm, also with out=."""
    return _product(mode, func, args, kwargs, args, None, kwargs.get("out"), ())


def _with_out_dtype(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """mm.dtype and bmm.dtype, whose third argument is the dtype of the result."""
    return _product(mode, func, args, kwargs, args[:2], None, None, (("out_dtype", args[2]),))


def _with_c(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """addmm and baddbmm, also with out=: ``beta * c + alpha * a @ b``."""
    return _scaled(mode, func, args, kwargs, kwargs.get("out"))


def _onto_c(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """addmm_ and baddbmm_."""
    return _scaled(mode, func, args, kwargs, args[0])


def _scaled(mode: Mode, func: Any, args: Arguments, kwargs: Keywords, out: Tensor | None) -> Any:
    c, a, b = args
    if type(c) not in PLAIN:
        return mode.pass_on(func, args, kwargs, f"a tensor of type {type(c).__name__}")
    if not kwargs:
        return _product(mode, func, args, kwargs, (a, b), c, out, ())
    alpha, beta = (_real(a.dtype, kwargs.get(name, 1)) for name in ("alpha", "beta"))
    if not (_holds(a.dtype, alpha) and _holds(a.dtype, beta)):
        dtype = str(a.dtype).removeprefix("torch.")
        return mode.pass_on(func, args, kwargs, f"scales that {dtype} does not hold")
    a, b, c, alpha, beta = exact_product(a, b, c, alpha, beta, None)
    scales = tuple((name, value) for name, value in (("alpha", alpha), ("beta", beta)) if value != 1)
    return _product(mode, func, args, kwargs, (a, b), c, out, scales)


def _real(dtype: torch.dtype, scale: complex) -> complex:
    """A scale of complex operands without its imaginary part, if that is 0: the op takes real ones."""
    return scale.real if type(scale) is complex and dtype.is_complex and scale.imag == 0 else scale


def _holds(dtype: torch.dtype, scale: complex) -> bool:
    """Whether products of a type can be scaled by a number; torch refuses most others, each in its own words."""
    if dtype not in _SCALES or type(scale) is complex:
        return type(scale) is not complex
    smallest, largest = _SCALES[dtype]
    return scale == 0 or (
        smallest <= abs(scale) <= largest
        and (dtype.is_floating_point or dtype.is_complex or scale == int(scale))
    )


def _composite(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """An op that torch defines by others: inference tensors bring it here before it is taken apart.

    It is by the definition in C++, as without a mode; those that torch has in Python, for traces, differ in what
    they refuse. Tensors that are not dense may have a kernel of their own for the op.
    """
    if not (_is_dense(args) and _is_dense([*kwargs.values()])):
        return _call(mode, func, args, kwargs)
    _resolve_lazily()
    with mode:
        return func._op_dk(_COMPOSITE, *args, **kwargs)


def _is_dense(argument: Any) -> bool:
    """Whether the tensors of an argument, if it has any, are plain memory with strides (and without names)."""
    if isinstance(argument, Tensor):
        plain = type(argument) in PLAIN and argument.layout is DENSE
        return plain and not (argument.is_nested or argument.is_quantized or has_names(argument))
    return not isinstance(argument, (list, tuple)) or all(map(_is_dense, argument))


def _call(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """An op that may be made of others."""
    _resolve_lazily()
    return func(*args, **kwargs)


def _call_higher_order(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    return func(*args, **kwargs)


def _noted(reason: str) -> Handler:
    def handler(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
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

# By id, since an OpOverload computes its hash in Python (0.2 us); None: neither a product nor made of other ops.
_HANDLERS: dict[int, Handler | None] = {id(func): handler for func, handler in _ROUTES.items()}
_KEPT_ALIVE: list[Any] = []  # so that an id stays that of its op


_ELEMENTARY = frozenset({torch.Tag.pointwise, torch.Tag.core})


def _first_sight(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Finds the handler of an op that is seen for the first time."""
    handler = _handler_of(func)
    _KEPT_ALIVE.append(func)
    _HANDLERS[id(func)] = handler
    return (handler or _call)(mode, func, args, kwargs)


def _handler_of(func: Any) -> Handler | None:
    """Raises nothing: torch asks a subclass for sizes and the like by ops that its dispatcher does not know
    (``aten.sym_size``), in places where an exception ends the process."""
    if type(func) is not OpOverload:
        return _call_higher_order
    name = func.name()
    if not _dispatch_has_kernel(name):
        return None
    if func.namespace == "aten":
        if _name(func) in _NOT_ROUTED:
            return _noted(_NOT_ROUTED[_name(func)])
        if has_kernel(name, _COMPOSITE) and not has_kernel(name, DispatchKey.CPU):
            return _composite
    elementary = has_kernel(name, DispatchKey.CPU) and not _ELEMENTARY.isdisjoint(func.tags)
    takes_tensors = any("Tensor" in str(argument.type) for argument in func._schema.arguments)
    return None if func.is_view or elementary or not takes_tensors else _call


hide_from_dynamo(Mode.__torch_dispatch__, _flags.torch_computes)
