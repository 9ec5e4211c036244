"""Compares the counters of every CUDA row on the simulator with counter_table.py.

tools/ncu_check.py compares the simulator's counters with the hardware's.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise

import fastgemm
import pytest
import torch
from counter_model import F32, Access, Row
from counter_table import TABLE
from counter_table_gemm import GEMM
from fastgemm._explain.counts import Launch, Site
from reference import by_name, check_gemm, needs_simulator, simulated_launches

pytestmark = needs_simulator

LIBRARY_LEVEL = 7
CASES = [
    pytest.param(op, name, dtype, id=f"{op}-{name}-{str(dtype).removeprefix('torch.')}")
    for (op, name), row in TABLE.items()
    for dtype in row.dtypes
]


def own_rows() -> set[tuple[str, str]]:
    rows = fastgemm.kernels(device="cuda")
    strategies = ("symmetric", "invariant", "dequantized")  # these launch the kernels of other rows
    own = [
        row for row in rows if row.level != LIBRARY_LEVEL and "none" in row.groups and not row.needs_scales
    ]
    return {(row.op, row.name) for row in own if row.name not in strategies}


@cache
def explain(op: str, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Launch:
    """The launch of the kernel itself among those of its helpers."""
    choice = {of: x for of, x in by_name(name, dtype).items() if of != "out_dtype"}
    report = fastgemm.explain(op, shape=shape, dtype=dtype, **choice)
    assert report.error is None and not report.problems
    own = [launch for launch in report.launches if launch.kernel == name]
    launched = [launch.kernel for launch in report.launches]
    assert len(own) == 1, (
        f"one of the launches {launched} must have its row's name, {name}: launch(name, ...)"
    )
    return own[0]


def units(access: Access, shape: tuple[int, ...]) -> Fraction:
    """The unit in which ``Access.requests`` counts."""
    if len(shape) == 2 or access.what == "global store out":
        return Fraction(shape[0] * shape[1], 32)
    return Fraction(shape[0] * shape[1] * shape[2], 32)


def counted(sites: list[Site]) -> str:
    """A line for each site: its place in the source, and its counters."""

    def line(site: Site) -> str:
        of = {"sectors": site.sectors_per_request, "times the fewest wavefronts": site.conflict}
        more = "".join(f", {value:.4g} {what}" for what, value in of.items() if value is not None)
        return f"  {site.file}:{site.line}: {site.what}: {site.requests} requests{more}"

    return "\n".join(map(line, sites))


def faults(access: Access, sites: list[Site], row: Row) -> Iterator[str]:
    """The differences between the expected and the counted accesses."""
    requests = sum(site.requests for site in sites)
    if access.bytes is not None and (came := {site.bytes for site in sites}) != {access.bytes}:
        yield f"{access.bytes} bytes a lane were expected, and {sorted(came)} came"
    if access.requests is not None:
        wanted = float(access.requests * units(access, row.shape))
        if requests != pytest.approx(wanted, rel=row.tolerance, abs=0):
            yield f"{wanted:.6g} requests were expected, and {requests} came"
    if (
        access.sectors is not None
        and (came := sum(site.sectors for site in sites)) != access.sectors * requests
    ):
        yield f"{access.sectors:.4g} sectors a request were expected, and {came / requests:.4g} came"
    if access.conflict is not None:
        came, ideal = (sum(getattr(x, of) for x in sites) for of in ("wavefronts", "ideal_wavefronts"))
        if came != access.conflict * ideal:
            times = f"{access.conflict:.4g} times the fewest wavefronts (1: no bank conflicts)"
            yield f"{times} were expected, and {came / ideal:.4g} came"


def check(access: Access, launch: Launch, row: Row) -> None:
    sites = [site for site in launch.sites if access.matches(site)]
    name = f"{access.what} {access.code}".strip()
    assert sites, f"there is no {name}; what there is:\n{counted(launch.sites)}"
    wrong = "; ".join(faults(access, sites, row))
    assert not wrong, f"{name}: {wrong}\n{counted(sites)}"


def test_every_own_row_says_what_it_is_for():
    new, gone = own_rows() - TABLE.keys(), TABLE.keys() - own_rows()
    assert not new, (
        f"counter_table.py needs entries of {sorted(new)}; make sim KERNEL=... shows their counters"
    )
    assert not gone, f"counter_table.py has entries of {sorted(gone)}, which are no rows of the kernel table"


@pytest.mark.parametrize("op, name, dtype", CASES)
def test_counters(op, name, dtype):
    row = TABLE[op, name]
    launch = explain(op, name, row.shape, dtype)
    accesses = row.accesses(dtype.itemsize)
    for access in accesses:
        check(access, launch, row)
    if row.all_accesses:
        others = [site for site in launch.sites if not any(access.matches(site) for access in accesses)]
        assert not others, f"accesses that the table does not name:\n{counted(others)}"
    assert row.in_flight(launch.bytes_in_flight), f"{launch.bytes_in_flight} bytes in flight in a block"


def test_what_differs_is_named_with_its_source_line():
    row = GEMM["naive"]
    launch = explain("gemm", "naive_uncoalesced", row.shape, F32)
    loads_a, loads_b, stores = row.accesses(F32.itemsize)
    with pytest.raises(
        AssertionError, match="global load a: 1 sectors a request were expected, and 32 came"
    ) as a:
        check(loads_a, launch, row)
    assert re.search(r"level1_naive\.cu:\d+: load a, 4 B: \d+ requests, 32 sectors", str(a.value))
    with pytest.raises(AssertionError, match=r"there is no shared store; what there is:\s+csrc/cuda"):
        check(Access("shared store"), launch, row)
    for wrong, said in (
        (replace(loads_b, bytes=8), r"8 bytes a lane were expected, and \[4\] came"),
        (replace(stores, requests=2), r"\d+ requests were expected, and \d+ came"),
    ):
        with pytest.raises(AssertionError, match=said):
            check(wrong, launch, row)
    row = GEMM["thread_tile"]
    launch = explain("gemm", "thread_tile_unpadded", row.shape, F32)
    with pytest.raises(AssertionError, match=r"1 times the fewest wavefronts .* were expected, and 4 came"):
        for access in row.accesses(F32.itemsize):
            check(access, launch, row)


# --- from rung to rung


def per_multiply_add(name: str) -> tuple[float, float]:
    """Requests to global and to shared memory for each 32 multiply-adds, stores left out."""
    row = GEMM[name]
    launch = explain("gemm", name, row.shape, F32)
    m, n, k = row.shape

    def reads(space: str) -> float:
        kinds = ("load", "cp.async", "tma load")
        return (
            sum(s.requests for s in launch.sites if s.space == space and s.kind in kinds) * 32 / (m * n * k)
        )

    return reads("global"), reads("shared")


def test_each_rung_of_gemm_reads_less():
    rungs = ("naive", "tiled", "thread_tile", "vectorized", "warp_specialized")
    found = [per_multiply_add(name) for name in rungs]
    in_global, in_shared = zip(*found, strict=True)
    assert in_global[0] == 2 and in_shared[0] == 0
    assert in_global[1] == in_global[0] / 32, "tiles of 32 x 32"
    for lower, upper in pairwise(found[1:]):
        assert upper[1] < lower[1], "shared reads"
    for lower, upper in pairwise(found[:4]):
        assert upper[0] < lower[0], "global reads"


def loaded_by_thread(op: str, name: str) -> float:
    """The bytes that a thread requests before it uses the first."""
    row = TABLE[op, name]
    launch = explain(op, name, row.shape, F32)
    loads = [site for site in launch.sites if site.space == "global" and site.kind in ("load", "cp.async")]
    return sum(site.lanes * site.bytes for site in loads) / (launch.blocks * launch.threads)


def runs(op: str, name: str) -> int:
    """The number of contiguous parts in a warp's request for A."""
    row = TABLE[op, name]
    launch = explain(op, name, row.shape, F32)
    (site,) = (site for site in launch.sites if site.what.startswith("load a"))
    starts = sorted(offset for offset in site.example if offset is not None)
    return 1 + sum(right != left + site.bytes for left, right in pairwise(starts))


def test_each_rung_of_packed_weights_asks_less():
    names = ("packed_naive", "packed_tiled", "packed_thread_tile", "packed_vectorized", "packed_cp_async")
    found = []
    for name in (*names, "packed_mma", "packed_wgmma"):
        sites = explain("gemm", name, GEMM[name].shape, torch.bfloat16).sites
        of_weight = sum(site.requests for site in sites if site.buffer == "codes")
        found.append((of_weight, sum(site.wavefronts for site in sites if site.space == "shared")))
    in_global, in_shared = zip(*found, strict=True)
    assert in_global[1] == in_global[0] / 32, "decoded once for 32 rows"
    for lower, upper in pairwise(in_global[:5]):
        assert upper < lower, "requests for codes and scales"
    for lower, upper in pairwise(in_shared[1:]):
        assert upper < lower, "wavefronts of shared memory"


def test_higher_rungs_have_more_bytes_in_flight():
    assert loaded_by_thread("transpose", "naive") == 4
    assert loaded_by_thread("transpose", "vectorized") == loaded_by_thread("transpose", "saturating") == 64
    assert (runs("transpose", "vectorized"), runs("transpose", "saturating")) == (4, 2), (
        "rows of 128 and of 256 bytes"
    )
    assert loaded_by_thread("add", "naive") == 8
    assert loaded_by_thread("add", "vectorized") == 32
    assert loaded_by_thread("add", "saturating") == 64


def test_odd_rows_are_read_by_lines():
    """The purpose of transpose's level 6: rows at any address are still read in aligned units of 16
    bytes."""
    rows, cols = 512, 513
    below = explain("transpose", "saturating", (rows, cols), F32)
    launch = explain("transpose", "pipelined", (rows, cols), F32)
    elements = sum(
        s.requests for s in below.sites if s.space == "global" and s.kind == "load" and s.bytes == 4
    )
    copies = sum(
        s.requests for s in launch.sites if s.space == "global" and s.kind == "cp.async" and s.bytes == 16
    )
    assert elements >= rows * cols / 32, "level 5 reads them one by one"
    assert copies < elements / 2


@pytest.mark.parametrize("dtype", [F32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize(("shape", "layout"), [((64, 1, 512), "NN"), ((1, 64, 512), "NT")], ids=str)
def test_narrow_reads_vectors_beside_a_single_column(shape, layout, dtype):
    """The stride of a single column has no effect, so it must not prevent 16-byte accesses along k."""
    trans_a, trans_b = (mark == "T" for mark in layout)
    report = fastgemm.explain(
        "gemm", kernel="narrow", shape=shape, dtype=dtype, trans_a=trans_a, trans_b=trans_b
    )
    (launch,) = report.launches
    read = {(s.buffer, s.bytes) for s in launch.sites if s.space == "global" and s.kind == "load"}
    wanted = min(16, 8 * dtype.itemsize)
    assert read == {("a", wanted), ("b", wanted)}


@pytest.mark.parametrize(
    ("slack", "n", "columns"),
    [(0, 1920, 128), (1, 1920, 128), (0, 1919, 256)],
    ids=["in place", "A copied", "C by warps"],
)
def test_columns_of_a_tile_depend_on_how_c_is_stored(slack, n, columns):
    """On three multiprocessors there are five waves of narrow tiles, or three of wide ones."""
    a, b = torch.randn(128, 64 + slack).bfloat16()[:, :64], torch.randn(n, 64).bfloat16().t()
    with simulated_launches(count=True) as launches:
        check_gemm(a, b, kernel="wgmma_specialized")
    assert [launch["kernel"] for launch in launches] == ["row_copies"] * slack + ["wgmma_specialized"]
    assert f"Shape<{columns}>" in launches[-1]["function"]


def test_narrow_stores_a_column_as_it_does_a_row():
    """This includes blocks that share k: the workspace does not pad rows of one element to 16 bytes."""

    def launched(a, b):
        with simulated_launches(multiprocessors=132, count=True) as launches:
            check_gemm(a, b, kernel="narrow")
        return [(x["kernel"], x["grid"], [(y["name"], y["bytes"]) for y in x["buffers"]]) for x in launches]

    a, b = torch.randn(12, 60_000), torch.randn(60_000, 1)
    column, row = launched(a, b), launched(b.t(), a.t())
    assert [kernel for kernel, *_ in column] == ["narrow", "add_splits"]
    for of_column, of_row in zip(column, row, strict=True):
        assert of_column[:2] == of_row[:2]
        assert sorted(size for _, size in of_column[2]) == sorted(size for _, size in of_row[2])
