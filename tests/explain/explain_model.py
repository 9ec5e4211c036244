"""Hand-made launches in the simulator's form: the addresses of one warp, counted independently here."""

from collections.abc import Callable, Iterable
from typing import Any

import fastgemm
import pytest
from fastgemm._explain import run, symbols
from fastgemm._explain.symbols import Frame
from pages import ROOT

NAIVE, TILE = "csrc/cuda/gemm/ladder/level1_naive.cu", "csrc/cuda/transpose/shared_tile.cuh"


def sectors(offsets: list[int], width: int) -> int:
    return len({(offset + i) // 32 for offset in offsets for i in range(width)})


def wavefronts(offsets: list[int], width: int) -> tuple[int, int]:
    """Passes over the banks, and the fewest. A pass serves 32 lanes of up to 4 bytes, 16 of 8 or 8 of 16."""
    together = 32 if width <= 4 else 16 if width == 8 else 8
    if len(set(offsets)) == 1:
        return 1, 1
    passes = groups = 0
    for first in range(0, len(offsets), together):
        words = {
            (o + i) // 4 for o in offsets[first : first + together] for i in range(0, width, min(4, width))
        }
        passes += max(sum(word % 32 == bank for word in words) for bank in range(32))
        groups += 1
    return passes, groups


def site(
    pc: int, space: str, kind: str, buffer: str, width: int, offset: Callable[[int], int], requests: int = 1
) -> dict[str, Any]:
    """``requests`` equal requests. Each of 32 lanes accesses ``width`` bytes at ``offset(lane)``."""
    offsets = [offset(lane) for lane in range(32)]
    passes, ideal = wavefronts(offsets, width) if space == "shared" else (0, 0)
    used = len({o + i for o in offsets for i in range(width)})
    return {
        "pc": pc,
        "space": space,
        "kind": kind,
        "instruction": "",
        "bytes": width,
        "requests": requests,
        "lanes": 32 * requests,
        "sectors": sectors(offsets, width) * requests if space == "global" else 0,
        "wavefronts": passes * requests,
        "ideal_wavefronts": ideal * requests,
        "bytes_used": used * requests,
        "flops": 0,
        "buffer": buffer,
        "example": offsets,
    }


def launch(kernel: str, function: str, sites: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    return {
        "row": kernel,
        "kernel": kernel,
        "function": function,
        "grid": (64, 1, 1),
        "block": (256, 1, 1),
        "dynamic_shared": 0,
        "static_shared": 0,
        "blocks": 64,
        "blocks_counted": 64,
        "buffers": [],
        "bytes_in_flight": 0,
        "barriers": 0,
        "sites": sites,
        "problems": [],
        **changed,
    }


def naive(coalesced: bool = True) -> tuple[list[dict[str, Any]], dict[int, tuple[Frame, ...]]]:
    """Level 1 of gemm at 128 x 128 x 128, with warps along a row of C or along a column."""
    n = 128
    requests = 64 * 8 * n
    across, down = (lambda lane: 4 * lane), (lambda lane: 4 * n * lane)
    same = lambda lane: 0  # noqa: E731
    a, b = (same, across) if coalesced else (down, same)
    sites = [
        site(16, "global", "load", "a", 4, a, requests),
        site(32, "global", "load", "b", 4, b, requests),
        site(48, "global", "store", "out", 4, across if coalesced else down, requests // n),
    ]
    buffers = [{"name": name, "bytes": 4 * n * n, "bytes_touched": 4 * n * n} for name in ("a", "b", "out")]
    function = (
        "void fastgemm::simt::(anonymous namespace)::gemm_naive_kernel"
        f"<float, {str(coalesced).lower()}>(fastgemm::simt::Gemm<float>, unsigned int)"
    )
    name = "naive" if coalesced else "naive_uncoalesced"
    return [launch(name, function, sites, buffers=buffers)], frames({16: 35, 32: 35, 48: 36}, NAIVE)


def transposed(pitch: int) -> tuple[list[dict[str, Any]], dict[int, tuple[Frame, ...]]]:
    """Level 2 (pitch 32) or 3 (33) of transpose at 256 x 256."""
    sites = [
        site(16, "global", "load", "a", 4, lambda lane: 4 * lane, 2048),
        site(32, "shared", "store", "staged", 4, lambda lane: 4 * lane, 2048),
        site(48, "shared", "load", "staged", 4, lambda lane: 4 * pitch * lane, 2048),
        site(64, "global", "store", "out", 4, lambda lane: 4 * lane, 2048),
    ]
    buffers = [{"name": name, "bytes": 1 << 18, "bytes_touched": 1 << 18} for name in ("a", "out")]
    function = f"void fastgemm::simt::transpose_shared_kernel<4, {pitch}>(fastgemm::simt::Transpose, Tiles)"
    name = "shared" if pitch == 32 else "padded"
    found = launch(name, function, sites, buffers=buffers, static_shared=128 * pitch, barriers=64)
    return [found], frames({16: 23, 32: 23, 48: 27, 64: 27}, TILE)


def frames(lines: dict[int, int], file: str) -> dict[int, tuple[Frame, ...]]:
    return {pc: (Frame("kernel", file, line, str(ROOT / file)),) for pc, line in lines.items()}


def only(sites: Iterable[Any], **wanted: Any) -> Any:
    """The only site with these attributes."""
    found = [site for site in sites if all(getattr(site, name) == value for name, value in wanted.items())]
    assert len(found) == 1, (wanted, found)
    return found[0]


class HandMade:
    """Replaces the simulator, and returns the launches that a test made."""

    def __init__(self, launches):
        self.launches = launches

    def begin(self, **options):
        self.options = options

    def end(self):
        return self.launches

    def path(self):
        return "/nowhere/_simt.so"


def report_of(
    monkeypatch: pytest.MonkeyPatch,
    launches_and_frames: tuple[list[dict[str, Any]], dict[int, tuple[Frame, ...]]],
    op: str = "gemm",
    kernel: str = "naive",
    shape: tuple[int, ...] = (128, 128, 128),
    raising: Exception | None = None,
    **options: Any,
) -> fastgemm.Report:
    """The report for these launches and frames, as if they came from the simulator."""
    launches, frames = launches_and_frames

    def call() -> None:
        if raising:
            raise raising

    monkeypatch.setattr(run, "load_simulator", lambda: HandMade(launches))
    monkeypatch.setattr(run, "_call", lambda *arguments: call)
    monkeypatch.setattr(symbols, "locate", lambda module, counters: {pc: frames[pc] for pc in counters})
    return fastgemm.explain(op, kernel=kernel, shape=shape, **options)
