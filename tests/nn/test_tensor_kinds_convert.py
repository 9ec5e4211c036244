"""Tests all kinds of converted layers with all kinds of tensors. Results or types of errors must be torch's."""

import contextlib
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import tensor_kinds
import torch
from fastgemm import nn
from reference import every_device
from tensor_kinds import KINDS, Kind, dense_of, form_of
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils._pytree import tree_leaves

pytestmark = [every_device, pytest.mark.filterwarnings("ignore")]  # torch has warnings for most kinds

N = 6
FAMILIES = ("STRIDED", "COMPLEX", "NESTED", "SPARSE", "OPAQUE", "SUBCLASSES", "TRANSFORMED", "OF_DTYPE")
Module = torch.nn.Module


def linear(**options: Any) -> Module:
    return torch.nn.Linear(N, N, **options)


def sequential() -> Module:
    # Tanh instead of ReLU, because rounding of a ReLU's input may decide a whole gradient.
    return torch.nn.Sequential(linear(), torch.nn.Tanh(), torch.nn.Sequential(linear(bias=False)))


def activated() -> Module:
    return torch.nn.Sequential(linear(), torch.nn.GELU(), linear(bias=False), torch.nn.SiLU())


def encoder() -> Module:
    return torch.nn.TransformerEncoderLayer(N, 2, 8, dropout=0.0, batch_first=True)


class Attention(Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(N, 2, batch_first=True)
        self.projection = linear()

    def forward(self, x):
        return self.attention(x, x, self.projection(x))


def as_it_is(module: Module) -> Module:
    return module


def normalized(module: Module) -> Module:
    return parametrizations.weight_norm(module)


def softened(module: Module) -> Module:
    return parametrize.register_parametrization(module, "weight", torch.nn.Softplus())


def pruned(module: Module) -> Module:
    return prune.l1_unstructured(module, "weight", amount=0.5)


def traced(module: Module) -> Module:
    return torch.jit.trace(module, torch.randn(4, N))


class Called(Module):
    """A module that is called with parameters from elsewhere."""

    def __init__(self, module: Module):
        super().__init__()
        self.other = copy.deepcopy(module)
        self.module = [module]

    def forward(self, x):
        parameters = dict(self.other.named_parameters())
        return torch.func.functional_call(self.module[0], parameters, (x,))


# torch's layers, and changes of them after the conversion.
LAYERS: dict[str, tuple[Callable[[], Module], Callable[[Module], Module]]] = {
    "linear": (linear, as_it_is),
    "without bias": (lambda: linear(bias=False), as_it_is),
    "float64": (lambda: linear(dtype=torch.float64), as_it_is),
    "float16": (lambda: linear(dtype=torch.float16), as_it_is),
    "bfloat16": (lambda: linear(dtype=torch.bfloat16), as_it_is),
    "complex64": (lambda: linear(dtype=torch.complex64), as_it_is),
    "frozen": (lambda: linear().requires_grad_(False), as_it_is),
    "sequential": (sequential, as_it_is),
    "activated": (activated, as_it_is),
    "attention": (Attention, as_it_is),
    "encoder, training": (encoder, as_it_is),
    "encoder, inference": (lambda: encoder().eval(), as_it_is),
    "parametrized before": (lambda: softened(linear()), as_it_is),
    "parametrized": (linear, softened),
    "weight_norm": (linear, normalized),
    "pruned": (linear, pruned),
    "pickled": (linear, lambda module: pickle.loads(pickle.dumps(module))),
    "copied": (sequential, copy.deepcopy),
    "functional_call": (linear, Called),
    "scripted": (sequential, torch.jit.script),
    "traced": (sequential, traced),
    "fx": (sequential, torch.fx.symbolic_trace),
}


def pair(layer: str) -> tuple[Module, Module]:
    """A torch module, and its converted and fused copy."""
    make, finish = LAYERS[layer]
    torchs = make()
    own = nn.fuse(nn.convert(copy.deepcopy(torchs)))
    seed = int(torch.randint(2**31, ()))
    torch.manual_seed(seed)
    torchs = finish(torchs)
    torch.manual_seed(seed)
    return torchs, finish(own)


def outcome(kind: Kind, function: Callable[..., Any], parameters: list[Tensor], *plain: Tensor) -> Any:
    """The forms and values of a call's results and gradients, or the call's error."""
    asked: list[Tensor] = list(parameters)

    def call(*tensors: Tensor) -> Any:
        if peek_interpreter_stack() is None:
            asked.extend(x for x in tensors if x.requires_grad)
        return function(*tensors)

    try:
        results = [x for x in tree_leaves(kind.call(call, *plain)) if isinstance(x, Tensor)]
        found = [(form_of(x), dense_of(x)) for x in results]
        for result in (x for x in results if x.requires_grad):
            gradients = torch.autograd.grad(
                result, asked, result.detach(), retain_graph=True, allow_unused=True
            )
            found.extend((x.layout, dense_of(x)) for x in gradients if x is not None)
    except Exception as error:
        return error
    return found


def difference(expected: Any, result: Any, autocast: bool = False) -> str | None:
    """The differences between two outcomes that rounding cannot explain."""
    if isinstance(expected, Exception) or isinstance(result, Exception):
        alike = type(expected) is type(result)
        return None if alike else f"torch: {str(expected)[:300]!r}, fastgemm: {str(result)[-300:]!r}"
    forms = [form for form, _ in expected], [form for form, _ in result]
    if forms[0] != forms[1]:
        return f"torch: {forms[0]}, fastgemm: {forms[1]}"
    for right, value in zip(tree_leaves(expected), tree_leaves(result), strict=True):
        if not isinstance(right, Tensor) or not right.numel():
            continue
        # A 16-bit result is rounded, and its operands may have been rounded, too.
        share = 0.03 if autocast or right.dtype in (torch.float16, torch.bfloat16) else 1e-4
        right, value = (x if x.is_complex() else x.double() for x in (right, value))
        scale = right[right.isfinite()].abs().max().item() if right.isfinite().any() else 0.0
        # Gradients through a normalization cancel. Only rounding errors of terms near 1 remain.
        least = 1e-5
        try:
            torch.testing.assert_close(value, right, rtol=share, atol=share * scale + least, equal_nan=True)
        except AssertionError as error:
            return str(error)
    return None


def plain(rank: int) -> Tensor:
    return torch.randn(4, N) if rank == 2 else torch.randn(3, 4, N)


def differences(
    family: str, device: str, torchs: Module, own: Module, without: tuple[str, ...] = ()
) -> list[str]:
    """The kinds of a family for which two modules give different outcomes."""
    found = []
    autocast = torch.is_autocast_enabled(device)
    for name, kind in getattr(tensor_kinds, family).items():
        if device not in kind.devices or name in without:
            continue
        for rank in kind.ranks:
            x = plain(rank)
            results = [outcome(kind, module, list(module.parameters()), x) for module in (torchs, own)]
            why = difference(*results, autocast)
            found += [f"{name}, rank {rank}: {why}"] if why else []
    return found


def test_the_families_are_all_kinds(device):
    assert [name for family in FAMILIES for name in getattr(tensor_kinds, family)] == list(KINDS)


# Ways to call modules, the kinds that are left out for each, and the layers that are called in this way.
MODES: dict[str, tuple[Callable[[str], Any], tuple[str, ...], list[str]]] = {
    "grad": (lambda device: contextlib.nullcontext(), (), list(LAYERS)),
    # In jvp, torch gives results of an autograd.Function a gradient even under no_grad.
    "no_grad": (
        lambda device: torch.no_grad(),
        ("in jvp", "zero tensor"),
        ["linear", "activated", "encoder, inference", "traced"],
    ),
    # In vmap torch's result is float32 with a bias, and of autocast's type without one.
    "autocast": (
        lambda device: torch.autocast(device, torch.bfloat16, cache_enabled=False),
        ("in vmap",),
        ["linear", "activated", "without bias", "float64", "float16", "scripted"],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("mode", "layer"), [(mode, layer) for mode in MODES for layer in MODES[mode][2]])
def test_inputs(mode, layer, family, device):
    enter, without, _ = MODES[mode]
    if "encoder" in layer:  # normalization enlarges the rounding errors of zeros by a factor of 300
        without += ("zero tensor",)
    # TorchScript's optimizer has gradient formulas that fail for some kinds that autograd supports.
    with torch.jit.optimized_execution(False), enter(device):
        different = differences(family, device, *pair(layer), without)
    assert not different, "\n".join(different)


def called_with(*names: str) -> Callable[[Module], Callable[..., Tensor]]:
    """A layer as a function of some of its input and parameters, given as matrices."""

    def of(layer: Module) -> Callable[..., Tensor]:
        x, kept = torch.randn(4, N), dict(layer.named_parameters())

        def call(*tensors: Tensor) -> Tensor:
            given = dict(zip(names, tensors, strict=True))
            if "bias" in given:
                given["bias"] = given["bias"][0]
            return torch.func.functional_call(layer, {**kept, **given}, (given.pop("input", x),))

        return call

    return of


@pytest.mark.parametrize("gradients", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize(
    "names", [("weight",), ("bias",), ("input", "weight"), ("input", "weight", "bias")], ids="-".join
)
def test_parameters(names, gradients, device):
    torchs, own = pair("linear")
    # With a weight without data and an input with data, torch reads invalid memory.
    without = ("meta",) if names == ("weight",) else ()
    without += () if gradients else ("in jvp",)
    if device == "cuda":  # torch has no such product, but fastgemm has one
        without += ("int32", "int64")
    different = []
    for name, kind in KINDS.items():
        if device in kind.devices and 2 in kind.ranks and name not in without:
            tensors = [torch.randn(N, N) for _ in names]
            seed = int(torch.randint(2**31, ()))
            results = []
            for module in (torchs, own):
                torch.manual_seed(seed)
                with torch.set_grad_enabled(gradients):
                    results.append(
                        outcome(kind, called_with(*names)(module), list(module.parameters()), *tensors)
                    )
            why = difference(*results)
            different += [f"{name}: {why}"] if why else []
    assert not different, "\n".join(different)


COMPILED = [
    "transposed", "negative view", "complex64", "conjugate view", "nested", "jagged", "jagged with gradient",
    "sparse coo", "sparse csr", "masked", "quantized", "mkldnn", "subclass", "subclass with __torch_function__",
    "subclass with __torch_dispatch__", "parameter of a subclass", "in vmap", "int64", "float64", "float16",
]  # fmt: skip


@pytest.mark.parametrize("name", [name for name in COMPILED if name in KINDS])
def test_compiled(name, device):
    kind, rank = KINDS[name], max(KINDS[name].ranks)
    if device not in kind.devices:
        pytest.skip("not a kind of this device")
    x = plain(rank)
    results = []
    for module in pair("linear"):
        torch.compiler.reset()
        compiled = torch.compile(module, backend="aot_eager")
        results.append(outcome(kind, compiled, list(module.parameters()), x))
    assert difference(*results) is None
