"""Which kernel a measured point names, and the C++ source of the tables that ``level=None`` reads.

tools/make_static_tables.py measures the points. Noise must not decide: on a CPU an own kernel goes before torch,
and a higher level before a lower one, when it is within 2 % of the fastest. On a GPU, where a point may speak for
sizes whose alignment differs, it also says whether leaving torch is clearly worth it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from ..table import WIDTH_NAMES
from .timing import Interleaved

FORMAT = 1
OPS = ("gemm", "transpose", "add")
CLOSE_ENOUGH = 0.98
LIBRARY = "cublaslt"
# Own kernels of these types are made for large tiles.
NEVER_LAUNCH_BOUND = ("float64", "float16", "bfloat16")
LAUNCH_BOUND, SHORT, HOST_GAIN, HOST_TIME_OF_OURS = 8e-6, 30e-6, 0.4e-6, 0.5e-6  # seconds
WORTH_LEAVING_TORCH = (1.01, 1.02)  # at this very size; the second for short calls, whose times are noisy
CLEARLY_WORTH_IT = (1.04, 1.15)  # at sizes around it as well
ONE_TILE = 32

# A transpose moves bytes; one dtype stands for each width.
BY_WIDTH = {
    WIDTH_NAMES[t.itemsize]: t
    for t in (torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128)
}
CPP_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int32": "i32",
    **{name: name for name in BY_WIDTH},
}
PRECISIONS = ("tf32",)  # of float32 products, that have points of their own on a GPU
Point = dict[str, Any]


def winner(samples: Interleaved, levels: dict[str, int], seconds: dict[str, float]) -> str:
    """Of the kernels within 2 % of the fastest: an own one before torch, then the highest level."""
    fastest = min(seconds, key=seconds.__getitem__)
    close = [n for n in seconds if n == fastest or samples.speedup(n, over=fastest).median >= CLOSE_ENOUGH]
    return max(close, key=lambda name: (name != "torch", levels[name], -seconds[name]))


def gpu_winner(point: Point) -> tuple[str, bool]:
    """torch, unless another kernel is worth leaving it; and whether it is clearly so, at sizes around it as well.

    Where torch has no such product, or its flags let it round more than we do, cuBLASLt's first candidate stands
    for it. The other candidates win at single sizes only, which says nothing of their neighbours. A call that
    the GPU has done in 8 us takes the host about as long, and through torch 4 us more than otherwise: there torch
    has to be faster, not the others; and cuBLASLt comes first, because it never loses by much, except up to
    ONE_TILE, the largest extent that an own kernel does in one step: that takes the host 2 us less.
    """
    seconds, largest = point["seconds"], max(point["m"], point["n"], point["k"])
    first_candidate = f"{LIBRARY}_1"
    default = next((name for name in ("torch", first_candidate) if name in seconds), None)
    best = min((name for name in seconds if name != default), key=seconds.__getitem__, default=default)
    if default is None or best is None or best == default:
        return best or "torch", True
    time = seconds[default]
    own = [name for name in seconds if name != "torch" and LIBRARY not in name]
    if time < LAUNCH_BOUND and default == "torch":
        if own and largest <= ONE_TILE and point["dtype"] not in NEVER_LAUNCH_BOUND:
            best = min(own, key=seconds.__getitem__)
        elif seconds.get(first_candidate, math.inf) < seconds[best] + HOST_TIME_OF_OURS:
            best = first_candidate
        return (best, True) if seconds[best] < time + HOST_GAIN else ("torch", True)
    short = time < SHORT
    ours = min(own, key=seconds.__getitem__, default=default)
    if default != "torch" and CLOSE_ENOUGH * seconds[ours] <= min(seconds.values()):
        best = ours  # torch has no claim here, and other candidates win by chance
    elif time / seconds[best] < WORTH_LEAVING_TORCH[short]:
        return default, True
    clearly = time / seconds[best] >= CLEARLY_WORTH_IT[short]
    return best, clearly and (best in own or best == first_candidate)


def order(point: Point) -> tuple:
    """gemm, transpose, add; within, dtypes by their place in the list of types, then sizes."""
    place = OPS.index(point["op"]), list(CPP_TYPES).index(point["dtype"])
    place += point.get("precision", ""), point["threads"]
    layout = point.get("a_transposed", False), point.get("b_transposed", False)
    return (*place, *(point[name] for name in ("batch", "m", "n", "k")), *layout)


def cpp_row(p: Point) -> str:
    sizes = f"{p['threads']}, {p['batch']}, {p['m']}, {p['n']}, {p['k']}"
    layout = ", ".join(str(p.get(name, False)).lower() for name in ("a_transposed", "b_transposed"))
    kernel, clearly = (p["kernel"], True) if "kernel" in p else gpu_winner(p)
    more = [] if clearly else ["false"]
    if "precision" in p:
        more = [*(more or ["true"]), f"Precision::{p['precision']}"]
    rest = ", ".join([f'"{kernel}"', *more])
    return f"    {{DType::{CPP_TYPES[p['dtype']]}, {sizes}, {layout}, {rest}}},"


def generate(files: list[Path], root: Path) -> str:
    """The C++ source for all measured processors."""
    arrays, tables, sources = [], [], []
    for index, path in enumerate(files):
        data = json.loads(path.read_text())
        if data.get("format") != FORMAT:
            raise SystemExit(f"{path}: not a tuning file of format {FORMAT}")
        env = data["environment"]
        sources.append(
            f"//   {path.relative_to(root)}: {env['device']}, torch {env['torch']}, {env['date'][:10]}"
        )
        for op in OPS:
            points = [p for p in sorted(data["points"], key=order) if p["op"] == op]
            if not points:
                continue
            name = f"k{op.capitalize()}{index}"
            rows = "\n".join(map(cpp_row, points))
            arrays.append(f"constexpr Measured {name}[] = {{\n{rows}\n}};\n")
            model = env["gpu_model"] if env["device_type"] == "cuda" else env["cpu_model"]
            tables.append(f'    {{"{model}", Op::{op}, {name}}},')
    listed = "\n".join(sources) or "//   (none yet)"
    body = "\n".join(arrays)
    if tables:
        table = "constexpr StaticTable kTables[] = {\n" + "\n".join(tables) + "\n};\n"
        body, result = f"namespace {{\n\n{body}\n{table}\n}}  // namespace\n", "kTables"
    else:
        result = "{}"
    return (
        "// Generated by `python tools/make_static_tables.py --from-json`; do not edit. Measured:\n"
        f"{listed}\n//\n// {{type, threads, batch, m, n, k, a and b transposed, fastest kernel, whether\n"
        "// clearly so, precision}\n"
        '#include "core/tuning.h"\n\nnamespace fastgemm {\n'
        f"{body}\nstd::span<const StaticTable> static_tables() {{ return {result}; }}\n\n"
        "}  // namespace fastgemm\n"
    )
