"""Tests fastgemm.patch with rare products: with an activation, with another result type, into an operand, in
recurrent layers and with sharded tensors. test_op_db.py tests products inside of torch's other ops."""

import fastgemm
import pytest
import torch
from patches import kernel_of, needs_library
from processes import run_forked
from reference import assert_right, every_device, expected_gemm, name_of

pytestmark = [every_device, needs_library]


# A product with its activation


@pytest.mark.parametrize("use_gelu", [False, True], ids=["relu", "gelu"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=name_of)
@pytest.mark.parametrize("scales", [{}, {"alpha": 1.5, "beta": -0.5}], ids=["", "scaled"])
def test_an_activation_behind_a_product(scales, dtype, use_gelu, device):
    a, b, c = (torch.randn(*shape, dtype=dtype) for shape in ((6, 33), (33, 5), (5,)))
    torchs = torch._addmm_activation(c, a, b, use_gelu=use_gelu, **scales)
    out = torch.full((6, 5), torch.nan, dtype=dtype)
    with fastgemm.patch(level=1) as routed:
        result = torch._addmm_activation(c, a, b, use_gelu=use_gelu, **scales)
        written = torch._addmm_activation(c, a, b, use_gelu=use_gelu, **scales, out=out)
    torch.testing.assert_close(result, torchs)
    assert written is out
    assert torch.equal(out, result)
    assert result.stride() == torchs.stride()
    assert routed.ops == {"_addmm_activation": 2}
    assert routed.kernels == {kernel_of(1, device): 2}
    product = fastgemm.gemm(a, b, c, level=1, **scales)
    gelu = torch.nn.functional.gelu(product, approximate="tanh" if device == "cuda" else "none")
    assert torch.equal(result, gelu if use_gelu else product.relu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32], ids=name_of)
def test_an_activation_of_other_types_is_torchs(dtype, device):
    """torch has a separate kernel for 16-bit types, and none for integers."""
    a, b, c = (torch.ones(*shape).to(dtype) for shape in ((6, 33), (33, 5), (5,)))
    with fastgemm.patch() as routed:
        if dtype.is_floating_point:
            result = torch._addmm_activation(c, a, b, use_gelu=True)
        else:
            with pytest.raises(RuntimeError):
                torch._addmm_activation(c, a, b, use_gelu=True)
    assert not routed.total
    if dtype.is_floating_point:
        assert torch.equal(result, torch._addmm_activation(c, a, b, use_gelu=True))
        assert routed.passed_on == {("_addmm_activation", "a product with its activation"): 1}


def test_what_is_fused_for_inference_multiplies_by_these(device):
    """The fast path of nn.TransformerEncoderLayer is a single op for Python."""
    if device != "cpu":
        pytest.skip("torch.device(), in which these tests run there, keeps torch from that path")
    layer, x = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(3, 5, 8)
    with torch.no_grad():
        torchs = layer(x)
        with fastgemm.patch(level=1) as routed:
            result = layer(x)
    torch.testing.assert_close(result, torchs)
    assert routed.ops["_addmm_activation"] == 1
    assert routed.total == 6
    assert not routed.passed_on


# Results of another type


WIDE = {
    "mm": ((6, 33), (33, 5), None),
    "bmm": ((3, 6, 33), (3, 33, 5), None),
    "addmm": ((6, 33), (33, 5), (6, 5)),
    "baddbmm": ((3, 6, 33), (3, 33, 5), (3, 6, 5)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=name_of)
@pytest.mark.parametrize("op", WIDE)
def test_a_result_in_float32_of_16_bit_operands(op, dtype, device):
    """torch has this product on a GPU. Otherwise torch's error must be raised."""
    a_shape, b_shape, c_shape = WIDE[op]
    a, b = torch.randn(a_shape).to(dtype), torch.randn(b_shape).to(dtype)
    c = [torch.randn(c_shape)] if c_shape else []

    def product(**out):
        return getattr(torch, op)(*c, a, b, out_dtype=torch.float32, **out)

    try:
        torchs = product()
    except (RuntimeError, NotImplementedError) as refused:
        with fastgemm.patch() as routed, pytest.raises(type(refused)) as error:
            product()
        assert str(error.value) == str(refused)
        assert not routed.total
        return
    out = torch.full_like(torchs, torch.nan)
    with fastgemm.patch(level=2) as routed:
        result = product()
        assert product(out=out) is out
    assert result.dtype == torch.float32
    assert_right(result, expected_gemm(a.float(), b.float(), *c))
    assert torch.equal(out, result)
    assert routed.ops == {op: 2}
    assert routed.kernels == {kernel_of(2, device): 2}


# out= in the memory of an operand


ALIASED = {
    "mm into a": lambda x, a, b: torch.mm(x, b, out=x),
    "mm into b": lambda x, a, b: torch.mm(a, x, out=x),
    "mm into both": lambda x, a, b: torch.mm(x, x, out=x),
    "mm into a transposed": lambda x, a, b: torch.mm(x.t(), b, out=x),
    "addmm into c": lambda x, a, b: torch.addmm(x, a, b, beta=0.5, out=x),
    "addmm into c transposed": lambda x, a, b: torch.addmm(x.t(), a, b, out=x),
    "addmm into a row that is added": lambda x, a, b: torch.addmm(x[0], a, b, out=x),
    "addmm into a": lambda x, a, b: torch.addmm(b, x, a, out=x),
    "addmm_ by itself": lambda x, a, b: x.addmm_(x, b),
    "addmm_ twice by itself": lambda x, a, b: x.addmm_(x, x, alpha=2, beta=3),
    "bmm into a": lambda x, a, b: torch.bmm(x[None], b[None], out=x[None]),
    "baddbmm into c": lambda x, a, b: torch.baddbmm(x[None], a[None], b[None], out=x[None]),
    "baddbmm_ by itself": lambda x, a, b: x[None].baddbmm_(x[None], b[None]),
}
REFUSED = "refused"


def aliased(call, x, a, b):
    x = x.clone()
    try:
        call(x, a, b)
    except RuntimeError as error:
        return REFUSED, str(error)
    return x, None


@pytest.mark.parametrize("way", ALIASED)
def test_out_that_is_an_operand(way, device):
    """The error or the values in memory must be torch's. torch computes such calls, except if out is c
    itself."""
    x, a, b = (torch.randn(8, 8, dtype=torch.float64) for _ in range(3))
    torchs, error = aliased(ALIASED[way], x, a, b)
    with fastgemm.patch(level=1) as routed:
        result, own_error = aliased(ALIASED[way], x, a, b)
    assert own_error == error
    # A GPU reads such operands while it writes to them.
    assert error is not None or device == "cuda" or torch.allclose(result, torchs)
    if way in ("addmm into c", "baddbmm into c"):
        assert routed.kernels == {kernel_of(1, device): 1}
        scale = 0.5 if way == "addmm into c" else 1
        assert torch.equal(result, fastgemm.gemm(a, b, x, beta=scale, level=1))
    else:
        assert not routed.total
        assert all("overlaps" in reason for _, reason in routed.passed_on)


@pytest.mark.parametrize("kind", [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM], ids=lambda kind: kind.__name__)
def test_recurrent_layers(kind, device):
    if device == "cuda":
        pytest.skip("there they are cuDNN's")
    model, x = kind(6, 5).double(), torch.randn(7, 3, 6, dtype=torch.float64)
    torchs = model(x)[0]
    with fastgemm.patch(level=1) as routed:
        torch.testing.assert_close(model(x)[0], torchs)
    assert routed.total >= 7  # at least one for each step
    assert not routed.passed_on


# Modes of torch's


SHARDED = """
import os, torch, fastgemm, torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
device = {device!r}
if device == "cpu":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group("gloo" if device == "cpu" else "nccl", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh(device, (1,))
a, b = torch.randn(8, 6, device=device), torch.randn(6, 4, device=device)
x, w = distribute_tensor(a, mesh, [Shard(0)]), distribute_tensor(b, mesh, [Replicate()]).requires_grad_()
with fastgemm.patch(kernel="naive") as routed:
    y = x @ w
    y.sum().backward()
assert type(y).__name__ == type(w.grad).__name__ == "DTensor"
assert torch.equal(y.full_tensor(), fastgemm.matmul(a, b, kernel="naive"))
torch.testing.assert_close(w.grad.full_tensor(), a.sum(0)[:, None].expand(6, 4))
assert routed.kernels == {{"naive": 2}}, routed
dist.destroy_process_group()
os._exit(0)
"""


def test_sharded_tensors(device):
    """A DTensor multiplies its local parts, which are plain tensors."""
    done = run_forked(SHARDED.format(device=device))
    assert done.returncode == 0, done.stderr[-2500:]


def test_a_cuda_graph_captured_while_it_is_enabled(device):
    if device == "cpu":
        pytest.skip("needs a GPU")
    a, b, bias = torch.randn(64, 96), torch.randn(96, 32), torch.randn(32)
    graph = torch.cuda.CUDAGraph()
    routed = fastgemm.enable(kernel="naive")
    try:
        torch.addmm(bias, a, b)  # loads the kernel
        with torch.cuda.graph(graph):
            out = torch.addmm(bias, a, b)
            activated = torch._addmm_activation(bias, a, b)
    finally:
        fastgemm.disable()
    assert routed.ops == {"addmm": 2, "_addmm_activation": 1}
    a.normal_()
    graph.replay()
    expected = fastgemm.gemm(a, b, bias, kernel="naive")
    assert torch.equal(out, expected)
    assert torch.equal(activated, expected.relu())
