"""Tests products with a QuantizedWeight by every function that multiplies, with gradients, transforms, compilers
and autocast. Kernels are tested in tests/kernels and tests/simt."""

import fastgemm
import pytest
import torch
from fastgemm._ops.activations import ACTIVATIONS
from fastgemm._quantized import product
from fastgemm.quantized import QuantizedWeight
from reference import every_device, needs_simulator
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from weights import KINDS, kind_id, random_weight, values

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
N, K = 70, 200
INT4 = KINDS[0]


def close(result: Tensor, x: Tensor, q: QuantizedWeight, then=lambda y: y) -> None:
    """Asserts that the result is within a bound for operands that are rounded to the type of x, with random
    errors."""
    w = values(q).to(x.device)
    exact = x.double() @ w.mT
    unit = {BF16: 2**-8, F16: 2**-11, F32: 2**-20}[x.dtype]
    bound = unit * (x.double().abs() @ w.abs().mT)
    error = (result.double() - then(exact)).abs()
    assert (error <= 2 * bound + unit * then(exact).abs() + 1e-6).all(), (error / (bound + 1e-9)).max()


def operands(dtype: torch.dtype = BF16, rows: tuple[int, ...] = (5,), kind: tuple = INT4, **options: object):
    return torch.randn(*rows, K).to(dtype), random_weight(N, K, kind, dtype=dtype, **options)


CALLS = {
    "fastgemm.linear": lambda x, q: fastgemm.linear(x, q),
    "functional.linear": lambda x, q: functional.linear(x, q),
    "nn.linear": lambda x, q: fastgemm.nn.linear(x, q),
    "nn.conv1d": lambda x, q: fastgemm.nn.conv1d(x, q.mT),
    "fastgemm.matmul": lambda x, q: fastgemm.matmul(x, q.mT),
    "torch.matmul": lambda x, q: torch.matmul(x, other=q.mT),
    "@": lambda x, q: x @ q.t(),
    "Tensor.matmul": lambda x, q: x.matmul(other=q.T),
    "module": lambda x, q: module_of(q)(x),
}


def module_of(q: QuantizedWeight, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(K, N, bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(q, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer


@every_device
@pytest.mark.parametrize("call", CALLS)
def test_every_name_reaches_the_same_product(call, device):
    for rows in ((5,), (), (2, 3), (0,), (2, 0, 4)):
        x, q = operands(rows=rows, order=True)
        result = CALLS[call](x, q)
        assert type(result) is Tensor and result.dtype == x.dtype and result.shape == (*rows, N)
        assert torch.equal(result, fastgemm.linear(x, q))
        close(result, x, q)


@every_device
def test_x_in_columns(device):
    q = operands()[1]
    for rows in (5, 40, 300):
        x = torch.randn(K, rows).to(BF16).mT
        close(fastgemm.linear(x, q), x, q)


@every_device
@pytest.mark.parametrize(
    "dtype, kind", [((BF16, F16, F32)[i % 3], kind) for i, kind in enumerate(KINDS)], ids=kind_id
)
def test_kinds_of_weights(dtype, kind, device):
    x, q = operands(dtype, kind=kind, order=True)
    bias = torch.randn(N).to(dtype)
    close(fastgemm.linear(x, q), x, q)
    close(fastgemm.linear(x[:, :], q, bias, activation="relu"), x, q, lambda y: (y + bias.double()).relu())
    close(fastgemm.linear(x, q, invariant=True), x, q)


@every_device
def test_choices_reach_the_op(device, monkeypatch):
    x, q = operands()
    seen = []
    layer = product.LAYER
    monkeypatch.setattr(
        layer, "bare", lambda *tensors, **options: seen.append(options) or x.new_zeros(len(x), N)
    )
    given = {"level": 6, "kernel": "dequantized", "out_dtype": torch.float32}
    fastgemm.linear(x, q, activation="silu", **given)
    fastgemm.matmul(x, q.mT, **given)
    fastgemm.nn.linear(x, q, level=6, kernel="dequantized")
    fastgemm.linear(x, q, invariant=True)
    fastgemm.matmul(x, q.mT, invariant=True)
    fastgemm.nn.linear(x, q, kernel="invariant")
    functional.linear(x, q)
    names = ("level", "impl", "out_dtype", "activation", "invariant")
    found = [tuple(options.get(name) for name in names) for options in seen]
    by_level = (6, "dequantized", torch.float32)
    assert found == [
        (*by_level, "silu", None),
        (*by_level, None, None),
        (6, "dequantized", None, None, None),
        *[(None, None, None, None, True)] * 3,
        (None,) * 5,
    ]


@every_device
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_those_of_the_dequantized_weight(activation, compiled, device):
    x, q = operands(F32, order=True)
    bias, residual = torch.randn(N), torch.randn(5, N)
    leaves = [t.requires_grad_() for t in (x, bias, residual)]

    def gradients(weight: Tensor, with_residual: bool, call=fastgemm.linear) -> list[Tensor]:
        y = call(x, weight, bias, activation=activation, residual=residual if with_residual else None)
        first = torch.autograd.grad(y.square().sum(), leaves[: 2 + with_residual], create_graph=not compiled)
        return [*first, *([] if compiled else torch.autograd.grad(first[0].square().sum(), [x, bias]))]

    torch._dynamo.reset()
    call = (
        torch.compile(fastgemm.linear, fullgraph=True, backend="aot_eager") if compiled else fastgemm.linear
    )
    for with_residual in (False, True):
        for mine, theirs in zip(
            gradients(q, with_residual, call), gradients(q.dequantize(), with_residual), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4 * theirs.abs().max().item())


@every_device
def test_gradients_in_half_precision(device):
    """With a result in float32, the gradient is computed in float32 and rounded once."""
    x, q = operands()
    x.requires_grad_()
    for out_dtype in (None, F32):
        y = fastgemm.linear(x, q, out_dtype=out_dtype)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        exact = values(q).to(device).sum(0)
        assert grad.dtype == x.dtype
        scale = values(q).abs().sum(0).to(device)
        assert ((grad.double() - exact).abs() <= 2**-8 * (exact.abs() + scale / 4)).all()
    with torch.no_grad():
        assert not fastgemm.linear(x, q).requires_grad


@every_device
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_and_exported_modules(dynamic, device):
    x, q = operands(order=True)
    layer = module_of(q, torch.randn(N).to(BF16))
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for name in ("fastgemm.matmul", "@", "nn.linear"):
        by_name = torch.compile(CALLS[name], fullgraph=True, backend="aot_eager")
        assert torch.equal(by_name(x, q), CALLS[name](x, q)), name
    for rows in (5, 7, 1):
        assert torch.equal(compiled(x[:rows].contiguous()), layer(x[:rows]))
    shapes = ({0: torch.export.Dim("rows", min=2)},) if dynamic else None
    program = torch.export.export(layer, (x,), dynamic_shapes=shapes)
    assert "fastgemm.quantized_linear.default" in str(program.graph)
    assert torch.equal(program.module()(x), layer(x))


@every_device
def test_op_is_registered_as_torch_wants(device):
    for dtype, kind in ((BF16, INT4), (F32, KINDS[3]), (F16, KINDS[6])):
        x, q = operands(dtype, kind=kind)
        q, options = product._options(q, None, None, None, False)
        weight = q._codes, q._scales, q._zeros, q._global
        bias = torch.randn(N).to(dtype).requires_grad_()
        arguments = (x.requires_grad_(), *weight, bias, None)
        ops = torch.ops.fastgemm
        torch.library.opcheck(ops.quantized_linear.default, arguments, {**options, "activation": "gelu"})
        torch.library.opcheck(ops._quantized_linear.default, (x.detach(), *weight), options)


@every_device
def test_transforms_of_torch_func(device):
    x, q = operands(F32, order=True)
    w, bias = q.dequantize(), torch.randn(5, N)

    def layer(weight: Tensor, activation: str | None = "gelu"):
        return lambda x, bias: fastgemm.linear(x, weight, bias, activation=activation)

    transforms = [
        lambda f: torch.vmap(f)(x, bias),
        lambda f: torch.vmap(f, (0, None))(x, bias[0]),
        lambda f: torch.vmap(f, (0, None))(x[:0], bias[0]),
        lambda f: torch.vmap(f, (None, 0))(x, bias),
        lambda f: torch.vmap(f, (1, None))(x.view(5, 1, K), bias[0]),
        lambda f: torch.func.jvp(f, (x, bias[0]), (x.cos(), bias[1]))[1],
        lambda f: torch.func.jacrev(f)(x[0], bias[0]),
        lambda f: torch.func.jacfwd(f)(x[0], bias[0]),
        lambda f: torch.vmap(torch.func.grad(lambda x, b: f(x, b).square().sum()))(x, bias),
    ]
    for transform in transforms:
        for activation in (None, "gelu", "relu"):
            mine, theirs = transform(layer(q, activation)), transform(layer(w, activation))
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3)


@every_device
def test_autocast(device):
    x, q = operands(F32)
    bias = torch.randn(N, requires_grad=True)
    with torch.autocast(device, BF16):
        for call in (fastgemm.linear, functional.linear):
            result = call(x, q, bias)
            assert result.dtype == BF16
            assert torch.equal(result, fastgemm.linear(x.to(BF16), q, bias.to(BF16)))
            (grad,) = torch.autograd.grad(result.float().sum(), bias)
            assert grad.dtype == F32 and torch.equal(grad, torch.full_like(grad, 5))
        assert fastgemm.linear(x, q, residual=torch.zeros(5, N)).dtype == BF16


def error_of(call) -> type | None:
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        return type(error)
    return None


@pytest.mark.parametrize("kind", [INT4, KINDS[4], KINDS[7], KINDS[9], KINDS[11]], ids=kind_id)
def test_choices_are_refused_without_data_as_with(kind):
    """Without data only the kernel table decides. Rows that this machine cannot run are left out."""
    available = {row.name for row in fastgemm.kernels("gemm", "cpu") if row.available}
    names = available | {row.name for row in fastgemm.kernels("gemm", "cuda")} - {"torch"}
    choices = [{"level": level} for level in range(9)] + [
        {"kernel": name} for name in (*sorted(names), "none")
    ]
    wrong = {}
    for dtype in (BF16, F16, F32):
        x, q = operands(dtype, kind=kind)
        with FakeTensorMode() as mode:
            fake = mode.from_tensor(x), mode.from_tensor(q)
        for choice in (
            *choices,
            {"level": 2, "kernel": "dequantized"},
            {"out_dtype": F16},
            {"out_dtype": F32},
        ):
            errors = [error_of(lambda a=a, c=choice: fastgemm.linear(*a, **c)) for a in ((x, q), fake)]
            if errors[0] is not errors[1]:
                wrong[f"{dtype} {choice}"] = errors
    assert wrong == {}


def test_operations_are_counted():
    x, q = operands()
    x.requires_grad_()
    with FlopCounterMode(display=False) as counter:
        fastgemm.linear(x, q).sum().backward()
    assert counter.get_total_flops() == 2 * 2 * 5 * N * K


@needs_simulator
@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_the_simulator_gets_units(kind):
    x, q = operands(kind=kind, order=True)
    with fastgemm.simulate():
        result = fastgemm.linear(x, q)
        close(result, x, q)
        assert torch.equal(fastgemm.linear(x, q._ordered(True)), result)


def test_errors_name_the_function_and_the_argument():
    x, q = operands()
    bias, residual = torch.randn(N).to(BF16), torch.randn(5, N).to(BF16)
    for error, message, call in [
        (ValueError, r"matmul: a quantized weight of shape \(70, 200\) cannot be the second", lambda: x @ q),
        (ValueError, "products with a QuantizedWeight q", lambda: q @ x.mT),
        (ValueError, "out= is not for quantized", lambda: torch.matmul(x, q.mT, out=residual)),
        (ValueError, "out= is not for quantized", lambda: torch.mm(x, q.mT, out=residual)),
        (ValueError, r"linear: the weight must be \(N, K\)", lambda: functional.linear(x, q.mT)),
        (ValueError, "linear: only the weight of a product may be", lambda: fastgemm.linear(q, q)),
        (ValueError, "linear: only the weight of a product may be", lambda: fastgemm.linear(x, x, q)),
        (
            ValueError,
            r"x must be \(\.\.\., 200\) for a weight of 70 x 200",
            lambda: fastgemm.linear(x[:, :8], q),
        ),
        (TypeError, "x must be bfloat16, float16 or float32", lambda: fastgemm.linear(x.double(), q)),
        (TypeError, "x must be a torch.Tensor, got list", lambda: fastgemm.linear([1], q)),
        (
            ValueError,
            "precision='tf32' is not for quantized",
            lambda: fastgemm.linear(x, q, precision="tf32"),
        ),
        (ValueError, "linear: unknown activation 'tanh'", lambda: fastgemm.linear(x, q, activation="tanh")),
        (ValueError, "linear: level must be 1 to 7", lambda: fastgemm.linear(x, q, level=8)),
        (TypeError, "linear: level must be an int", lambda: fastgemm.linear(x, q, level="6")),
        (ValueError, "linear: unknown kernel 'fast'", lambda: fastgemm.linear(x, q, kernel="fast")),
        (ValueError, "takes no level", lambda: fastgemm.linear(x, q, level=6, invariant=True)),
        (ValueError, "linear: bias has dtype", lambda: fastgemm.linear(x, q, bias.double())),
        (ValueError, "linear: bias", lambda: fastgemm.linear(x, q, bias[:3])),
        (ValueError, "linear: residual has shape", lambda: fastgemm.linear(x, q, residual=bias)),
        (ValueError, "one device", lambda: fastgemm.linear(x.to("meta"), q, bias)),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_layers_ignore_a_precision_of_float32():
    x, q = operands()
    for call in (
        lambda precision: fastgemm.nn.linear(x, q, precision=precision),
        lambda precision: fastgemm.nn.conv1d(x, q.mT, precision=precision),
    ):
        assert torch.equal(call("tf32"), call(None))
        with pytest.raises(ValueError, match=r"nn\.(linear|conv1d): precision must be one of"):
            call("fast")


class Scaled(Tensor):
    """A subclass that takes over every function."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func


@pytest.mark.parametrize("call", [fastgemm.linear, fastgemm.nn.linear])
def test_what_else_overrides_a_call_sees_it(call):
    """The weight's own function is called directly only if nothing else overrides the call."""
    x, q = operands()
    seen = []

    class Log(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Log():
        call(x, q)
    assert seen[0] is call
    if call is fastgemm.linear:
        assert call(x.as_subclass(Scaled), q) is call
