"""Files of measured points, with a line for each problem. Predictions and tables are made from them.

A point holds the times of all kernels for one problem in one type. It is a mapping with the keys op, dtype,
precision (only if it is tf32 or the like), threads (0: a GPU), batch, m, n, k, a_transposed and b_transposed (if
layouts were measured), kernel (the winner, if it was decided while measuring) and seconds by kernel. On disk:

    ["gemm", 0, 1, 64, 320, 64, "TN", {"float64": [8.704, 11.78, 0, 5.408], "tf32": [0, 4.2]}]

The numbers are microseconds, in the order of the head's "kernels" of that op and type; 0 means not timed. The
winner's name may stand before them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FORMAT = 2
PRECISIONS = ("tf32", "bf16x3", "fp16x3")  # "types" in the file that mean float32 in this precision
Point = dict[str, Any]


def series_of(point: Point) -> str:
    return point.get("precision") or point["dtype"]


def _line(point: Point) -> tuple[Any, ...]:
    layout = "".join("NT"[point[f"{x}_transposed"]] for x in "ab" if f"{x}_transposed" in point)
    return (*(point[name] for name in ("op", "threads", "batch", "m", "n", "k")), layout)


def _times(point: Point, kernels: list[str]) -> list[Any]:
    times = [float(f"{point['seconds'].get(kernel, 0) * 1e6:.4g}") for kernel in kernels]
    while times[-1] == 0:
        times.pop()
    plain = [int(time) if time == int(time) else time for time in times]
    return [point["kernel"], *plain] if "kernel" in point else plain


def write_points(path: Path, head: dict[str, Any], points: list[Point]) -> None:
    """``head``: the environment, and further facts about the file."""
    kernels: dict[str, list[str]] = {}
    for point in points:
        known = kernels.setdefault(f"{point['op']} {series_of(point)}", [])
        known += [kernel for kernel in point["seconds"] if kernel not in known]
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points:
        series = series_of(point)
        lines.setdefault(_line(point), {})[series] = _times(point, kernels[f"{point['op']} {series}"])
    entries = {"format": FORMAT, **head, "kernels": kernels}
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items())
    rows = ",\n".join(
        json.dumps([*key, times], separators=(",", ":")) for key, times in sorted(lines.items())
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{\n{text},\n "points": [\n{rows}\n ]\n}}\n', encoding="utf-8")


def _point(line: list[Any], series: str, times: list[Any], kernels: list[str]) -> Point:
    op, threads, batch, m, n, k, layout = line
    dtype, named = ("float32", {"precision": series}) if series in PRECISIONS else (series, {})
    point = {"op": op, "dtype": dtype, **named, "threads": threads, "batch": batch, "m": m, "n": n, "k": k}
    point |= {f"{x}_transposed": letter == "T" for x, letter in zip("ab", layout, strict=False)}
    if isinstance(times[0], str):
        point["kernel"], *times = times
    measured = zip(kernels, times, strict=False)
    return point | {"seconds": {kernel: float(f"{time * 1e-6:.4g}") for kernel, time in measured if time}}


def read_points(path: Path) -> tuple[dict[str, Any], list[Point]]:
    """The head, and the points, type by type. Raises ValueError if the file has another format."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("format") != FORMAT:
        raise ValueError(f"{path}: not measured points of format {FORMAT}")
    lines, kernels = data.pop("points"), data.pop("kernels")
    points = [
        _point(line, series, times[series], known)
        for (op, series), known in ((name.split(), names) for name, names in kernels.items())
        for *line, times in lines
        if line[0] == op and series in times
    ]
    return data, points
