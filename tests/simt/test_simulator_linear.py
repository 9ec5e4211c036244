"""Epilogues on the simulator, with all its checks: in kernels that apply them, and by the pass after others."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from layers import ACTIVATIONS, check, layer
from reference import needs_simulator, row_id, simulated_launches

pytestmark = needs_simulator

HALF = [torch.float16, torch.bfloat16]


def launched(
    kernel: str, m: int, n: int, k: int, dtype: torch.dtype, *, capability: int = 90, **options
) -> list[str]:
    """The kernels that a layer launched, whose result was held to the bound."""
    residual = options.pop("residual", False)
    bias = options.pop("bias", True)
    activation = options.pop("activation", "gelu")
    x, w, b, r = layer(m, n, k, dtype, "cpu", bias=bias, residual=residual)
    with simulated_launches(capability=capability, count=False) as launches:
        check(x, w, b, r, activation, kernel=kernel, **options)
    return [launch["kernel"] for launch in launches]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", HALF, ids=row_id)
def test_wgmma_specialized(dtype, activation):
    found = launched("wgmma_specialized", 130, 264, 192, dtype, activation=activation, residual=True)
    assert found == ["wgmma_specialized"]


@pytest.mark.parametrize("m, n, k", [(1, 64, 64), (129, 300, 264), (300, 136, 1000), (64, 514, 130)])
def test_edges_of_tiles(m, n, k):
    """Narrower tiles, rows that no TMA stores, tiles that blocks share."""
    for residual in (False, True):
        found = launched("wgmma_specialized", m, n, k, torch.bfloat16, residual=residual)
        assert "finish" not in found


STRIPS = ["wgmma", "wgmma_ring", "wgmma_persistent", "wgmma_overlapped", "wgmma_specialized", "invariant"]


@pytest.mark.parametrize("kernel", STRIPS)
def test_bias_whose_pairs_are_copied(kernel):
    """Odd columns, a bias that begins between pairs of elements, one with a stride, and results of float32."""
    for n, step, begin in ((65, 1, 0), (64, 1, 1), (70, 2, 0), (161, 3, 1)):
        x, w, b, r = layer(70, n, 64, torch.bfloat16, "cpu", residual=True)
        wide = torch.zeros(n * step + begin, dtype=b.dtype)
        wide[begin::step] = b
        for residual, options in ((r, {}), (None, {"out_dtype": torch.float32})):
            with simulated_launches(capability=90, count=False) as launches:
                check(x, w, wide[begin::step], residual, "gelu", kernel=kernel, **options)
            assert "finish" not in [launch["kernel"] for launch in launches]


@pytest.mark.parametrize("kernel", [*STRIPS, "wmma", "mma_sync"])
def test_tf32(kernel):
    for m, n, k in ((130, 264, 96), (65, 33, 70), (4, 36, 100)):
        assert "finish" not in launched(kernel, m, n, k, torch.float32, precision="tf32", residual=True)


@pytest.mark.parametrize("capability", [90, 80])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_skinny(activation, capability):
    found = launched(
        "skinny", 8, 200, 1024, torch.bfloat16, activation=activation, residual=True, capability=capability
    )
    assert "finish" not in found


@pytest.mark.parametrize("capability", [90, 80])
@pytest.mark.parametrize("dtype", HALF, ids=row_id)
@pytest.mark.parametrize("m, n, k", [(3, 64, 2048), (33, 130, 161), (200, 7, 512), (60, 129, 64)])
def test_shapes_of_skinny(m, n, k, dtype, capability):
    for options in ({}, {"out_dtype": torch.float32}, {"bias": False}):
        assert "finish" not in launched("skinny", m, n, k, dtype, capability=capability, **options)


@pytest.mark.parametrize("capability", [90, 80])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kernel", ["mma_sync", "small_tile"])
def test_tiles_that_pass_through_shared_memory(kernel, activation, capability):
    for m, n, k, options in [
        (130, 264, 192, {"residual": True}),
        (65, 33, 70, {"residual": True}),
        (40, 64, 128, {"out_dtype": torch.float32}),
    ]:
        found = launched(
            kernel, m, n, k, torch.bfloat16, activation=activation, capability=capability, **options
        )
        assert "finish" not in found


def test_small_tiles_whose_k_is_split_leave_it_to_the_launch_that_adds():
    found = launched("small_tile", 16, 40, 4096, torch.bfloat16)
    assert "add_splits" in found[-1]


@pytest.mark.parametrize("kernel", ["naive", "tiled", "cp_async", "wmma", "dmma"])
def test_the_pass_of_float64(kernel):
    assert launched(kernel, 40, 70, 96, torch.float64, residual=True)[-1] == "finish"


@pytest.mark.parametrize("kernel", [*STRIPS, "wmma", "mma_sync", "skinny"])
@pytest.mark.parametrize("dtype", HALF, ids=row_id)
def test_the_pass_where_operands_do_not_lie_along_k(kernel, dtype):
    x, w, b, r = layer(40, 72, 96, dtype, "cpu", residual=True)
    with simulated_launches(capability=90, count=False) as launches:
        check(x.mT.contiguous().mT, w, b, r, "gelu", kernel=kernel)
    assert launches[-1]["kernel"] == "finish"


def test_the_pass_where_an_element_may_be_computed_again_after_its_store():
    for m in (3, 100):
        assert launched("invariant", m, 70, 96, torch.float32, residual=True)[-1] == "finish"


def test_every_level_and_no_terms():
    for level in range(1, 7):
        x, w, b, r = layer(33, 40, 64, torch.bfloat16, "cpu", residual=True)
        with simulated_launches(count=False):
            check(x, w, b, r, "silu", level=level)
    x, w, b, r = layer(33, 40, 0, torch.float32, "cpu", residual=True)
    with simulated_launches(count=False):
        check(x, w, b, r, "silu")


def test_the_choice_prefers_kernels_that_apply_the_epilogue():
    """A pass costs a launch, and the product once more through memory."""
    x, w, b, _ = layer(8, 512, 1024, torch.bfloat16, "cpu")
    with simulated_launches(count=False) as launches:
        check(x, w, b, None, "gelu")
    assert "finish" not in [launch["kernel"] for launch in launches]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [*HALF, torch.float32], ids=row_id)
def test_rows_of_invariant_layers_have_the_same_bits(dtype, activation):
    """Few rows have a kernel of their own, which applies bias and activation as the general one does."""
    x, w, b, r = layer(1200, 200, 160, dtype, "cpu", residual=True)
    precision = "tf32" if dtype == torch.float32 else None
    options = {"activation": activation, "kernel": "invariant", "precision": precision}
    for residual in (None, r):
        kernels, results = [], []
        parts = (slice(None), slice(5, 6), slice(3, 11), slice(64, 128))
        for part in parts:
            added = None if residual is None else residual[part]
            with simulated_launches(capability=90, count=False) as launches:
                results.append(fastgemm.linear(x[part], w, b, residual=added, **options))
            kernels.append(launches[-1]["kernel"])
        assert all(y.equal(results[0][part]) for y, part in zip(results, parts, strict=True))
        if precision is None:  # tf32 has it without a matrix that is added, as a bias alone is
            assert kernels == ["wgmma_specialized", "decode", "decode", "decode"]
