"""Tests layers with an epilogue, activation(x @ weight.T + bias) + residual: every row, gradients and misuse."""

import fastgemm
import pytest
import torch
from fastgemm._introspect import take_last_gemm_kernel
from layers import ACTIVATIONS, check, check_cancelled, layer
from pairwise import pairs
from reference import DEVICES, FLOATS, levels, row_id, rows
from stopwatch import shortest
from torch.nn import functional

every_device = pytest.mark.parametrize("device", DEVICES)
every_type = pytest.mark.parametrize("dtype", FLOATS, ids=row_id)
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)


# --- values


SHAPES = [(1, 1, 1), (3, 5, 7), (64, 64, 64), (65, 130, 33), (129, 256, 300), (7, 513, 1030)]


@pytest.mark.parametrize(
    "shape, activation, dtype, bias, residual",
    pairs(SHAPES, ACTIVATIONS, FLOATS, [True, False], [True, False]),
    ids=row_id,
)
@every_device
def test_values(device, shape, activation, dtype, bias, residual):
    x, w, b, r = layer(*shape, dtype, device, bias=bias, residual=residual)
    check(x, w, b, r, activation)


@pytest.mark.parametrize(
    "device, kernel, dtype", [row for row in rows("gemm") if row[2] in FLOATS], ids=row_id
)
def test_every_row(device, kernel, dtype):
    """A row applies the epilogue itself, or a pass follows. The reported name must tell which."""
    options = {"kernel": kernel}
    if dtype == torch.float32 and kernel.startswith("wgmma"):
        options["precision"] = "tf32"
    for m, n, k, activation in ((70, 136, 96, "gelu"), (5, 200, 161, "silu"), (200, 6, 128, "relu")):
        x, w, b, r = layer(m, n, k, dtype, device, residual=activation != "silu")
        try:
            fastgemm.matmul(x, w.mT, **options)
        except RuntimeError as refused:
            assert "cannot run here" in str(refused)
            with pytest.raises(RuntimeError, match="cannot run here"):
                fastgemm.linear(x, w, b, activation=activation, **options)
            continue
        check(x, w, b, r, activation, rounds_twice=kernel.startswith(("torch", "cublas")), **options)
        assert take_last_gemm_kernel() == kernel


@pytest.mark.parametrize("candidate", range(1, 5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=row_id)
def test_relu_after_cublaslt(dtype, candidate):
    """cuBLASLt's own relu turns NaN into 0 in some algorithms, so a pass applies relu after its rows."""
    kernel = f"cublaslt_{candidate}"
    if ("cuda", kernel, dtype) not in rows("gemm"):
        pytest.skip("no cuBLASLt here")
    for m, n, k in ((136, 264, 96), (40, 133, 161), (1, 64, 64), (512, 128, 4096)):
        x, w, b, r = layer(m, n, k, dtype, "cuda", residual=True)
        for bias, residual in ((b, None), (None, None), (b, r), (torch.cat((b, b))[1 : n + 1], None)):
            options = {"kernel": kernel, "activation": "relu", "residual": residual}
            try:
                with_nan = fastgemm.linear(
                    x.index_fill(0, torch.tensor(0, device="cuda"), torch.nan), w, bias, **options
                )
            except RuntimeError as refused:
                assert candidate > 1 and "name fewer candidates" in str(refused)
                with pytest.raises(RuntimeError, match="name fewer candidates"):
                    fastgemm.matmul(x, w.mT, kernel=kernel)
                continue
            assert with_nan[0].isnan().all() and not with_nan[1:].isnan().any()
            check(x, w, bias, residual, "relu", rounds_twice=True, kernel=kernel)


@every_type
@every_device
def test_every_level(device, dtype):
    x, w, b, r = layer(66, 72, 150, dtype, device, residual=True)
    for level in levels("gemm", device):
        check(x, w, b, r, "gelu", level == 7, level=level)


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=row_id)
@every_device
def test_a_residual_that_nearly_cancels(device, dtype, activation):
    """Sum, bias, activation and residual must be computed in float32 and rounded once."""
    for level in (None, *levels("gemm", device)):
        for k in (1, 3, 40):
            if level != 7:  # a library rounds its product before the pass
                check_cancelled(k, dtype, device, activation, level=level)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=row_id)
@every_device
def test_float32_results(device, dtype):
    x, w, b, _ = layer(40, 60, 128, dtype, device)
    r = torch.randn(40, 60, device=device)
    for residual in (None, r):
        result = check(x, w, b, residual, "gelu_tanh", out_dtype=torch.float32)
        assert result.dtype == torch.float32
    assert check(x, w, b, out_dtype=torch.float32).dtype == torch.float32


def test_large_k_in_float32():
    """There are several blocks of k, but the epilogue must be applied once."""
    for k in (2000, 9000):
        x, w, b, r = layer(200, 130, k, torch.float32, "cpu", residual=True)
        for kernel in ("microkernel", "pipelined", "simd", "packed"):
            check(x, w, b, r, "gelu", kernel=kernel)


def every_other(x, w, b, r):
    return x[::2, ::2], w[::2, ::2], b[::2], r[::2, ::2]


LAYOUTS = {  # a batch with 48 rows of 64, and 40 columns
    "columns": lambda x, w, b, r: (x.mT.contiguous().mT, w, b, r),
    "weight by columns": lambda x, w, b, r: (x, w.mT.contiguous().mT, b, r),
    "every other": every_other,
    "batch": lambda x, w, b, r: (x.view(4, 12, 64), w, b, r.view(4, 12, 40)),
    "batches": lambda x, w, b, r: (x.view(4, 12, 64).transpose(0, 1), w, b, r.view(12, 4, 40)),
    "vector": lambda x, w, b, r: (x[0], w, b, r[0]),
    "residual by columns": lambda x, w, b, r: (x, w, b, r.mT.contiguous().mT),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@every_type
@every_device
def test_layouts(device, dtype, layout):
    check(*LAYOUTS[layout](*layer(48, 40, 64, dtype, device, residual=True)), "gelu")


def test_the_pass_on_a_cpu_reads_a_bias_of_any_stride():
    """torch's row leaves the epilogue to the pass."""
    x, w, b, r = layer(48, 40, 64, torch.float32, "cpu", residual=True)
    check(x, w, b.repeat_interleave(2)[::2], r, "gelu", kernel="torch")


@every_activation
@every_device
def test_not_finite(device, activation):
    """Results must equal torch's, except for gelu at -infinity, where torch's two forms differ."""
    x = torch.zeros(4, 8, device=device)
    x[0, 0], x[1, 0], x[2, 0] = torch.nan, torch.inf, -torch.inf
    w = torch.zeros(8, 8, device=device)
    w[:, 0] = 1
    for dtype in (torch.float32, torch.bfloat16):
        result = fastgemm.linear(x.to(dtype), w.to(dtype), None, activation=activation)
        assert result[0].isnan().all()
        assert result[1].isposinf().all()
        assert not result[3].any()
        if activation == "relu":
            assert not result[2].any()


@every_activation
@every_type
@every_device
def test_no_terms(device, dtype, activation):
    x, w, b, r = layer(5, 6, 0, dtype, device, residual=True)
    for bias, residual, choice in (
        (b, r, {}),
        (None, r, {"level": 1}),
        (b, None, {"level": 1}),
        (None, None, {}),
    ):
        check(x, w, bias, residual, activation, **choice)
    assert fastgemm.linear(x[:0], w, b, activation=activation).shape == (0, 6)
    assert fastgemm.linear(x, w[:0], b[:0], activation=activation).shape == (5, 0)


@every_type
@every_device
def test_swiglu(device, dtype):
    x, w, b, _ = layer(5, 14, 33, dtype, device)
    residual = torch.randn(5, 7).to(dtype).to(device)
    gate, up = (x.double() @ w.double().T + b.double()).chunk(2, -1)
    exact = functional.silu(gate) * up
    u = torch.finfo(dtype).eps
    for r in (None, residual):
        got = fastgemm.linear(x, w, b, activation="swiglu", residual=r)
        wanted = exact if r is None else exact + r.double()
        assert got.dtype == dtype
        bound = 8 * u * (1 + gate.abs() + up.abs() + (gate * up).abs() + wanted.abs())
        assert ((got.double() - wanted).abs() <= bound).all()
    with pytest.raises(ValueError, match=r"fastgemm.linear: .* whose size 13 is odd"):
        fastgemm.linear(x, w[:13], activation="swiglu")
    with pytest.raises(ValueError, match="residual"):
        fastgemm.linear(x, w, b, activation="swiglu", residual=torch.zeros(5, 14, dtype=dtype, device=device))
    if dtype == torch.float64:
        leaves = [t.double().requires_grad_() for t in (x, w, b, residual)]
        assert torch.autograd.gradcheck(
            lambda x, w, b, r: fastgemm.linear(x, w, b, activation="swiglu", residual=r), leaves
        )


@every_device
def test_swiglu_of_packed_weights(device):
    x, w = torch.randn(5, 64, device=device), torch.randn(32, 64, device=device)
    q = fastgemm.quantize_weight(w, "int8")
    got = fastgemm.linear(x, q, activation="swiglu")
    gate, up = (x @ q.dequantize().to(x.dtype).T).chunk(2, -1)
    torch.testing.assert_close(got, functional.silu(gate) * up, rtol=1e-4, atol=1e-3)


def test_the_activations_of_a_cpu_are_accurate():
    """Compares all numbers of a range with float64, in vectors and one by one."""
    values = torch.cat([torch.linspace(-12, 12, 200_001), torch.tensor([-1e30, 1e30, 1e-30, -1e-30, 0.0])])
    one = torch.ones(1, 1)
    for activation, function in ACTIVATIONS.items():
        found = fastgemm.linear(values[:, None], one, torch.zeros(1), activation=activation)[:, 0]
        expected = function(values.double())
        error = (found.double() - expected).abs()
        assert (error <= 6 * 2**-24 * expected.abs() + 2.4e-7 * (expected.abs() < 1)).all(), activation


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name])
@pytest.mark.parametrize("dtype", FLOATS, ids=row_id)
def test_columns_that_fill_no_vector_have_the_same_bits(dtype, activation):
    """Parts of vectors, shares of vectors with other rows, and columns with a stride, by the kernel and by the
    pass after torch's product."""
    x, w, b, r = layer(19, 40, 24, dtype, "cpu", residual=True)
    for kernel in ("simd", "pipelined", "torch"):
        whole = fastgemm.linear(x, w, b, activation=activation, residual=r, kernel="simd")
        for n in (1, 3, 7, 15, 31, 37):
            spread = torch.stack((b, b), 1)[:n, 0]
            options = {"activation": activation, "kernel": kernel}
            for bias, residual in ((b[:n], r[:, :n]), (spread, r[:, :n].mT.contiguous().mT)):
                found = fastgemm.linear(x, w[:n], bias, residual=residual, **options)
                if kernel != "torch":
                    assert torch.equal(found, whole[:, :n]), (kernel, n)
                else:  # whose product has other bits
                    check(x, w[:n], bias, residual, activation, rounds_twice=True, kernel=kernel)


def test_columns_that_fill_no_vector_are_fast():
    """A vector for each number of the last columns took 10 times as long as a whole vector of columns."""
    x, w, b = torch.randn(10_000, 4), torch.randn(16, 4), torch.randn(16)
    whole, part = (
        shortest(lambda n=n: fastgemm.linear(x, w[:n], b[:n], activation="gelu", kernel="pipelined"))
        for n in (16, 15)
    )
    assert part < 5 * whole


# --- torch's features


@every_device
def test_one_op_in_a_compiled_graph(device):
    x, w, b, r = layer(6, 8, 10, torch.float32, device, residual=True)
    w.requires_grad_()
    seen = []

    def backend(graph, _):
        seen.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return graph

    def call(x, w, b, r):
        return fastgemm.linear(x, w, b, activation="gelu", residual=r)

    torch.compile(call, backend=backend, fullgraph=True)(x, w, b, r)
    assert seen == ["fastgemm.linear.default"]
    expected, result = call(x, w, b, r), torch.compile(call, fullgraph=True, backend="aot_eager")(x, w, b, r)
    torch.testing.assert_close(result, expected)
    (found,) = torch.autograd.grad(result.sum(), w)
    (wanted,) = torch.autograd.grad(expected.sum(), w)
    torch.testing.assert_close(found, wanted)
    batch, residual = torch.randn(2, 3, 10, device=device), torch.randn(2, 3, 8, device=device)
    batched = torch.compile(call, fullgraph=True, backend="aot_eager")(batch, w, b, residual)
    torch.testing.assert_close(batched, call(batch, w, b, residual))


@pytest.mark.parametrize(
    "batched",
    [(0, None, None, None), (0, None, None, 0), (None, 0, None, None), (1, 0, 0, None), (None, None, 0, 0)],
    ids=str,
)
def test_vmap(batched):
    x, w, b, r = layer(6, 8, 10, torch.float64, "cpu", residual=True)
    given = [
        t if d is None else torch.stack([t, 2 * t, -t], d) for t, d in zip((x, w, b, r), batched, strict=True)
    ]

    def ours(x, w, b, r):
        return fastgemm.linear(x, w, b, activation="gelu", residual=r)

    def theirs(x, w, b, r):
        return functional.gelu(functional.linear(x, w, b)) + r

    found = torch.func.vmap(ours, in_dims=batched)(*given)
    torch.testing.assert_close(found, torch.func.vmap(theirs, in_dims=batched)(*given))


def test_forward_mode_and_functional_gradients():
    x, w, b, r = layer(6, 8, 10, torch.float64, "cpu", residual=True)

    def ours(x, w, b, r):
        return fastgemm.linear(x, w, b, activation="silu", residual=r)

    def theirs(x, w, b, r):
        return functional.silu(functional.linear(x, w, b)) + r

    given, tangents = (x, w, b, r), tuple(torch.randn_like(t) for t in (x, w, b, r))
    for one, other in zip(
        torch.func.jvp(ours, given, tangents), torch.func.jvp(theirs, given, tangents), strict=True
    ):
        torch.testing.assert_close(one, other)
    of_ours = torch.func.grad(lambda *t: ours(*t).sum(), argnums=(0, 1, 2))(*given)
    of_theirs = torch.func.grad(lambda *t: theirs(*t).sum(), argnums=(0, 1, 2))(*given)
    for one, other in zip(of_ours, of_theirs, strict=True):
        torch.testing.assert_close(one, other)


@every_device
def test_autocast(device):
    x, w, b, r = layer(6, 8, 10, torch.float32, device, residual=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        plain = fastgemm.linear(x, w, b, activation="gelu", residual=r)
        assert plain.dtype == torch.bfloat16
        differentiable = fastgemm.linear(x, w.requires_grad_(), b, activation="gelu", residual=r)
        assert differentiable.dtype == torch.bfloat16
        torch.testing.assert_close(plain, differentiable.detach(), rtol=2e-2, atol=2e-2)
        assert fastgemm.linear(x, w, b, activation="gelu", precision="ieee").dtype == torch.float32
    differentiable.sum().backward()
    assert w.grad.dtype == torch.float32


# --- misuse; tests/python/test_wrong_uses.py has more


def test_a_bias_is_a_row_and_operands_are_dense():
    x, w = torch.randn(6, 10), torch.randn(8, 10)
    with pytest.raises(ValueError, match=r"bias has shape \(1, 8\), expected \(8,?\)"):
        fastgemm.linear(x, w, torch.randn(1, 8))
    with pytest.raises(NotImplementedError, match=r"x has layout torch\.sparse_coo"):
        fastgemm.linear(x.to_sparse(), w)


@pytest.mark.skipif(len(DEVICES) < 2, reason="one device")
def test_two_devices():
    with pytest.raises(ValueError, match=r"one device|on device|cuda"):
        fastgemm.linear(torch.randn(6, 10), torch.randn(8, 10, device="cuda"))
