"""A plain Triton kernel. Measurements choose its tile."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from fastgemm.bench.environment import usable_cores
from fastgemm.bench.problems import Instance

from .contenders import DEFAULT, Contender
from .prepared import NotInstalledError, Prepared

# Rows, columns and depth of a tile (depth in 4-byte elements), warps, stages.
TILES = (
    (128, 128, 32, 8, 3),
    (128, 128, 32, 4, 3),
    (128, 256, 32, 8, 3),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 4, 4),
)
SAMPLES = 2  # for each tile


def _load() -> Any:
    try:
        from . import triton_kernel
    except ImportError as error:
        raise NotInstalledError("not installed") from error
    return triton_kernel


def version() -> str | None:
    try:
        return _load().triton.__version__
    except NotInstalledError:
        return None


def _launches(
    kernel: Any, contender: Contender, instance: Instance
) -> dict[str, tuple[tuple[int], Any, Any]]:
    """Grid, arguments and options for each tile, by the tile's name."""
    (a, b), c = instance.operands, instance.out
    (m, k), n = a.shape, b.shape[1]
    arguments = a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()
    found = {}
    for rows, cols, depth, warps, stages in TILES:
        depth = depth * 4 // a.element_size()
        options = {"BM": rows, "BN": cols, "BK": depth, "num_warps": warps, "num_stages": stages}
        options["PRECISION"] = "ieee" if contender.asked == DEFAULT else contender.asked
        grid = (kernel.blocks(m, rows) * kernel.blocks(n, cols),)
        found[f"{rows}x{cols}x{depth}, {warps} warps"] = grid, arguments, options
    return found


def _seconds(call: Any) -> float:
    """The shortest time of some runs, after a warm-up run."""
    call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(SAMPLES):
        start.record()
        call()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 1e3)
    return min(found)


def product(contender: Contender, instance: Instance) -> Prepared:
    """Compiles all tiles and takes the fastest. Raises RuntimeError if none can run."""
    kernel = _load()
    if instance.device != "cuda":
        raise RuntimeError("Triton is for GPUs")
    launches = _launches(kernel, contender, instance)
    kernel.compile_all(launches.values(), usable_cores())
    calls = {name: partial(kernel.run, *launch) for name, launch in launches.items()}
    seconds, refusals = {}, []
    for name, call in calls.items():
        try:
            seconds[name] = _seconds(call)
        except Exception as error:  # the compiler's errors have no common type
            refusals.append(error)
    if not seconds:
        raise RuntimeError(f"{refusals[0]}") from refusals[0]
    best = min(seconds, key=lambda name: seconds[name])
    return Prepared(lambda: calls[best]() or instance.out, f"Triton, {best}")
