"""Tests the scope of fastgemm.patch: gradients, transforms, compiled code, threads, nesting, exceptions."""

import threading
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from memory_meter import FEWEST, keeps_nothing
from patches import entered, needs_library
from reference import assert_right, every_device, expected_gemm
from torch.nn import functional

pytestmark = [every_device, needs_library]


def test_a_backward_pass_is_where_it_is_called(device):
    a, b = torch.randn(9, 30, requires_grad=True), torch.randn(30, 7, requires_grad=True)
    with fastgemm.patch() as forward:
        out = a @ b
    out.sum().backward()
    assert torch.equal(a.grad, torch.ones(9, 7) @ b.detach().t())
    out = a @ b
    with fastgemm.patch() as backward:
        out.sum().backward()
    assert (forward.ops, backward.ops) == ({"mm": 1}, {"mm": 2})


def test_gradcheck(device):
    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    with fastgemm.patch() as routed:
        inputs = draw(4), draw(3, 5), draw(5, 4)
        assert torch.autograd.gradcheck(torch.addmm, inputs, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(torch.addmm, inputs)
    assert routed.ops["addmm"] > 10
    assert routed.ops["mm"] > 10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype, device):
    x, w = torch.randn(6, 8), torch.randn(5, 8)
    with fastgemm.patch() as routed, torch.autocast(device, dtype=dtype):
        result = functional.linear(x, w)
    assert_right(result, expected_gemm(x.to(dtype), w.to(dtype).t()))
    assert routed.ops == {"mm": 1}


def model_of(device):
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)
    return torch.nn.Sequential(*layers).to(device)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_code_is_routed(backend, device):
    if device == "cuda" and backend == "inductor":
        pytest.importorskip("triton")
    torch.compiler.reset()
    model, x = model_of(device), torch.randn(6, 16)
    expected = model(x)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x), expected)
    with fastgemm.patch() as routed:
        result = compiled(x)
        result.sum().backward()
    torch.testing.assert_close(result, expected)
    assert routed.ops["addmm"] == 2  # forward
    assert routed.ops["mm"] == 3  # backward, where x needs no gradient
    assert not routed.passed_on


def test_compiling_inside_is_compiling(device):
    """Counts only graphs, because torch.compile examines every Python frame between graphs."""
    torch.compiler.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    @torch._dynamo.disable
    def eager(x):
        return x @ x

    model = model_of(device)
    with fastgemm.patch() as routed:
        torch.compile(lambda x: torch.cos(eager(model(x))), backend=backend)(torch.randn(8, 16))
    assert len(graphs) == 2
    assert routed.ops == {"addmm": 2, "mm": 1}


@pytest.mark.filterwarnings("error:.*Dynamo")  # it must not trace a patch's code
def test_a_patch_inside_compiled_code(device):
    """torch.compile runs a function with such a block in Python, where products are routed, or raises an error."""
    torch.compiler.reset()
    counts = []

    def function(x):
        y = torch.sin(x)
        with fastgemm.patch() as routed:
            y = y @ y
        counts.append(routed)
        return torch.cos(y)

    x = torch.randn(5, 5)
    torch.testing.assert_close(torch.compile(function, backend="eager")(x), function(x))
    assert [routed.ops for routed in counts] == [{"mm": 1}, {"mm": 1}]
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(function, backend="eager", fullgraph=True)(x)
    assert entered() == 0


def test_export(device):
    model, x = model_of(device), torch.randn(6, 16)
    with fastgemm.patch():
        program = torch.export.export(model, (x,))
    assert not [node for node in program.graph.nodes if "fastgemm" in str(node.target)]
    torch.testing.assert_close(program.module()(x), model(x))


def test_decorator(device):
    patch = fastgemm.patch(level=2)

    @patch
    def power(a, n):
        """a to the n."""
        return a if n == 1 else a @ power(a, n - 1)

    a = torch.randn(6, 6, dtype=torch.float64)
    assert power.__doc__ == "a to the n."
    torch.testing.assert_close(power(a, 4), a @ a @ a @ a)
    assert patch.routed.kernels == {next(r.name for r in fastgemm.kernels("gemm", device) if r.level == 2): 3}
    assert entered() == 0


def test_only_plain_functions_can_be_decorated():
    def rows(a):
        yield from a

    async def product(a):
        return a @ a

    async def products(a):
        yield a @ a

    class Model:
        pass

    for function in (rows, product, products, Model):
        with pytest.raises(TypeError, match="plain functions"):
            fastgemm.patch()(function)


def test_an_outer_patch_does_not_see_an_inner_patchs_kernel(device):
    """The kernel ``torch`` calls torch's functions. The outer patch must not see these calls."""
    a = torch.randn(40, 40)
    outer, inner = fastgemm.patch(kernel="naive"), fastgemm.patch(kernel="torch")
    with outer, inner:
        result = a @ a
    assert torch.equal(result, a @ a)
    assert not outer.routed.total
    assert not outer.routed.passed_on


def test_threads_share_a_patch(device):
    patch, count = fastgemm.patch(), 200
    together = threading.Barrier(4)
    a = torch.randn(8, 8)
    expected = a @ a

    @patch
    def work():
        together.wait()
        for _ in range(count):
            torch.testing.assert_close(a @ a, expected)
        depth = entered()
        with patch:
            assert entered() == depth + 1
        return entered()

    with patch, ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: a @ a).result()  # a thread in no patch
    assert not patch.routed.total
    with ThreadPoolExecutor(4) as pool:
        depths = [task.result() for task in [pool.submit(work) for _ in range(4)]]
        assert depths == [1] * 4
        assert all(pool.map(lambda _: entered() == 0, range(4)))
    assert patch.routed.ops == {"mm": 4 * count}


def test_calls_leave_no_memory_behind(device):
    if device == "cuda":
        pytest.skip("the memory measured is the host's, and other tests measure it on a GPU")
    patch, bias = fastgemm.patch(level=2), torch.randn(3)
    a, b = torch.randn(4, 5), torch.randn(5, 3)

    def enter() -> None:
        with patch:
            pass

    for call in patch(lambda: torch.addmm(bias, a, b, alpha=2)), patch(lambda: torch.mv(a, b[:, 0])), enter:
        assert keeps_nothing(call, FEWEST)
