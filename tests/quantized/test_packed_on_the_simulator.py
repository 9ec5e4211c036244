"""Tests the rungs of packed weights and packed_mma on the simulator, with all its checks: codes, scales and zero
points of all kinds, every tile, and the ways in which blocks share the work."""

import math
from itertools import cycle, product

import pytest
import torch
from fastgemm._introspect import take_last_gemm_kernel
from fastgemm._quantized.formats import CODES, SCALES, Packing, Parts
from fastgemm._quantized.layout import dequantize, to_units
from reference import needs_simulator, simulated_launches
from test_packed_wgmma_on_the_simulator import (
    BF16,
    F16,
    F32,
    KINDS,
    PAIRED,
    ROWS,
    Weight,
    assert_near,
    expected,
    kind_id,
    weight,
)
from torch import Tensor

pytestmark = needs_simulator

RUNGS = ["packed_naive", "packed_tiled", "packed_thread_tile", "packed_vectorized", "packed_cp_async"]


def multiply(
    x: Tensor, w: Weight, bias: Tensor | None = None, residual: Tensor | None = None, **options: object
):
    p = w.packing
    return torch.ops.fastgemm.quantized_linear(
        *(x, *w.parts, w.by, bias, residual),
        **{"n": p.n, "code": p.code, "scale": p.scale, "zero": p.zero, "units": True},
        **{"group_n": p.group_n, "group_k": p.group_k, **options},
    )


# Rungs of ordinary multiply-adds do not round weights. Each rung runs with all kinds and all types, but not with
# all pairs of them.
@pytest.mark.parametrize("level", range(1, 6), ids=RUNGS)
def test_rungs(level):
    with simulated_launches():
        for kind, dtype in zip(KINDS, cycle([F32, BF16, F16]), strict=False):
            w = weight(70, 200, *kind, whole=kind[0] == "e2m1")
            w = w._replace(exact=True)
            x = torch.randn(9, 201)[:, 1:].to(dtype)
            result = multiply(x, w, level=level)
            assert take_last_gemm_kernel() == RUNGS[level - 1]
            assert_near(result, x, w)


@pytest.mark.parametrize("level", range(1, 6), ids=RUNGS)
def test_layers_of_rungs(level):
    """Rows and columns end within a tile. Bias, residual, activation, and a float32 result."""
    w = weight(130, 72, "int4", "bf16", (1, 32), "subtracted")
    x, bias, residual = (torch.randn(*shape).to(F16) for shape in ((67, 72), (130,), (67, 130)))
    product = expected(x, w)
    with simulated_launches():
        assert_near(multiply(x, w, bias, level=level), x, w, reference=product + bias.double())
        relu = (product + bias.double()).relu() + residual.double()
        assert_near(multiply(x, w, bias, residual, activation="relu", level=level), x, w, reference=relu)
        assert_near(multiply(x, w, level=level, out_dtype=F32), x, w)


@pytest.mark.parametrize(
    "kind, dtype", list(zip(KINDS + PAIRED, cycle([BF16, F16]), strict=False)), ids=kind_id
)
def test_packed_mma(kind, dtype):
    """Each code in each tile, of 16, 32 and 64 rows of x, and in two tiles."""
    code, scale, group, zero = kind
    if code == "nf4" and group[1] < 64:
        return
    w = weight(130, 392, *kind, whole=code == "e2m1" and (dtype == BF16 or scale == "e4m3"))
    with simulated_launches(multiprocessors=2, capability=80):
        for m in (5, 20, 40, 66):
            x = torch.randn(m, 392).to(dtype)
            result = multiply(x, w, impl="packed_mma")
            assert take_last_gemm_kernel() == "packed_mma"
            on_fragments = zero == "added" or (group[1] != ROWS and (m > 16 or group[1] < 128))
            assert_near(result, x, w, of_weights=on_fragments)


def plain_weight(code: str, scale: str, scales: Tensor, group_k: int, by: Tensor | None = None) -> Weight:
    """A weight whose rows have all codes in turn, with the scales (rows, groups)."""
    n, k = scales.shape[0], scales.shape[1] * group_k
    packing = Packing(n, k, code, scale, "none", 1, group_k)
    codes = torch.arange(256, dtype=torch.uint8).repeat(n, 1).repeat(1, k // 256 + 1)
    codes = codes[:, : packing.code_shape[1]].contiguous()
    if code == "e4m3":
        codes[codes & 127 == 127] = 0  # NaN
    parts = Parts(codes.view(CODES[code].dtype), scales.to(SCALES[scale]), None)
    numbers = dequantize(parts, packing, by, None, F32).double()
    return Weight(packing._replace(units=True), to_units(parts, packing), by, numbers, True)


@pytest.mark.parametrize("code", ["int4", "nf4", "e2m1", "int8", "e4m3"])
def test_numbers_of_a_code(code):
    """With an identity matrix as x, the results are the numbers of the weight, rounded once to the type of x."""
    w = plain_weight(code, "f32", torch.ones(64, 1), 256)
    x = torch.eye(256)
    for impl, dtype in product(("packed_mma", "packed_wgmma", "packed_tiles"), (BF16, F16)):
        if impl == "packed_tiles" and code == "nf4":
            continue
        with simulated_launches():
            result = multiply(x.to(dtype), w, impl=impl)
        assert torch.equal(result.T, w.numbers.to(dtype)), (impl, dtype)


@pytest.mark.parametrize("impl", [*RUNGS, "packed_mma", "packed_wgmma"])
def test_infinite_scales_stay_in_their_rows(impl):
    """A row of the weight with an infinite scale gives infinity or NaN, and no other row changes."""
    scales = torch.ones(70, 2)
    scales[3, 0] = math.inf
    w = plain_weight("int4", "bf16", scales, 128)
    w = w._replace(numbers=w.numbers.nan_to_num(nan=math.inf))
    x = torch.zeros(4, 256, dtype=BF16)
    x[:, 2], x[:, 130] = 1, 1  # code 2 of the first group is -6
    with simulated_launches():
        result = multiply(x, w, impl=impl)
    usual = torch.arange(70) != 3
    assert torch.equal(result[:, usual].double(), expected(x, w)[:, usual])
    assert not result[:, 3].isfinite().any()


@pytest.mark.parametrize("impl", ["packed_mma", "packed_wgmma", "packed_tiles"])
def test_scales_that_leave_the_range_of_half(impl):
    """With their global scale they are in the range again. Kernels that would multiply by the global scale only at
    the end refuse them."""
    w = plain_weight("int4", "f32", torch.full((64, 2), 1e6), 128, torch.tensor(1e-6))
    x = torch.ones(20, 256)
    with simulated_launches():
        with pytest.raises(RuntimeError, match=r"the range of fp16|not exact"):
            multiply(x.to(F16), w, impl=impl)
        if impl != "packed_tiles":
            assert_near(multiply(x.to(BF16), w, impl=impl), x.to(BF16), w, of_weights=True)


# m, n, k, multiprocessors: one row and one column; fewer stages than multiprocessors; several tiles for a block;
# tiles that many blocks share; blocks that have whole tiles and parts of tiles, and ends within a tile.
SHAPES = [
    (1, 1, 1, 3),
    (3, 577, 17, 2),
    (16, 200, 1100, 3),
    (17, 330, 528, 1),
    (40, 270, 390, 7),
    (130, 300, 260, 5),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_shapes_of_packed_mma(shape):
    m, n, k, multiprocessors = shape
    w = weight(n, k, "int4", "bf16", (1, 32), "subtracted")
    everywhere = torch.randn(m + 1, k + 3).to(BF16)
    bias = torch.randn(n).to(BF16)
    with simulated_launches(multiprocessors=multiprocessors, capability=80):
        for x in (everywhere[:m, :k], everywhere[1:, 3:], everywhere[:1, :k].expand(m, k)):
            first, again = (multiply(x, w, bias, impl="packed_mma") for _ in range(2))
            assert torch.equal(first, again)
            assert_near(first, x, w, of_weights=True, reference=expected(x, w) + bias.double())


def test_what_packed_mma_refuses():
    x = torch.randn(3, 256).to(BF16)
    refused = {
        "subtracts zeros from integer codes only": ("e2m1", "f32", (1, 64), "subtracted"),
        "rounded twice": ("nf4", "f32", (1, 64), "added"),
        "less than 64 columns": ("nf4", "f32", (1, 32), "none"),
        "adds no zeros": ("e2m1", "f32", (1, 64), "added"),
        "more than 1024 bytes": ("int4", "f32", (1, 16), "none"),
    }
    with simulated_launches(capability=80):
        for why, kind in refused.items():
            with pytest.raises(RuntimeError, match=why):
                multiply(x, weight(64, 256, *kind), impl="packed_mma")
        with pytest.raises(RuntimeError, match="packed weights only"):
            torch.ops.fastgemm.linear(x, torch.randn(64, 256).to(BF16), impl="packed_mma")


def test_infinities_and_nan():
    """They stay in their rows of x and of the weight, also with zero points."""
    w = weight(70, 300, "int4", "bf16", (1, 128), "added")
    x = torch.randn(4, 300).to(BF16)
    x[1, 5], x[2, 299] = torch.inf, torch.nan
    with simulated_launches(multiprocessors=2, capability=80):
        result = multiply(x, w, impl="packed_mma")
    assert not result[1].isfinite().any() and result[2].isnan().all()
    assert torch.equal(result[1].isnan(), (w.numbers[:, 5] == 0))
    assert_near(result[::3], x[::3], w, of_weights=True)
