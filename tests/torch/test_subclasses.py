"""Tests tensor subclasses, modes and layouts: they behave as with torch.matmul, or an error names them."""

from typing import ClassVar

import fastgemm
import pytest
import torch
from reference import every_device
from torch import Tensor
from torch.overrides import TorchFunctionMode

CALLS = {
    fastgemm.matmul: lambda a, b: fastgemm.matmul(a, b, level=2),
    fastgemm.gemm: lambda a, b: fastgemm.gemm(a, b, b, beta=2.0),
    fastgemm.transpose: lambda a, b: fastgemm.transpose(a),
    fastgemm.add: lambda a, b: fastgemm.add(a, b, alpha=3.0),
    fastgemm.add_: lambda a, b: fastgemm.add_(a, b),
}
each_call = pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)


class Plain(Tensor):
    """Inherits Tensor.__torch_function__, so results have this class."""


class Meters(Tensor):
    """Overrides __torch_function__, and records the calls."""

    seen: ClassVar[list[tuple[object, tuple[object, ...], dict[str, object]]]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append((func, args, kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


class Seen(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


@every_device
@each_call
def test_results_of_a_subclass_are_of_the_subclass(function):
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    expected = CALLS[function](a.clone(), b)
    result = CALLS[function](a.as_subclass(Plain), b.as_subclass(Plain))
    assert type(result) is Plain
    assert torch.equal(result.as_subclass(Tensor), expected)
    assert type(fastgemm.matmul(a, b.as_subclass(Plain))) is type(torch.matmul(a, b.as_subclass(Plain)))


GIVEN = {fastgemm.matmul: {"level": 2}, fastgemm.gemm: {"beta": 2.0}, fastgemm.add: {"alpha": 3.0}}


@every_device
@each_call
def test_an_override_and_a_mode_see_one_call_of_the_public_function(function):
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    Meters.seen.clear()
    CALLS[function](a.as_subclass(Meters), b)
    ((seen, args, kwargs),) = Meters.seen[:1]
    assert [f for f, *_ in Meters.seen] == [function] and seen is function
    assert type(args[0]) is Meters
    assert GIVEN.get(function, {}).items() <= kwargs.items()
    with Seen() as mode:
        CALLS[function](a, b)
    assert mode.calls == [function]


def test_out_may_be_of_a_subclass():
    a, out = torch.randn(4, 4), torch.empty(4, 4).as_subclass(Plain)
    assert fastgemm.matmul(a, a, out=out) is out
    assert torch.equal(out.as_subclass(Tensor), fastgemm.matmul(a, a))


def test_an_override_may_refuse():
    class Refuses(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    a = torch.randn(4, 4).as_subclass(Refuses)
    for product in (fastgemm.matmul, torch.matmul):
        with pytest.raises(TypeError, match="matmul"):
            product(a, a)


class Doubled(Tensor):
    """A tensor that holds two others and has no data itself. It only has __torch_dispatch__."""

    @staticmethod
    def __new__(cls, low, high):
        return Tensor._make_wrapper_subclass(
            cls, low.shape, strides=low.stride(), dtype=low.dtype, device=low.device
        )

    def __init__(self, low, high):
        self.pair = low, high

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def half(i):
            pick = torch.utils._pytree.tree_map_only(Doubled, lambda x: x.pair[i], (args, kwargs or {}))
            return func(*pick[0], **pick[1])

        return cls(half(0), half(1))


@every_device
def test_wrapper_subclasses_are_dispatched():
    """Their memory must not be read, because there is none."""
    low, high, b = torch.randn(4, 5), torch.randn(4, 5), torch.randn(5, 3)
    a = Doubled(low, high)
    result = fastgemm.transpose(fastgemm.matmul(a, b, level=3))
    result = fastgemm.add(result, result, alpha=2.0)
    for half, source in zip(result.pair, (low, high), strict=True):
        torch.testing.assert_close(half, 3 * (source @ b).t(), rtol=1e-4, atol=1e-4)
    assert isinstance(fastgemm.matmul(a, b.requires_grad_()), Doubled)  # through an autograd.Function


@every_device
def test_lazy_negation_and_conjugation_are_resolved():
    a, b = torch.randn(4, 5), torch.randn(5, 3)
    lazy = torch._neg_view(a)
    assert lazy.is_neg()
    for level in (None, 1, 5):
        assert torch.equal(fastgemm.matmul(lazy, b, level=level), fastgemm.matmul(-a, b, level=level))
    assert torch.equal(fastgemm.transpose(lazy), -a.t())
    assert torch.equal(fastgemm.add(lazy, a), torch.zeros(4, 5))
    z = torch.randn(4, 5, dtype=torch.complex64)
    assert z.conj().is_conj()
    assert torch.equal(fastgemm.transpose(z.conj()), z.conj().t().resolve_conj())


@every_device
def test_lazily_negated_and_conjugated_tensors_can_be_written():
    """The view has the values of the result. The view's memory holds their negatives or conjugates."""
    a, b = torch.randn(4, 5), torch.randn(5, 3)
    out = torch._neg_view(torch.empty(4, 3))
    assert fastgemm.matmul(a, b, out=out) is out
    assert out.is_neg() and torch.equal(out, fastgemm.matmul(a, b))
    assert torch.equal(fastgemm.matmul(torch._neg_view(a), b, out=torch.empty(4, 3)), fastgemm.matmul(-a, b))
    assert torch.equal(fastgemm.add(a, a, out=torch._neg_view(torch.empty(4, 5))), 2 * a)
    negative = torch._neg_view(a.clone())
    fastgemm.add_(negative, a, alpha=3.0)
    assert negative.is_neg() and torch.equal(negative, 2 * a)
    assert torch.equal(fastgemm.add_(a.clone(), torch._neg_view(a)), torch.zeros(4, 5))
    z = torch.randn(4, 5, dtype=torch.complex64)
    out = torch.empty(5, 4, dtype=torch.complex64).conj()
    assert torch.equal(fastgemm.transpose(z.conj(), out=out), z.conj().t())
    with pytest.raises(ValueError, match="out"):
        fastgemm.matmul(a, b, out=torch._neg_view(torch.empty(4, 4)))


@pytest.mark.parametrize(
    ("layout", "message"),
    [(torch.strided, "a is a nested tensor"), (torch.jagged, r"a has layout torch\.jagged")],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_by_name(layout, message):
    a = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)], layout=layout)
    for call in (lambda: fastgemm.matmul(a, torch.randn(4, 2)), lambda: fastgemm.transpose(a)):
        with pytest.raises(NotImplementedError, match=message):
            call()
