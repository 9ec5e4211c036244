"""Tests packed_tiles on the simulator: codes, scales and zero points, both widths of tiles, results that the
tensor memory accelerator cannot store, and that bits do not depend on other rows."""

import pytest
import torch
from fastgemm._introspect import take_last_gemm_kernel
from reference import needs_simulator, simulated_launches
from test_packed_on_the_simulator import multiply
from test_packed_wgmma_on_the_simulator import BF16, F16, F32, ROWS, assert_near, expected, kind_id, weight

pytestmark = needs_simulator

TILES = [
    (("int4", "bf16", (1, 128), "none"), BF16),
    (("int4", "f16", (1, 64), "subtracted"), F16),
    (("int4", "e4m3", (1, 16), "subtracted"), BF16),
    (("e2m1", "e8m0", (1, 32), "none"), BF16),
    (("e2m1", "e4m3", (1, 16), "none"), F16),
    (("int8", "f32", (1, ROWS), "none"), F16),
    (("int8", "bf16", (1, 256), "subtracted"), BF16),
    (("e4m3", "e4m3", (128, 128), "none"), BF16),
    (("e4m3", "f32", (1, ROWS), "none"), BF16),
]


@pytest.mark.parametrize("kind, dtype", TILES, ids=kind_id)
def test_packed_tiles(kind, dtype):
    """Tiles of 128 and 256 rows of x, aligned and unaligned rows of results, and a k that ends within a unit."""
    for multiprocessors, m, n in ((2, 33, 136), (1, 200, 129), (3, 65, 63)):
        w = weight(n, 300, *kind, whole=kind[0] == "e2m1")
        x = torch.randn(m, 301)[:, 1:].to(dtype)
        with simulated_launches(multiprocessors=multiprocessors):
            result = multiply(x, w, impl="packed_tiles")
        assert take_last_gemm_kernel() == "packed_tiles"
        assert_near(result, x, w, of_weights=kind[2][1] != ROWS)


@pytest.mark.parametrize("n", [136, 131])
def test_layers(n):
    """Bias, residual, activation, and float32 results, with several blocks for a tile."""
    w = weight(n, 1024, "int4", "bf16", (1, 128))
    x, bias, residual = (torch.randn(*shape).to(BF16) for shape in ((70, 1024), (n,), (70, n)))
    product = expected(x, w)
    with simulated_launches(multiprocessors=5):

        def near(reference, *terms, **options):
            result = multiply(x, w, *terms, impl="packed_tiles", **options)
            assert_near(result, x, w, of_weights=True, reference=reference)

        near(product + bias.double(), bias)
        near(product + residual.double(), None, residual)
        near((product + bias.double()).relu() + residual.double(), bias, residual, activation="relu")
        near(product, out_dtype=F32)
        near(product + bias.double(), bias.float(), out_dtype=F32)


def test_invariant():
    w = weight(130, 520, "int4", "bf16", (1, 128))
    x = torch.randn(140, 520).to(BF16)
    with simulated_launches(multiprocessors=1):
        every = multiply(x, w, invariant=True)
        for rows in ([3], [*range(5, 30)], [*range(139, 5, -1)]):
            assert torch.equal(multiply(x[rows], w, invariant=True), every[rows])
    assert take_last_gemm_kernel() == "invariant"


def test_codes_begin_at_a_multiple_of_16_bytes():
    w = weight(64, 128, "int4", "bf16", (1, 128))
    room = torch.empty(w.parts.codes.numel() + 1, dtype=torch.uint8)[1:].view(w.parts.codes.shape)
    moved = w._replace(parts=w.parts._replace(codes=room.copy_(w.parts.codes)))
    with simulated_launches(), pytest.raises(ValueError, match="multiple of 16 bytes"):
        multiply(torch.randn(3, 128), moved)
