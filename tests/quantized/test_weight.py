"""QuantizedWeight as a tensor: copies, files, modules, transposes, and what it refuses."""

import copy
import io
import pickle

import fastgemm
import pytest
import torch
from fastgemm.quantized import QuantizedWeight
from reference import every_device
from torch import nn
from weights import KINDS, kind_id, random_weight

every_kind = pytest.mark.parametrize("kind", KINDS, ids=kind_id)


def saved(value: object, **options: object) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True, **options)


def same(x: QuantizedWeight, y: QuantizedWeight) -> bool:
    facts = [(q._packing, q.format, q.dtype, q.shape, q.stride(), q.device, q._transposed) for q in (x, y)]
    return facts[0] == facts[1] and torch.equal(x.dequantize(), y.dequantize())


@every_device
@every_kind
def test_copies_pickles_and_files(kind, device):
    q = random_weight(70, 200, kind, order=True, dtype=torch.float16)
    makes = [copy.copy, copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q)), saved, torch.clone]
    for made in (q, q.mT, nn.Parameter(q, requires_grad=False)):
        for make in makes:
            again = make(made)
            assert type(again) is QuantizedWeight and same(again, made)
            assert isinstance(again, nn.Parameter) == isinstance(made, nn.Parameter) or make is torch.clone
            shares = again._codes.data_ptr() == made._codes.data_ptr()
            assert shares == (make is copy.copy)
    on_cpu = saved(q, map_location="cpu")
    assert not on_cpu._packing.units and torch.equal(on_cpu.dequantize(), q.dequantize().cpu())
    if device == "cpu":  # whatever the order in memory, files hold the plain one
        assert same(saved(q._ordered(True)), q)


def test_processes_share_the_memory_of_a_weight():
    module = layer()
    assert not module[0].weight.is_shared()
    weight = module.share_memory()[0].weight
    assert weight.is_shared() and all(x.is_shared() for x in weight._inner() if x is not None)


@every_device
def test_facts(device):
    w = torch.randn(70, 200, dtype=torch.bfloat16)
    q = fastgemm.quantize_weight(w, "int4", zero_points=True)
    assert (q.shape, q.stride(), q.dtype) == ((70, 200), (200, 1), torch.bfloat16)
    assert (q.device.type, q.requires_grad) == (device, False)
    assert (q.format, q.granularity, q.group_size, q.block_size) == ("int4", "group", 128, (1, 128))
    assert (q.codes.shape, q.codes.dtype) == ((70, 100), torch.uint8)
    assert (q.scales.shape, q.scales.dtype, q.zero_points.dtype) == ((70, 2), torch.bfloat16, torch.int8)
    assert q.global_scale is None and q.order is None
    facts = "'int4', shape=(70, 200), groups of 128, bfloat16 scales, zero points, dtype=torch.bfloat16"
    assert repr(q).startswith(f"QuantizedWeight({facts}, device='{device}")
    if device == "cpu":
        assert q.nbytes == 70 * 100 + 70 * 2 * 3
    for granularity, said in {
        "tensor": "one scale, float32",
        "channel": "a scale for each row, float32",
        "group": "groups of 128, bfloat16",
        "128x128": "blocks of 128 x 128, float32",
    }.items():
        other = fastgemm.quantize_weight(w, "fp8", granularity=granularity)
        assert other.granularity == granularity and f"(70, 200), {said} scales" in repr(other)
    t = q.mT
    assert (t.shape, t.stride(), t.format) == ((200, 70), (1, 200), "int4")
    assert torch.equal(t.dequantize(), q.dequantize().mT) and "(200, 70)" in repr(t)
    for back in (t.mT, t.t(), t.T, t.transpose(-1, 0), t.permute(1, 0)):
        assert same(back, q)
    for wrong, error in (
        (lambda: q.transpose(0, 3), IndexError),
        (lambda: q.permute(0, 0), RuntimeError),
        (lambda: torch.mm(torch.ones(1, 2, t.shape[0]), t), RuntimeError),
    ):
        with pytest.raises(error, match=r"^fastgemm: "):
            wrong()
    assert same(q.transpose(0, 0), q) and same(q.detach(), q) and same(q.data, q)


@every_device
def test_devices_and_dtypes(device):
    q = random_weight(70, 200, ("int4", "bf16", "subtracted", (1, 64)), order=True)
    for other in (q.half(), q.to(torch.float16), q.to(device, torch.float16)):
        assert other.dtype == torch.float16 and torch.equal(other.dequantize(), q.dequantize(torch.float16))
    assert q.to(device) is q and same(q.to(device, copy=True), q)
    on_meta = q.to("meta")
    assert on_meta.is_meta and on_meta.dequantize().is_meta and not on_meta._packing.units
    assert on_meta.nbytes == q.cpu().nbytes
    empty = torch.empty_like(on_meta, device=device)
    assert empty._packing == q._packing and empty.nbytes == q.nbytes
    assert same(empty.copy_(q), q) and same(empty, q)
    assert same(q.cpu().to(device), q)


def layer(kind: tuple = KINDS[0]) -> nn.Sequential:
    made = nn.Sequential(nn.Linear(200, 70).to(torch.bfloat16))
    made[0].weight = nn.Parameter(random_weight(70, 200, kind), requires_grad=False)
    return made


@every_device
@pytest.mark.parametrize("swap", [False, True])
def test_modules_move_save_and_load(swap, device):
    module, x = layer(), torch.randn(3, 200, dtype=torch.bfloat16)
    expected = module(x)
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        states = saved(module.state_dict())
        assert isinstance(states["0.weight"], QuantizedWeight)
        other = layer()
        assert not torch.equal(other(x), expected)
        other.load_state_dict(states)
        assert torch.equal(other(x), expected)
        with pytest.raises(RuntimeError, match="cannot be copied into"):
            layer(KINDS[1]).load_state_dict(states)
        on_meta = copy.deepcopy(other).to("meta")
        assert isinstance(on_meta[0].weight, nn.Parameter) and on_meta[0].weight.is_meta
        on_meta.to_empty(device=device).load_state_dict(states)
        assert torch.equal(on_meta(x), expected)
        plain = nn.Sequential(nn.Linear(200, 70).to(torch.bfloat16)).requires_grad_(False)
        with pytest.raises(
            RuntimeError, match=r"load the weight with load_state_dict\(\.\.\., assign=True\)"
        ):
            plain.load_state_dict(states)
        plain.load_state_dict(states, assign=True)
        assert torch.equal(plain(x), expected) and list(plain.state_dict()) == list(states)
        assert copy.deepcopy(plain).half()[0].weight.dtype == torch.float16
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_no_gradient_reaches_a_weight():
    q = random_weight(70, 200, KINDS[0])
    for ask in (
        lambda: q.requires_grad_(),
        lambda: setattr(q, "requires_grad", True),
        lambda: nn.Parameter(q),
        lambda: layer().requires_grad_(),
    ):
        with pytest.raises(RuntimeError, match="no gradient reaches a QuantizedWeight"):
            ask()
    assert layer().requires_grad_(False)[0].bias.requires_grad is False
    q.requires_grad = False
    assert not q.requires_grad_(False).requires_grad


def test_other_functions_of_torch_are_refused():
    q, x = random_weight(70, 200, KINDS[0]), torch.randn(70, 200)
    for call in (
        lambda: q + 1,
        lambda: q.mul_(2),
        lambda: q[3],
        lambda: torch.addmm(x, x, q.mT),
        lambda: fastgemm.gemm(x, q.mT),
        lambda: fastgemm.transpose(q),
        lambda: q.sum(),
        lambda: q.copy_(x),
        lambda: x.copy_(q),
        lambda: q.view(-1),
        lambda: torch.func.grad(lambda q: fastgemm.linear(x, q).sum())(q),
    ):
        with pytest.raises(NotImplementedError, match="QuantizedWeight"):
            call()
    for dtype in (torch.float64, torch.int8):
        with pytest.raises(TypeError, match="is bfloat16, float16 or float32, not"):
            q.to(dtype)
        with pytest.raises(TypeError, match="is bfloat16, float16 or float32, not"):
            q.dequantize(dtype)


def test_constructor_refuses_what_does_not_fit():
    codes, scales = torch.zeros(8, 16, dtype=torch.uint8), torch.ones(8, 1)
    given = {"format": "int4", "block_size": (1, 32)}
    nan = torch.full((8, 16), 0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn)
    for error, message, arguments, options in [
        (TypeError, "codes must be a torch.Tensor, got NoneType", (None, scales), {}),
        (TypeError, "scales must be a torch.Tensor", (codes, None), {}),
        (TypeError, "codes of 'int4' must be torch.uint8", (codes.int(), scales), {}),
        (TypeError, "scales must have one of the types", (codes, scales.double()), {}),
        (TypeError, "zero_points must be int8 or", (codes, scales, scales.half()), {}),
        (TypeError, "is bfloat16, float16 or float32", (codes, scales), {"dtype": torch.int8}),
        (ValueError, "unknown format 'int5'; accepted: int4, int8", (codes, scales), {"format": "int5"}),
        (ValueError, r"unknown format \['int4'\]; accepted", (codes, scales), {"format": ["int4"]}),
        (ValueError, "block_size must be two positive", (codes, scales), {"block_size": (1, 0)}),
        (ValueError, "block_size must be two positive", (codes, scales), {"block_size": 32}),
        (TypeError, "block_size must be an int, got str", (codes, scales), {"block_size": (1, "32")}),
        (TypeError, "columns must be an int, got str", (codes, scales), {"columns": "32"}),
        (ValueError, "must have 2 dimensions", (codes[0], scales), {}),
        (
            ValueError,
            r"in blocks of 1 x 16 must have shape \(8, 2\)",
            (codes, scales),
            {"block_size": (1, 16)},
        ),
        (ValueError, "do not hold 33 columns", (codes, scales), {"columns": 33}),
        (ValueError, "device of the codes, cpu", (codes, scales.to("meta")), {}),
        (
            ValueError,
            "global_scale must be a tensor of one",
            (codes, scales),
            {"global_scale": torch.ones(2)},
        ),
        (ValueError, "order must be a tensor of 32", (codes, scales), {"order": torch.arange(8)}),
        (ValueError, "every column once", (codes, scales), {"order": torch.zeros(32, dtype=torch.int32)}),
        (ValueError, "a code of float8_e4m3fn is NaN", (nan, scales), {"format": "fp8"}),
    ]:
        with pytest.raises(error, match=message):
            QuantizedWeight(*arguments, **{**given, **options})


def test_data_is_that_of_another_weight():
    weight = nn.Parameter(random_weight(70, 200, KINDS[0]), requires_grad=False)
    for q in (
        random_weight(3, 80, KINDS[0], order=True),
        random_weight(70, 200, KINDS[-1], dtype=torch.float16),
        nn.Parameter(random_weight(8, 40, KINDS[4]).mT, requires_grad=False),
    ):
        weight.data = q
        assert isinstance(weight, nn.Parameter) and same(weight, q) and same(saved(weight), q)
    with pytest.raises(NotImplementedError, match="cannot be copied into a QuantizedWeight"):
        weight.data = torch.randn(40, 8)
    assert same(weight, q)
