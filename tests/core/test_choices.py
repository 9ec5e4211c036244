"""Compares the chosen kernels with measurements. Predictions need only the description of a GPU, but no GPU."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from check_choices import held_out, qualities
from fastgemm import _introspect, tuning
from fastgemm.bench.timing import geometric_mean
from fit_costs import DATA, H200, HALF, SHARED
from reference import assert_right, expected_gemm, needs_simulator

pytestmark = needs_simulator
# Limits of chosen / best time, on average over the measured points of a series: for level 6 among its own rows,
# and for level=None among all rows.
LEVEL_6, FREE = 1.025, 1.04


def ran(gpu: str, dtype: torch.dtype = torch.float32, **choice: object) -> str:
    """The kernel that a product of 100 x 100 x 100 runs on a GPU."""
    (launch,) = fastgemm.explain("gemm", shape=(100, 100, 100), dtype=dtype, gpu=gpu, **choice).launches
    return launch.kernel


@pytest.mark.parametrize(("file", "wgmma"), [("h200.json", True), ("h200_portable.json", False)])
def test_what_is_picked_was_measured_to_be_fast(file, wgmma):
    found = qualities(DATA / file, {**H200, "wgmma": wgmma})
    assert found.keys() == {"float64", "float32", "tf32", "int8", "int32"} | (set() if wgmma else set(HALF))
    for series, quality in found.items():
        for ratios, allowed in ((quality.level6, LEVEL_6), (quality.free, FREE)):
            assert len(ratios) > 250
            assert geometric_mean([ratio for ratio, _ in ratios]) <= allowed, series


def test_products_of_16_bits_are_chosen_well_from_other_products():
    found = held_out()
    assert len(found.free) > 1000
    assert geometric_mean([ratio for ratio, _ in found.level6]) <= LEVEL_6
    assert geometric_mean([ratio for ratio, _ in found.free]) <= FREE


def test_types_share_constants_on_both_paths():
    def costs(kernel: str, types: str) -> set[tuple[float, ...]]:
        names = types.replace("half", " ".join(HALF)).split()
        gpus = [{**H200, "wgmma": wgmma} for wgmma in (True, False)]
        return {tuple(_introspect.costs(kernel, name, gpu)) for name in names for gpu in gpus}

    for kernel, groups in SHARED.items():
        found = [costs(kernel, types) for types in groups]
        assert all(len(same) == 1 for same in found), kernel
        assert len(set.union(*found)) == len(groups), kernel
    assert len(costs("bf16x6", "float32")) == 2  # a path has its own


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "kernel"),
    [
        ("bfloat16", 1, 28672, 8192, "skinny"),
        ("float32", 1, 14336, 4096, "narrow"),
        ("float32", 4, 14336, 4096, "narrow"),
        ("float32", 8, 14336, 4096, "bf16x6_fused"),
    ],
)
def test_an_h100_reads_weights_by_the_fastest_kernel(dtype, m, n, k, kernel):
    """No own row is predicted to reach more bandwidth than was measured (of 3.35 TB/s)."""
    h100 = {"capability": 90, "multiprocessors": 132, "number": 0}
    found = _introspect.predictions((dtype, "ieee", 1, m, n, k, False, True), h100)
    assert next(name for name, _ in found if name != "library") == kernel


@pytest.mark.parametrize("gpu", ["L40S", "RTX 4090"])
def test_float32_is_not_computed_in_slow_float64(gpu):
    assert ran(gpu, level=6) != "direct"
    assert ran(gpu, kernel="direct") == "direct"
    a, b = torch.randn(100, 100), torch.randn(100, 100)
    with fastgemm.simulate(gpu):
        assert_right(fastgemm.matmul(a, b, level=6), expected_gemm(a, b), gpu)


def level_6(precision: str, batch: int, m: int, n: int, k: int) -> str:
    layout = (False, False, False, 0)
    key = ("gemm", "the simulator", "float32", "float32", precision, *layout, batch, m, n, k)
    return tuning.chosen_kernel(key, level=6)


@pytest.mark.parametrize("gpu", ["H200", "RTX 4090"])
def test_short_sums_of_float32(gpu):
    """bf16x6 rejects short sums. Products of lower precision than IEEE use the kernel of their planes."""
    exact = {"direct", "batched", "narrow", "bf16x6_fused"}
    with fastgemm.simulate("H200"):
        assert level_6("ieee", 1, 2048, 2048, 2048) == "bf16x6"
        assert level_6("ieee", 1, 8192, 8192, 8192) == "crt"
        assert level_6("tf32", 1, 4096, 4096, 64) == "wgmma_specialized"
    with fastgemm.simulate(gpu):
        assert level_6("ieee", 1, 4096, 4096, 64) in exact
        assert level_6("ieee", 70000, 5, 7, 9) in exact
        assert level_6("bf16x3", 1, 4096, 4096, 4096) == "bf16x3"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_predictions_need_a_gpu():
    with pytest.raises(ValueError, match="no GPU here"):
        _introspect.predictions(("bfloat16", "ieee", 1, 64, 64, 64, False, False))
