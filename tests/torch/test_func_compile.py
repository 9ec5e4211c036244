"""Tests torch.func inside torch.compile(fullgraph=True). Values must be those of torch.matmul in eager mode. Only
fastgemm's ops may run. A vmap must be one product, without a loop.
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastgemm
import pytest
import torch
from reference import every_device
from torch import Tensor, func
from torch._dynamo.backends.common import aot_autograd
from transforms import FUNCTIONS, TRANSFORMS, Function, squares

pytestmark = every_device

DEVICE = "cpu"


@pytest.fixture(autouse=True)
def tensors_are_made_on_the_device(device, monkeypatch):
    """Sets the device by argument. With torch's default device, dynamo of torch 2.11 cannot trace jacfwd."""
    monkeypatch.setitem(globals(), "DEVICE", device)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, device=DEVICE)


def double(*shape: int) -> Tensor:
    return randn(*shape, dtype=torch.float64)


@contextmanager
def no_warnings() -> Iterator[None]:
    """Turns warnings into errors, except for warnings about deprecated calls in dynamo itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def compiled(function: Function, backend: Any = "aot_eager", **options: Any) -> Function:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend, **options)


def graph_of(function: Function, *arguments: Any) -> tuple[Any, list[torch.fx.Node]]:
    """The result of compiled code, and the calls in its forward and backward graphs."""
    calls: list[torch.fx.Node] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Function:
        calls.extend(node for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    return compiled(function, aot_autograd(fw_compiler=keep, bw_compiler=keep))(*arguments), calls


TORCH_PRODUCTS = {f"aten.{name}" for name in ("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "matmul")}


def ops(calls: list[torch.fx.Node]) -> Counter[str]:
    """How often each of fastgemm's ops is called. torch's products are also counted, because there should be
    none."""
    names = [str(node.target).rpartition(".")[0] for node in calls]
    found = [name for name in names if name.startswith("fastgemm.") or name in TORCH_PRODUCTS]
    return Counter(name.removeprefix("fastgemm.").strip("_") for name in found)


# test_func.py tests every transform of every function. Here matmul takes all of them, and the other functions take
# those that compose differently.
CASES = [("matmul", transform) for transform in TRANSFORMS]
SOME = ("hessian", "vmap of grad", "jvp of vmap")
CASES += [(function, transform) for function in FUNCTIONS.keys() - {"matmul"} for transform in SOME]


@pytest.mark.parametrize(("function", "transform"), sorted(CASES))
def test_values_and_ops(function, transform, capfd):
    ours, theirs, shapes = FUNCTIONS[function]
    arguments = [double(*shape) for shape in shapes]
    with no_warnings():
        got, calls = graph_of(TRANSFORMS[transform](ours), *arguments)
    torch.testing.assert_close(got, TRANSFORMS[transform](theirs)(*arguments))
    assert TORCH_PRODUCTS.isdisjoint(ops(calls))
    assert ops(calls), calls
    assert "batching rule" not in capfd.readouterr().err  # torch's warning about a loop comes from C++


def test_inductor():
    """One graph contains every function and several transforms."""

    def ours(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y = fastgemm.gemm(a, b, c, alpha=2, trans_b=True, level=5)
        return fastgemm.add(fastgemm.transpose(y), fastgemm.matmul(b, a.mT), alpha=0.5)

    def theirs(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (2 * a @ b.mT + c).mT + 0.5 * b @ a.mT

    def several(f: Function) -> Function:
        chosen = ("grad", "jvp", "jacrev", "hessian", "vmap of grad of vmap")
        return lambda *x: [TRANSFORMS[name](f)(*x) for name in chosen]

    arguments = double(3, 4), double(2, 4), double(2)
    torch.testing.assert_close(compiled(several(ours), "inductor")(*arguments), several(theirs)(*arguments))


# vmap's in_dims and out_dims, and the dimensions of a and b with the batch of 5.
@pytest.mark.parametrize(
    ("in_dims", "out_dims", "chunk_size"),
    [
        *(((0, 0), 0, None), ((0, None), 0, 2), ((None, 0), 1, None), ((1, 2), 2, 2)),
        *(((2, None), -1, None), ((-1, 0), 0, 2), ((None, 1), 2, None)),
    ],
)
def test_dimensions_of_a_vmap(in_dims, out_dims, chunk_size):
    def batched(shape: tuple[int, ...], dim: int | None) -> Tensor:
        return double(*shape) if dim is None else double(5, *shape).movedim(0, dim)

    a, b = batched((3, 4), in_dims[0]), batched((4, 2), in_dims[1])
    options = {"in_dims": in_dims, "out_dims": out_dims, "chunk_size": chunk_size}
    got, calls = graph_of(lambda a, b: func.vmap(fastgemm.matmul, **options)(a, b), a, b)
    torch.testing.assert_close(got, func.vmap(torch.matmul, **options)(a, b))
    assert ops(calls) == {"matmul": 1 if chunk_size is None else 3}


def test_per_sample_gradients():
    """There must be as many products as for the whole batch at once, at the requested level."""
    weights = double(4, 5), double(5, 2)
    samples, targets = double(64, 4), double(64, 2)

    def per_sample(product: Function) -> Function:
        def loss(weights: tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return (product(product(x, weights[0]).tanh(), weights[1]) - y).square().sum()

        return lambda w, x, y: func.vmap(func.grad(loss), (None, 0, 0))(w, x, y)

    ours = per_sample(lambda a, b: fastgemm.matmul(a, b, level=3))
    expected = per_sample(torch.matmul)(weights, samples, targets)
    got, calls = graph_of(ours, weights, samples, targets)
    torch.testing.assert_close(got, expected)
    assert ops(calls) == {"gemm": 5}
    assert all(node.kwargs["level"] == 3 for node in calls if "fastgemm" in str(node.target))


def test_sizes_compile_once():
    def step(weight: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        gradients = func.vmap(func.grad(lambda w, x: fastgemm.matmul(x, w).sin().sum()), (None, 0))
        return gradients(weight, samples), func.vmap(fastgemm.matmul, (0, None))(samples, weight)

    run = compiled(step, "inductor", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch, m, k, n in [(5, 7, 6, 3), (9, 4, 12, 8), (30, 2, 10, 5)]:
            weight, samples = double(k, n), double(batch, m, k)
            gradients, products = run(weight, samples)
            torch.testing.assert_close(products, samples @ weight)
            torch.testing.assert_close(gradients, samples.mT @ (samples @ weight).cos())


@pytest.mark.parametrize("transform", ["vmap", "vmap of grad", "jvp", "grad of vmap"])
def test_a_backward_pass_through_what_was_transformed(transform):
    """Tests autograd outside of the transforms. Their gradients are a separate graph."""
    function = TRANSFORMS[transform]

    def gradients(run: Function, *arguments: Tensor) -> Any:
        leaves = [x.clone().requires_grad_() for x in arguments]
        results = torch.utils._pytree.tree_leaves(run(*leaves))
        return torch.autograd.grad(sum(squares(torch.clone)(y) for y in results), leaves)

    arguments = double(3, 4), double(4, 2)
    calls: list[torch.fx.Node] = []

    def run(*leaves: Tensor) -> Any:
        result, found = graph_of(function(fastgemm.matmul), *leaves)
        calls.extend(found)
        return result

    torch.testing.assert_close(gradients(run, *arguments), gradients(function(torch.matmul), *arguments))
    assert TORCH_PRODUCTS.isdisjoint(ops(calls))


@pytest.mark.skipif(torch.__version__.startswith("2.11."), reason="torch 2.11 does not say that it compiles")
@pytest.mark.parametrize(
    ("op", "plain", "transform"),
    [
        (fastgemm.matmul, torch.matmul, func.grad),
        (fastgemm.add, torch.add, func.vmap),
        (
            lambda a, b, out: fastgemm.transpose(a, out=out),
            lambda a, b: a.mT,
            lambda f: lambda x: func.jvp(f, (x,), (x,))[1],
        ),
    ],
)
def test_out_is_seen(op, plain, transform):
    """Compiled code copies a result into out. Eager transforms do not see writes to out, and refuse it."""

    def total(x: Tensor) -> Tensor:
        out = x.new_empty(4, 4)
        op(x, x, out=out)
        return out.sum()

    x = randn(4, 4, 4) if transform is func.vmap else torch.eye(4, device=DEVICE) + 0.5
    expected = transform(lambda x: plain(x, x).sum())(x)
    torch.testing.assert_close(compiled(lambda x: transform(total)(x))(x), expected)
    with pytest.raises(RuntimeError, match="out= does not"):
        transform(total)(x)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_vmap_is_no_loop(strict, capfd):
    class Layer(torch.nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return func.vmap(fastgemm.matmul, (0, None))(x, w)

    x, w = double(5, 3, 4), double(4, 2)
    program = torch.export.export(Layer(), (x, w), strict=strict)
    torch.testing.assert_close(program.module()(x, w), x @ w)
    assert "batching rule" not in capfd.readouterr().err


def test_an_ensemble_of_modules():
    """functional_call over stacked parameters must be one batched product for each layer of all members."""
    members = [fastgemm.nn.Linear(4, 3, dtype=torch.float64, device=DEVICE) for _ in range(6)]
    parameters, buffers = func.stack_module_state(members)

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return func.functional_call(members[0], (parameters, buffers), (x,))

    x = double(7, 4)
    got, calls = graph_of(lambda p, x: func.vmap(one, (0, 0, None))(p, buffers, x), parameters, x)
    torch.testing.assert_close(got, torch.stack([member(x) for member in members]))
    assert ops(calls) == {"gemm": 1}
