"""Tests on the simulator how a product is divided if its planes need too much memory: into panels of C, parts of a
batch, and groups of segments of k."""

import contextlib
import ctypes
import functools
import math
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from fastgemm._explain.run import load_simulator
from pairwise import pairs
from reference import check_gemm, needs_simulator, random_tensor, result_dtype, simulated_launches
from test_simulator import LAYOUTS, operands

pytestmark = needs_simulator


@contextlib.contextmanager
def room_for_planes(count):
    """Products are divided if their planes take more than 2 GiB. Here the limit is ``count`` bytes."""
    library = ctypes.CDLL(load_simulator().path())
    room = ctypes.c_int64.in_dll(library, "fastgemm_most_plane_bytes")
    before, room.value = room.value, int(count)
    try:
        yield
    finally:
        room.value = before


@pytest.fixture(params=[90, 89], ids=["wgmma", "mma_sync"])
def divided(request):
    """On GPUs with wgmma, and on other GPUs since sm_80, whose blocks have at most 99 KB of shared memory."""
    return functools.partial(_divided, request.param)


def _divided(capability, count, a, b, c=None, *, in_place=False, **choice):
    """Checks a product with this limit for planes. Returns the result and the launched kernels."""

    def run():
        with simulated_launches(capability=capability, count=True) as launches:
            out = None if c is None or not in_place else c.clone()
            result = check_gemm(a, b, c if out is None else out, out=out, **choice)
        return result, [launch["kernel"] for launch in launches]

    with ThreadPoolExecutor(1) as other_thread, room_for_planes(count):  # simulations do not nest
        return other_thread.submit(run).result()


ALL_ROOM = 2**31
SCHEMES = {
    **dict.fromkeys(("bf16x6", "bf16x3", "fp16x3"), torch.float32),
    "int8x10": torch.int32,
    "int16x4": torch.int16,
}


def bytes_of_planes(kernel, k):
    """The bytes of the planes of 128 rows, a tile's part of A. The tile's part of B has the same size or 1.5
    times the size."""
    return 128 * -(-k // 32) * 32 * {"bf16x6": 6, "int16x4": 2}.get(kernel, 4)


@pytest.mark.parametrize(
    ("divided", "kernel", "in_place", "size"),
    pairs([90, 89], SCHEMES, [False, True], [(300, 420, 6), (420, 300, 4)]),
    indirect=["divided"],
)
def test_panels(divided, kernel, in_place, size):
    """Tests panels along m and n. No tile is shared, so each element is summed as in a single panel."""
    (m, n, panels), dtype, k = size, SCHEMES[kernel], 101
    a, b = operands(m, n, k, dtype, random.choice(LAYOUTS), slack=random.choice((0, 3)))
    if kernel == "bf16x6":
        a[2, 100], b[0, n - 1], a[m - 1, 3] = math.inf, math.nan, 1e-40
    c = random_tensor(m, n, dtype=result_dtype(dtype))
    run = {"alpha": 2, "beta": -3, "in_place": in_place, "kernel": kernel}
    whole, launches = divided(ALL_ROOM, a, b, c, **run)
    assert launches.count(kernel) == launches.count("cut") == 1
    parts, launches = divided(3.5 * bytes_of_planes(kernel, k), a, b, c, **run)
    assert launches.count(kernel) == launches.count("cut") >= panels
    assert (
        torch.equal(whole.nan_to_num(7), parts.nan_to_num(7))
        if dtype.is_floating_point
        else whole.equal(parts)
    )
    tile, launches = divided(1000, a[:20], b[:, :30], c[:20, :30], **run)  # the smallest panel is one tile
    assert kernel in launches and tile.shape == (20, 30)


@pytest.mark.parametrize(
    ("divided", "kernel", "shared"), pairs([90, 89], SCHEMES, [False, True]), indirect=["divided"]
)
def test_batches_in_pieces(divided, kernel, shared):
    dtype, k = SCHEMES[kernel], 101
    a, b = random_tensor(5, 130, k, dtype=dtype), random_tensor(5, k, 200, dtype=dtype)
    if shared:
        a = a[0]
    c = random_tensor(5, 130, 200, dtype=result_dtype(dtype))
    of_c = {} if shared else {"c": c, "beta": 2, "in_place": True}
    whole, launches = divided(ALL_ROOM, a, b, kernel=kernel, **of_c)
    assert launches.count(kernel) == 1
    parts, launches = divided(11 * bytes_of_planes(kernel, k), a, b, kernel=kernel, **of_c)
    assert launches.count(kernel) == launches.count("cut") == 3
    assert parts.equal(whole)
    few = {"a": a if shared else a[:2], "b": b[:2], "kernel": kernel}
    _, launches = divided(3.5 * bytes_of_planes(kernel, k), **few)
    assert launches.count(kernel) >= 2 * 2  # one matrix at a time, in panels


@pytest.mark.parametrize(
    ("divided", "segments", "groups", "out_dtype"),
    [(90, 2, 2, torch.int64), (90, 2, 1, torch.int32), (89, 1, 1, torch.int32)],
    indirect=["divided"],
    ids=str,
)
def test_exact_segments(divided, out_dtype, segments, groups):
    """Segments with the largest k whose middle sum fits 32 bits. All elements are extreme values."""
    k, least, most = segments * 32768, -(2**15), 2**15 - 1
    a, b = torch.full((3, k), least, dtype=torch.int16), torch.full((k, 5), 255 - 2**15, dtype=torch.int16)
    a[1], b[:, 2], b[:, 3] = 255, least, most
    c = random_tensor(3, 5, dtype=out_dtype)
    run = {"alpha": 2, "beta": -3, "in_place": True, "kernel": "int16x4", "out_dtype": out_dtype}
    room = ALL_ROOM if groups == 1 else 1.3 * bytes_of_planes("int16x4", k)
    _, launches = divided(room, a, b, c, **run)
    assert launches.count("int16x4") == segments and launches.count("cut") == groups


@pytest.mark.parametrize(
    ("divided", "kernel", "groups"),
    [(90, "bf16x6", 2), (89, "fp16x3", 3)],
    indirect=["divided"],
)
def test_segments_in_groups(divided, kernel, groups):
    """A long k has three segments. The planes of three, two or one of them exist at the same time."""
    k, in_place = 16500, groups == 3
    a, b, c = torch.randn(3, k), torch.randn(k, 5), torch.randn(3, 5)
    a[1, 16400] = math.inf
    if kernel == "bf16x6":
        a[0, 3] = math.nan
    run = {"alpha": 2, "beta": -3 if in_place else 0, "in_place": in_place, "kernel": kernel}
    parts, launches = divided(2.6 * bytes_of_planes(kernel, k / 3) * (4 - groups), a, b, c, **run)
    assert launches.count(kernel) == 3 and launches.count("cut") == groups
    if kernel == "bf16x6":  # fp16x3 scales a row by its largest magnitude in the group
        whole, launches = divided(ALL_ROOM, a, b, c, **run)
        assert launches.count(kernel) == 3 and launches.count("cut") == 1
        assert torch.equal(whole.nan_to_num(7), parts.nan_to_num(7))
