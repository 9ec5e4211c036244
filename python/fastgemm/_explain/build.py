"""Turns the simulator's counters, by program counter, into the data of a report, by source line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._gpus import GPU
from . import symbols
from .counts import Buffer, Launch, Problem, Site
from .occupancy import Occupancy, occupancy
from .resources import resources
from .symbols import Frame

_ADDED_UP = ("requests", "lanes", "sectors", "wavefronts", "ideal_wavefronts", "bytes_used", "flops")
Frames = dict[int, tuple[Frame, ...]]


def _cost(site: dict[str, Any]) -> float:
    """The cost of the requests: of several merged sites, the most expensive one provides the example."""
    return max(site["sectors"], site["wavefronts"]) / max(site["requests"], 1)


def _merged(group: list[dict[str, Any]], frames: Frames, scale: float) -> Site:
    worst = max(group, key=_cost)
    counts = {name: round(scale * sum(site[name] for site in group)) for name in _ADDED_UP}
    kept = {name: worst[name] for name in ("space", "kind", "instruction", "buffer", "bytes")}
    chains = [frames[site["pc"]] for site in group]
    callers = dict.fromkeys((Path(chain[-1].file).name, chain[-1].line) for chain in chains if len(chain) > 1)
    return Site(frames=chains[0], callers=tuple(callers), **kept, **counts, example=tuple(worst["example"]))


def _sites(found: list[dict[str, Any]], frames: Frames, scale: float) -> tuple[Site, ...]:
    """One site for each line, kind, space, buffer and width, in the order of the source.

    The compiler unrolls loops and inlines functions several times; each copy has program counters of its own.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for site in found:
        if site["requests"]:
            place = frames[site["pc"]][0]
            parts = (site[name] for name in ("space", "kind", "instruction", "buffer", "bytes"))
            groups.setdefault((place.file, place.line, *parts), []).append(site)
    by_address = sorted(groups.values(), key=lambda group: min(site["pc"] for site in group))
    merged = [_merged(group, frames, scale) for group in by_address]
    return tuple(sorted(merged, key=lambda site: (site.file, site.line)))


def _problem(found: dict[str, Any], frames: Frames) -> Problem:
    return Problem(
        check=found["check"],
        message=found["message"],
        places=tuple(dict.fromkeys(str(frames[pc][0]) for pc in found["sites"])),
        block=tuple(found["block"]),
        thread=tuple(found["thread"]),
        count=found["count"],
    )


def _occupancy(found: dict[str, Any], gpu: GPU) -> Occupancy:
    compiled = resources(found["function"], gpu.capability)
    x, y, z = found["block"]
    static = compiled.shared_bytes if compiled else found["static_shared"]
    return occupancy(
        gpu,
        threads=x * y * z,
        registers=compiled.registers if compiled else None,
        shared_bytes=static + found["dynamic_shared"],
    )


def build_launch(found: dict[str, Any], frames: Frames, gpu: GPU) -> Launch:
    """Scales the counts of the counted blocks to the whole grid."""
    scale = found["blocks"] / found["blocks_counted"] if found["blocks_counted"] else 1.0
    held = _occupancy(found, gpu)
    return Launch(
        kernel=found["kernel"],
        function=found["function"],
        grid=tuple(found["grid"]),
        block=tuple(found["block"]),
        blocks=found["blocks"],
        blocks_counted=found["blocks_counted"],
        dynamic_shared=found["dynamic_shared"],
        static_shared=held.shared_bytes - found["dynamic_shared"],
        bytes_in_flight=found["bytes_in_flight"],
        barriers=round(scale * found["barriers"]),
        buffers=tuple(Buffer(**buffer) for buffer in found["buffers"]),
        sites=_sites(found["sites"], frames, scale),
        problems=tuple(_problem(problem, frames) for problem in found["problems"]),
        occupancy=held,
    )


def build_launches(found: list[dict[str, Any]], module: str, gpu: GPU) -> tuple[Launch, ...]:
    """``found`` is the result of ``_simt.end()``, ``module`` that of ``_simt.path()``."""
    counters = {site["pc"] for launch in found for site in launch["sites"]}
    counters |= {pc for launch in found for problem in launch["problems"] for pc in problem["sites"]}
    frames = symbols.locate(module, counters)
    return tuple(build_launch(launch, frames, gpu) for launch in found)
