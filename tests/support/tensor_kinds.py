"""Makes every kind of tensor that torch has from plain ones.

A kind converts a plain float32 tensor of two or three dimensions, and calls a function with such tensors,
inside of a transform if the kind exists only there. The expected result, gradients and error are not stated
here: they are those of torch alone for the same call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_map_only

Make = Callable[[Tensor], Tensor]
Call = Callable[..., Any]


def _directly(make: Make, function: Call, plain: Sequence[Tensor]) -> Any:
    return function(*map(make, plain))


@dataclass(frozen=True)
class Kind:
    """``make`` turns a plain tensor into one of the kind. ``ranks``: the numbers of dimensions that the kind
    supports.

    If the kind has no values, the values of results are undefined, whatever kind the results are.
    """

    make: Make
    ranks: tuple[int, ...] = (2, 3)
    devices: tuple[str, ...] = ("cpu", "cuda")
    enter: Callable[[Make, Call, Sequence[Tensor]], Any] = _directly
    has_values: bool = True

    def call(self, function: Call, *plain: Tensor) -> Any:
        """Calls ``function`` with tensors of the kind made from ``plain``."""
        return self.enter(self.make, function, plain)


class Inherits(Tensor):
    """A subclass that overrides nothing; results have its class."""


class Overrides(Tensor):
    """A subclass whose ``__torch_function__`` computes with plain tensors and returns its own class."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return tree_map_only(Tensor, lambda x: x.as_subclass(cls), result)


class Wraps(Tensor):
    """A tensor without its own memory. torch reaches it only by ``__torch_dispatch__``."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(Wraps, lambda x: x.inner, (args, kwargs or {}))
        return tree_map_only(Tensor, cls, func(*args, **kwargs))


class Refuses(Wraps):
    """A subclass that supports none of torch's ops."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_()


def rows_of(x: Tensor) -> list[Tensor]:
    """Parts of unequal length; two-dimensional if x has three dimensions."""
    return [part[: max(1, part.shape[0] - i % 2)].detach().clone() for i, part in enumerate(x.unbind())]


def jagged(x: Tensor, **options: Any) -> Tensor:
    return torch.nested.nested_tensor(rows_of(x), layout=torch.jagged, **options)


def holey(x: Tensor) -> Tensor:
    """A jagged tensor, with unused rows between its parts."""
    starts = torch.zeros(len(x), dtype=torch.int64)
    return torch.nested.narrow(x, 1, starts, torch.full_like(starts, x.shape[1] - 1), layout=torch.jagged)


def uncoalesced(x: Tensor) -> Tensor:
    sparse = (x / 2).to_sparse()
    indices = torch.cat([sparse.indices()] * 2, dim=1)
    return torch.sparse_coo_tensor(indices, torch.cat([sparse.values()] * 2), x.shape)


def complex_of(x: Tensor, dtype: torch.dtype = torch.complex64) -> Tensor:
    return torch.complex(x.double(), x.double().flip(-1)).to(dtype)


def inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


def fake(make: Make, function: Call, plain: Sequence[Tensor]) -> Any:
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return function(*map(mode.from_tensor, plain))


def batched(make: Make, function: Call, plain: Sequence[Tensor]) -> Any:
    return torch.vmap(function)(*(torch.stack([x, -2 * x]) for x in plain))


def differentiated(make: Make, function: Call, plain: Sequence[Tensor]) -> Any:
    return torch.func.vjp(function, *plain)[0]


def with_tangent(make: Make, function: Call, plain: Sequence[Tensor]) -> Any:
    return torch.func.jvp(function, tuple(plain), tuple(x.flip(-1) for x in plain))


def dual(make: Make, function: Call, plain: Sequence[Tensor]) -> Any:
    with forward_ad.dual_level():
        result = function(*(forward_ad.make_dual(x, x.flip(-1)) for x in plain))
        return tree_map_only(Tensor, lambda x: tuple(forward_ad.unpack_dual(x)), result)


def functionalized(make: Make, function: Call, plain: Sequence[Tensor]) -> Any:
    return torch.func.functionalize(function)(*plain)


def windows(x: Tensor) -> Tensor:
    """Rows that share memory with the next ones."""
    strides = (*x.stride()[:-2], 1, 1)
    return x.clone().as_strided(x.shape, strides)


def itself(x: Tensor) -> Tensor:
    return x


STRIDED = {
    "plain": Kind(itself),
    "transposed": Kind(lambda x: x.mT.contiguous().mT),
    "sliced": Kind(lambda x: torch.stack([x, x], dim=-1)[..., 0]),
    "expanded": Kind(lambda x: x[:1].expand_as(x)),
    "overlapping": Kind(windows),
    "no rows": Kind(lambda x: x[..., :0, :]),
    "requires_grad": Kind(leaf),
    "graph": Kind(lambda x: leaf(x) * 1),
    "parameter": Kind(torch.nn.Parameter),
    "frozen parameter": Kind(lambda x: torch.nn.Parameter(x, requires_grad=False)),
    "uninitialized parameter": Kind(lambda x: torch.nn.UninitializedParameter()),
    "buffer": Kind(torch.nn.Buffer),
    "inference": Kind(inference),
    "zero tensor": Kind(lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype, device=x.device)),
    "negative view": Kind(torch._neg_view),
    "negative view with gradient": Kind(lambda x: torch._neg_view(leaf(x))),
    "imaginary part": Kind(lambda x: complex_of(x).conj().imag),
    "meta": Kind(lambda x: x.to("meta"), has_values=False),
}
COMPLEX = {
    "complex64": Kind(complex_of),
    "complex128": Kind(lambda x: complex_of(x, torch.complex128)),
    "complex32": Kind(lambda x: complex_of(x, torch.complex32)),
    "complex with gradient": Kind(lambda x: leaf(complex_of(x))),
    "conjugate view": Kind(lambda x: complex_of(x).conj()),
    "conjugate transpose": Kind(lambda x: complex_of(x.mT).mH),
    "conjugate view with gradient": Kind(lambda x: leaf(complex_of(x)).conj()),
    "negative complex view": Kind(lambda x: torch._neg_view(complex_of(x))),
    "conjugate negative view": Kind(lambda x: torch._neg_view(complex_of(x).conj())),
}
NESTED = {
    "nested": Kind(lambda x: torch.nested.nested_tensor(rows_of(x)), ranks=(3,)),
    "nested, one size": Kind(lambda x: torch.nested.nested_tensor(list(x.unbind())), ranks=(3,)),
    "nested with gradient": Kind(
        lambda x: torch.nested.nested_tensor(rows_of(x), requires_grad=True), ranks=(3,)
    ),
    "nested of leaves": Kind(
        lambda x: torch.nested.as_nested_tensor([leaf(part) for part in rows_of(x)]), ranks=(3,)
    ),
    "nested and transposed": Kind(
        lambda x: torch.nested.nested_tensor(rows_of(x.mT)).transpose(1, 2), ranks=(3,)
    ),
    "jagged": Kind(jagged, ranks=(3,)),
    "jagged with gradient": Kind(lambda x: jagged(x, requires_grad=True), ranks=(3,)),
    "jagged of leaves": Kind(
        lambda x: torch.nested.as_nested_tensor([leaf(part) for part in rows_of(x)], layout=torch.jagged),
        ranks=(3,),
    ),
    "jagged and transposed": Kind(lambda x: jagged(x.mT).transpose(1, 2), ranks=(3,)),
    "jagged with holes": Kind(holey, ranks=(3,)),
}
SPARSE = {
    "sparse coo": Kind(Tensor.to_sparse),
    "sparse coo, uncoalesced": Kind(uncoalesced),
    "sparse coo with gradient": Kind(lambda x: leaf(x.to_sparse())),
    "sparse coo of dense rows": Kind(lambda x: x.to_sparse(1)),
    "sparse csr": Kind(Tensor.to_sparse_csr),
    "sparse csc": Kind(Tensor.to_sparse_csc),
    "sparse bsr": Kind(lambda x: x.to_sparse_bsr((1, 1))),
    "sparse bsc": Kind(lambda x: x.to_sparse_bsc((1, 1))),
    "sparse csr with gradient": Kind(lambda x: leaf(x.to_sparse_csr())),
    "masked": Kind(lambda x: torch.masked.masked_tensor(x, x > 0)),
}
OPAQUE = {
    "quantized": Kind(lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)),
    "quantized, unsigned": Kind(lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)),
    "quantized by channel": Kind(
        lambda x: torch.quantize_per_channel(
            x, torch.full((len(x),), 0.1), torch.zeros(len(x)), 0, torch.qint8
        )
    ),
}
if torch.backends.mkldnn.is_available():
    OPAQUE["mkldnn"] = Kind(Tensor.to_mkldnn, devices=("cpu",))
    OPAQUE["mkldnn with gradient"] = Kind(lambda x: leaf(x).to_mkldnn(), devices=("cpu",))
SUBCLASSES = {
    "subclass": Kind(lambda x: x.clone().as_subclass(Inherits)),
    "subclass with gradient": Kind(lambda x: leaf(x.clone().as_subclass(Inherits))),
    "subclass with __torch_function__": Kind(lambda x: x.clone().as_subclass(Overrides)),
    "subclass with __torch_dispatch__": Kind(Wraps),
    "subclass with __torch_dispatch__ and gradient": Kind(lambda x: Wraps(x).requires_grad_()),
    "subclass that refuses": Kind(Refuses),
    "parameter of a subclass": Kind(lambda x: torch.nn.Parameter(Wraps(x))),
}
if hasattr(Tensor, "refine_names"):
    SUBCLASSES["named"] = Kind(lambda x: x.clone().refine_names(*"abc"[: x.dim()]))
TRANSFORMED = {
    "fake": Kind(itself, enter=fake, has_values=False),
    "in vmap": Kind(itself, enter=batched),
    "in vjp": Kind(itself, enter=differentiated),
    "in jvp": Kind(itself, enter=with_tangent),
    "dual": Kind(itself, enter=dual),
    "in functionalize": Kind(itself, enter=functionalized),
}
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
FLOATS = ["float64", "float16", "bfloat16"]
FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


def _cast(dtype: torch.dtype) -> Kind:
    return Kind(
        lambda x: (4 * x.abs()).to(dtype) if dtype.is_floating_point else (4 * x.abs()).int().to(dtype)
    )


OF_DTYPE = {name: _cast(getattr(torch, name)) for name in INTEGERS + FLOATS + FLOAT8 if hasattr(torch, name)}
KINDS: dict[str, Kind] = {
    **STRIDED, **COMPLEX, **NESTED, **SPARSE, **OPAQUE, **SUBCLASSES, **TRANSFORMED, **OF_DTYPE
}  # fmt: skip


def dense_of(result: Tensor) -> Any:
    """The values of a result as plain strided tensors, several for a nested one; None if it has no values."""
    if isinstance(result, Wraps):
        return dense_of(result.inner)
    if type(result).__name__ == "MaskedTensor":
        return dense_of(result.to_tensor(0))
    if type(result) in (Inherits, Overrides):
        return result.as_subclass(Tensor)
    if result.is_meta or isinstance(result, torch._subclasses.FakeTensor):
        return None
    if result.is_nested:
        return [dense_of(part) for part in result.detach().unbind()]
    if result.is_quantized:
        return result.dequantize()
    if hasattr(result, "rename"):
        result = result.rename(None)
    if result.layout is not torch.strided:
        result = result.to_dense()
    return result.detach().resolve_conj().resolve_neg()


def form_of(result: Tensor) -> tuple[Any, ...]:
    """Everything about a result except its values."""
    sizes = None if result.is_nested else tuple(result.shape)
    strides = result.stride() if result.layout is torch.strided and not result.is_nested else None
    flags = result.requires_grad, result.is_nested, result.is_quantized, result.is_inference()
    return type(result), result.dtype, result.layout, result.device, sizes, strides, flags
