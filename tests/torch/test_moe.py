"""Tests fastgemm.moe, and the experts of the transformers library, against loops over experts."""

import fastgemm
import pytest
import torch
from reference import every_device
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

pytestmark = every_device


def layer(tokens, experts, k, hidden, inner, dtype=torch.float32):
    """(x, gate_up, down, ids, weights) with skewed routes: some experts have many tokens, others none."""
    x = torch.randn(tokens, hidden).to(dtype)
    gate_up = (torch.randn(experts, 2 * inner, hidden) / hidden**0.5).to(dtype)
    down = (torch.randn(experts, hidden, inner) / inner**0.5).to(dtype)
    scores = torch.randn(tokens, experts) + 2 * torch.randn(experts)
    weights, ids = scores.softmax(-1).topk(k)
    return x, gate_up, down, ids, weights


def loop(x, gate_up, down, ids, weights):
    """Token by token in float64."""
    x, gate_up, down, weights = (t.double() for t in (x, gate_up, down, weights))
    result = torch.zeros_like(x)
    for t in range(x.shape[0]):
        for j in range(ids.shape[1]):
            e = int(ids[t, j])
            if 0 <= e < gate_up.shape[0]:
                gate, up = (gate_up[e] @ x[t]).chunk(2)
                result[t] += weights[t, j] * (down[e] @ (functional.silu(gate) * up))
    return result


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16, torch.float16), ids=str)
@pytest.mark.parametrize("sizes", ((1, 8, 2, 24, 17), (13, 5, 5, 9, 6), (40, 64, 3, 16, 8), (0, 4, 2, 8, 8)))
def test_against_a_loop(sizes, dtype):
    given = layer(*sizes, dtype)
    got = fastgemm.moe(*given)
    assert got.dtype == dtype and got.shape == given[0].shape
    # The product, silu, the product with up and the result are rounded.
    unit = {torch.float64: 2**-53, torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11}[dtype]
    error = (got.double() - loop(*given)).abs()
    assert (error <= 40 * unit * max(float(got.double().abs().max()) if got.numel() else 0, 1)).all()


def test_pairs_without_an_expert_add_nothing():
    x, gate_up, down, ids, weights = layer(9, 4, 2, 8, 6, torch.float64)
    ids[0], ids[1, 0], ids[2, 1], ids[3, 1] = 4, -1, 7, -(2**40)
    got = fastgemm.moe(x, gate_up, down, ids, weights)
    assert torch.equal(got[0], torch.zeros(8, dtype=torch.float64))
    torch.testing.assert_close(got, loop(x, gate_up, down, ids, weights))
    small = ids.clamp(-1, 7).int()
    assert torch.equal(fastgemm.moe(x, gate_up, down, small, weights), got)


def test_gradients():
    x, gate_up, down, ids, weights = layer(7, 5, 2, 4, 3, torch.float64)
    tensors = [t.double().requires_grad_() for t in (x, gate_up, down, weights)]
    ids[0, 0] = 5

    def run(x, gate_up, down, weights):
        return fastgemm.moe(x, gate_up, down, ids, weights)

    assert gradcheck(run, tensors)
    assert gradgradcheck(run, tensors, fast_mode=True)


def test_gradients_have_one_order():
    """The gradient of a token is the sum over its experts in float32, in their order, rounded once."""
    given = layer(30, 6, 4, 16, 8, torch.bfloat16)
    x = given[0].requires_grad_()
    grads = [torch.autograd.grad(fastgemm.moe(*given).float().sum(), x)[0] for _ in range(3)]
    assert all(torch.equal(grad, grads[0]) for grad in grads)


def test_invariant():
    x, gate_up, down, ids, weights = layer(21, 6, 2, 40, 24)
    whole = fastgemm.moe(x, gate_up, down, ids, weights, invariant=True)
    for t in (0, 10, 20):
        at = slice(t, t + 1)
        alone = fastgemm.moe(x[at], gate_up, down, ids[at], weights[at], invariant=True)
        assert torch.equal(alone[0], whole[t])


def test_compiled_and_exported():
    given = layer(12, 4, 2, 16, 8)
    wanted = fastgemm.moe(*given)
    compiled = torch.compile(lambda *x: fastgemm.moe(*x), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), wanted)
    tensors = [given[i].requires_grad_() for i in (0, 1, 2, 4)]
    grads = [torch.autograd.grad(f(*given).sin().sum(), tensors) for f in (compiled, fastgemm.moe)]
    for got, eager in zip(*grads, strict=True):
        torch.testing.assert_close(got, eager)
    given = [t.detach() for t in given]

    class Layer(torch.nn.Module):
        def forward(self, x, ids, weights):
            return fastgemm.moe(x, given[1], given[2], ids, weights)

    x, _, _, ids, weights = given
    dims = tuple({0: torch.export.Dim("tokens")} for _ in range(3))
    program = torch.export.export(Layer(), (x, ids, weights), dynamic_shapes=dims)
    for n in (5, 1, 0):
        torch.testing.assert_close(program.module()(x[:n], ids[:n], weights[:n]), wanted[:n])


@pytest.mark.parametrize("marks", [((0, 0), (3, 0), (4, 0)), ((3, 1), (4, 1)), ((1, 0), (2, 0))])
def test_sizes_that_no_graph_knows(marks):
    """Tokens, experts of a token, and all experts."""
    given = layer(12, 4, 2, 16, 8)
    for i, dim in marks:
        torch._dynamo.decorators.mark_unbacked(given[i], dim)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: fastgemm.moe(*x), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), fastgemm.moe(*given))


@pytest.mark.parametrize("tokens, k", ((0, 2), (3, 0)))
def test_without_pairs(tokens, k):
    """No tokens, or no experts of a token."""
    given = layer(tokens, 4, k, 16, 8)
    wanted = torch.zeros(tokens, 16)
    compiled = torch.compile(lambda *x: fastgemm.moe(*x), fullgraph=True, backend="aot_eager")
    for got in (
        compiled(*given),
        torch.func.vmap(fastgemm.moe, (0, *4 * (None,)))(given[0].unsqueeze(0), *given[1:])[0],
        torch.func.jvp(lambda x: fastgemm.moe(x, *given[1:]), given[:1], given[:1])[1],
    ):
        assert torch.equal(got, wanted)
    assert fastgemm.moe(*(x.to("meta") for x in given)).shape == wanted.shape
    tensors = [given[i].requires_grad_() for i in (0, 1, 2, 4)]
    grads = torch.autograd.grad(fastgemm.moe(*given).sum(), tensors, create_graph=True)
    assert not any(grad.any() for grad in grads)


def test_vmap_of_no_members_and_functionalize():
    given = layer(6, 4, 2, 16, 8)
    for i in range(5):
        dims = [0 if i == j else None for j in range(5)]
        members = [x.new_empty(0, *x.shape) if i == j else x for j, x in enumerate(given)]
        assert torch.func.vmap(fastgemm.moe, tuple(dims))(*members).shape == (0, 6, 16)
    torch.testing.assert_close(torch.func.functionalize(fastgemm.moe)(*given), fastgemm.moe(*given))


def test_gradients_that_have_a_gradient():
    """Weights of another type than the tokens are not rounded to theirs."""
    given = layer(30, 6, 4, 16, 8, torch.bfloat16)
    tensors = [given[i].requires_grad_() for i in (1, 2, 4)]
    grads = [
        torch.autograd.grad(fastgemm.moe(*given).float().square().sum(), tensors, create_graph=create)
        for create in (False, True)
    ]
    for once, twice in zip(*grads, strict=True):
        assert (
            twice - once
        ).float().norm() <= 2**-7 * once.float().norm()  # torch's silu is rounded otherwise


def test_autocast(device):
    given = layer(12, 4, 2, 16, 8)
    with torch.autocast(device, torch.bfloat16):
        got = fastgemm.moe(*given)
    torch.testing.assert_close(got.float(), fastgemm.moe(*given), rtol=0.05, atol=0.05)
    assert got.dtype == torch.bfloat16


def test_wrong_arguments():
    x, gate_up, down, ids, weights = layer(6, 4, 2, 8, 5)
    for given, text in (
        ((x[None], gate_up, down, ids, weights), r"x must have 2 dimensions, got shape \(1, 6, 8\)"),
        ((x[:, 1:], gate_up, down, ids, weights), r"x has shape \(6, 7\), expected \(6, 8\)"),
        ((x, gate_up[:, 1:], down, ids, weights), r"gate_up has shape \(4, 9, 8\), expected \(4, 10, 8\)"),
        ((x, gate_up, down[1:], ids, weights), r"down has shape \(3, 8, 5\), expected \(4, 8, 5\)"),
        ((x, gate_up, down, ids[1:], weights), r"ids has shape \(5, 2\), expected \(6, 2\)"),
        ((x, gate_up, down, ids, weights[:, 1:]), r"weights has shape \(6, 1\), expected \(6, 2\)"),
        ((x, gate_up, down, ids.float(), weights), "ids must be int32 or int64"),
        ((x.int(), gate_up, down, ids, weights), "must be of floating-point types"),
        ((x, gate_up.double(), down, ids, weights), "dtype"),
    ):
        with pytest.raises(ValueError, match=rf"fastgemm\.moe: .*{text}"):
            fastgemm.moe(*given)
    with pytest.raises(TypeError, match="ids must be a torch"):
        fastgemm.moe(x, gate_up, down, [[0, 1]], weights)


@pytest.mark.parametrize("activation", ("relu", "gelu", "silu", "swiglu"))
def test_experts_of_transformers(activation, device):
    """Experts that one call of fastgemm.moe computes, and others: with biases, with transposed weights, and
    without a gate."""
    moe = pytest.importorskip("transformers.integrations.moe")
    x, gate_up, down, ids, weights = layer(12, 4, 2, 16, 8)
    plain = activation == "swiglu"

    class Experts(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.num_experts = 4
            self.act_fn = torch.nn.SiLU() if plain else getattr(functional, activation)
            name = "gate_up_proj" if plain or activation == "silu" else "up_proj"
            first = gate_up if name == "gate_up_proj" else gate_up[:, :8]
            setattr(self, name, torch.nn.Parameter(first if plain else first.mT.contiguous()))
            self.down_proj = torch.nn.Parameter(down if plain else down.mT.contiguous())
            if not plain:
                setattr(self, f"{name}_bias", torch.nn.Parameter(torch.randn(4, first.shape[1])))
                self.down_proj_bias = torch.nn.Parameter(torch.randn(4, 16))

        def forward(self, hidden_states, top_k_index, top_k_weights):
            raise AssertionError("transformers calls the implementation that the config names")

    class Config:
        _experts_implementation = "batched_mm"

    has_gate = plain or activation == "silu"
    if not plain:
        Experts = moe.use_experts_implementation(is_transposed=True, has_bias=True, has_gate=has_gate)(
            Experts
        )
    else:
        Experts = moe.use_experts_implementation(Experts)
    experts = Experts(Config()).to(device)
    wanted = experts(x, ids, weights)
    experts.config._experts_implementation = "fastgemm"
    torch.testing.assert_close(experts(x, ids, weights), wanted)
