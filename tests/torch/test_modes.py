"""Tests that a product keeps its fast path inside of torch modes that do not affect it."""

import contextlib
import copy
import sys
from collections.abc import Callable
from typing import Any

import fastgemm
import pytest
import torch
from fastgemm import _override_library
from fastgemm._nn.activated_linear import activated
from fastgemm._ops import gemm
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode
from torch.utils._device import DeviceContext

needs_library = pytest.mark.skipif(
    not _override_library.use_in_eager_mode(), reason="there is no library for this torch"
)

A, ROW, HALF = torch.randn(16, 16), torch.randn(16), torch.randn(16, 16).half()
SUM, OUT, ZEROS = A.clone(), torch.empty(16, 16), torch.zeros(16, 16)
LAYER = fastgemm.nn.convert(nn.Linear(16, 16))
FROZEN = copy.deepcopy(LAYER).requires_grad_(False)
SHORT: dict[str, Callable[[], Tensor]] = {
    "matmul": lambda: fastgemm.matmul(A, A),
    "level": lambda: fastgemm.matmul(A, A, level=3),
    "kernel": lambda: fastgemm.matmul(A, A, kernel="packed", precision="ieee"),
    "invariant": lambda: fastgemm.matmul(A, A, invariant=True),
    "out_dtype": lambda: fastgemm.matmul(HALF, HALF, out_dtype=torch.float32),
    "gemm": lambda: fastgemm.gemm(A, A, A, alpha=2, beta=-0.5, trans_a=True),
    "symmetric": lambda: fastgemm.gemm(A, A, trans_b=True, symmetric=True),
    "layer": lambda: LAYER(A),
    "frozen layer": lambda: FROZEN(A),
}
OTHERS: dict[str, Callable[[], Tensor]] = {
    "linear": lambda: fastgemm.linear(A, A, ROW, activation="relu", residual=A),
    "activated": lambda: activated(A, A, ROW, "gelu"),
    "transpose": lambda: fastgemm.transpose(A),
    "add": lambda: fastgemm.add(A, A, alpha=2),
    "add_": lambda: fastgemm.add_(SUM, ZEROS),
    "out": lambda: fastgemm.matmul(A, A, out=OUT),
    "vector": lambda: fastgemm.matmul(A, ROW),
    "level of a layer": lambda: fastgemm.nn.linear(A, A, level=3),
}


@contextlib.contextmanager
def flag(function: Callable[[Any], None], value: Any, before: Any):
    function(value)
    try:
        yield
    finally:
        function(before)


MODES = {
    "device": lambda: torch.device("cpu"),
    "another device": lambda: torch.device("meta"),
    "default device": lambda: flag(torch.set_default_device, "meta", None),
    "two": lambda: both(torch.device("meta"), BaseTorchFunctionMode()),
    "a mode that does nothing": BaseTorchFunctionMode,
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=False),
    "deterministic": lambda: flag(torch.use_deterministic_algorithms, True, False),
    "dtype": lambda: flag(torch.set_default_dtype, torch.float64, torch.float32),
    "saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    "precision": lambda: flag(torch.set_float32_matmul_precision, "medium", "highest"),
    "forward mode": forward_ad.dual_level,
    "profiler": lambda: torch.autograd.profiler.profile(use_kineto=True),
    "attention": lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
}


@contextlib.contextmanager
def both(*modes):
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        yield


def functions_called(call: Callable[[], Any]) -> list[str]:
    """The Python functions that a call runs."""
    call()
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


@pytest.fixture(autouse=True)
def flags_as_before():
    before = torch.backends.mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision
    yield
    torch.backends.mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision = before


@needs_library
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, mode) for mode in MODES for name in ("matmul", "frozen layer")]
    + [(name, mode) for name in SHORT for mode in ("two", "autocast", "no_grad")],
)
def test_a_product_keeps_its_short_way(name, mode, monkeypatch):
    """Inside a mode no more Python code may run than outside."""
    call = SHORT[name]
    allowed = set(functions_called(call))
    monkeypatch.setattr(gemm.PRODUCT, "call", None)  # the last function of the slow path
    with MODES[mode]():
        called = functions_called(call)
    hooks = {"<lambda>"}  # hooks of saved tensors
    assert set(called) <= allowed | hooks, called


@needs_library
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", ["device", "two", "autocast"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_calls_are_not_shown_to_such_a_mode(mode, name):
    with MODES[mode]():
        called = functions_called(OTHERS[name])
    assert "__torch_function__" not in called
    assert "run" not in called  # an autocast kernel in Python


@pytest.mark.parametrize("name", [*SHORT, *OTHERS])
@pytest.mark.parametrize("mode", ["another device", "two"])
def test_the_result_is_as_without(mode, name):
    call = {**SHORT, **OTHERS}[name]
    expected = call()
    with MODES[mode]():
        got = call()
    assert got.device == expected.device and torch.equal(got, expected)


def test_gradients_are_as_without():
    def gradients():
        x = A.clone().requires_grad_()
        y = fastgemm.transpose(
            fastgemm.linear(fastgemm.matmul(x, A, level=5), A, activation="gelu", residual=x)
        )
        fastgemm.add(LAYER(fastgemm.gemm(y, x, A, alpha=2)), x).sum().backward()
        return x.grad

    expected = gradients()
    with torch.device("meta"):
        assert torch.equal(gradients(), expected)


class Watching(TorchFunctionMode):
    """A user's mode, which may do anything."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


class WatchingIdle(Watching, BaseTorchFunctionMode):
    pass


class WatchingDevices(Watching, DeviceContext):
    pass


@pytest.mark.parametrize("name", ["matmul", "level", "gemm", "transpose", "add", "linear"])
@pytest.mark.parametrize("outer", [contextlib.nullcontext, lambda: torch.device("meta")])
def test_other_modes_see_the_call(name, outer):
    call = {**SHORT, **OTHERS}[name]
    expected = call()
    for mode in WatchingIdle(), WatchingDevices(torch.device("meta")):
        with outer(), mode:
            assert torch.equal(call(), expected)
        assert mode.seen[0] == {"level": "matmul"}.get(name, name)


@pytest.mark.parametrize("mode", ["another device", "two"])
def test_a_subclass_sees_the_call(mode):
    class Own(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    own = A.as_subclass(Own)
    with MODES[mode]():
        assert fastgemm.matmul(own, A) == "matmul"
        assert fastgemm.gemm(A, A, own, level=2) == "gemm"


@pytest.mark.parametrize(
    "wrong", [{"level": 8}, {"level": True}, {"level": 2**70}, {"kernel": ""}, {"kernel": 3}]
)
def test_errors_are_as_without(wrong):
    with pytest.raises((TypeError, ValueError)) as expected:
        fastgemm.matmul(A, A, **wrong)
    with torch.device("meta"), pytest.raises(expected.type) as error:
        fastgemm.matmul(A, A, **wrong)
    assert str(error.value) == str(expected.value)


@pytest.mark.parametrize("name", ["linear", "transpose", "add"])
def test_forward_mode_takes_the_long_way_only_for_tangents(name):
    call = OTHERS[name]
    with forward_ad.dual_level():
        assert "apply" not in functions_called(call)
        x = forward_ad.make_dual(A, torch.ones_like(A))
        calls = {
            "linear": lambda: fastgemm.linear(A, A, residual=x),
            "transpose": lambda: fastgemm.transpose(x),
            "add": lambda: fastgemm.add(A, x),
        }
        assert torch.equal(forward_ad.unpack_dual(calls[name]()).tangent, torch.ones_like(A))


def test_compiled_code_under_a_default_device():
    compiled = torch.compile(lambda a: fastgemm.gemm(a, a, a, level=2), fullgraph=True, backend="aot_eager")
    with torch.device("cpu"):
        assert torch.equal(compiled(A), fastgemm.gemm(A, A, A, level=2))
