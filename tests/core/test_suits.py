"""Which of its kernels level 6 picks, without a GPU: the simulator has the same rows."""

from __future__ import annotations

import math

import fastgemm
import pytest
import torch
from fastgemm import tuning
from reference import assert_right, expected_gemm, needs_simulator
from static_tables.generate import is_own
from test_static_tables import H200

pytestmark = needs_simulator

# As the static tables do: a kernel that was given up is at least so many times as slow as the library, or where
# there is none as the fastest one.
GIVEN_UP = 3


def picked(point: dict) -> str:
    """The kernel of level 6 for a measured point."""
    dtype = point["dtype"]
    types = dtype, {"int8": "int32"}.get(dtype, dtype), point.get("precision", "ieee")
    transposed = point.get("a_transposed", False), point.get("b_transposed", False)
    sizes = (point[name] for name in ("batch", "m", "n", "k"))
    return tuning.chosen_kernel(("gemm", "the simulator", *types, *transposed, False, 0, *sizes), level=6)


def ran(gpu: str, dtype: torch.dtype = torch.float32, **choice: object) -> str:
    """The kernel that a product of 100 x 100 x 100 runs on a GPU."""
    (launch,) = fastgemm.explain("gemm", shape=(100, 100, 100), dtype=dtype, gpu=gpu, **choice).launches
    return launch.kernel


@pytest.mark.parametrize(
    ("dtype", "precision", "allowed"),
    [
        ("float64", None, 1.03),
        ("float32", None, 1.03),
        ("float32", "fp16x3", 1.03),
        ("float32", "bf16x3", 1.03),
        ("float16", None, 1.035),
        ("bfloat16", None, 1.035),
        ("int8", None, 1.045),
        ("int32", None, 1.1),
    ],
)
def test_level_6_picks_what_was_measured_to_be_fast(dtype, precision, allowed):
    """On average over all measured points, beside the fastest own kernel of any level."""
    slower, left_out = [], 0
    with fastgemm.simulate("H200"):
        for point in H200["points"]:
            of_series = (point["op"], point["dtype"], point.get("precision")) == ("gemm", dtype, precision)
            kernel = picked(point) if of_series else None
            seconds = point["seconds"]
            # Some were measured before there was this kernel.
            if kernel is None or (kernel == "direct" and "direct" not in seconds):
                left_out += kernel is not None
                continue
            own = [spent for name, spent in seconds.items() if is_own(name)]
            library = min((spent for name, spent in seconds.items() if not is_own(name)), default=min(own))
            slower.append(seconds.get(kernel, max(*own, GIVEN_UP * library)) / min(own))
    assert len(slower) > max(300, 20 * left_out)
    assert math.exp(sum(map(math.log, slower)) / len(slower)) < allowed


@pytest.mark.parametrize("gpu", ["L40S", "RTX 4090"])
def test_float32_is_not_computed_in_slow_float64(gpu):
    assert ran("A100", level=6) == ran("H200", level=6) == "direct"
    assert ran(gpu, level=6) != "direct"
    assert ran(gpu, kernel="direct") == "direct"
    assert ran(gpu, torch.float64, level=6) == "direct", "float64 has nothing else"
    a, b = torch.randn(100, 100), torch.randn(100, 100)
    with fastgemm.simulate(gpu):
        assert_right(fastgemm.matmul(a, b), expected_gemm(a, b), gpu)


@pytest.mark.parametrize("gpu", ["H200", "RTX 4090"])
def test_short_sums_of_float32(gpu):
    """bf16x6 rejects them; products of less than IEEE precision go where they went."""

    def level_6(precision: str, batch: int, m: int, n: int, k: int) -> str:
        key = (
            "gemm",
            "the simulator",
            "float32",
            "float32",
            precision,
            False,
            False,
            False,
            0,
            batch,
            m,
            n,
            k,
        )
        with fastgemm.simulate(gpu):
            return tuning.chosen_kernel(key, level=6)

    assert level_6("ieee", 1, 4096, 4096, 64) == ("direct" if gpu == "H200" else "batched")
    assert level_6("ieee", 70000, 5, 7, 9) == "batched"
    assert level_6("tf32", 1, 4096, 4096, 64) == "wgmma_specialized"
    assert level_6("bf16x3", 1, 4096, 4096, 64) == "bf16x3"
