"""Decides which kernel a measured point names, and writes the C++ source of the tables that ``level=None`` reads.

make_static_tables.py measures the points. Noise must not decide. So on a CPU, among kernels within 2 % of the
fastest, an own kernel goes before torch, and a higher level before a lower one. On a GPU, a point also holds the
speed of each kernel, which helps to choose at sizes around it (csrc/core/static_tables.h has the rule).
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby
from pathlib import Path

import torch
from fastgemm.bench.timing import Interleaved
from fastgemm.table import WIDTH_NAMES
from points import Point, read_points

OPS = ("gemm", "transpose", "add")
CLOSE_ENOUGH = 0.98
LIBRARIES = ("torch", "cublaslt_1")
LAUNCH_BOUND, SHORT, HOST_GAIN = 8e-6, 30e-6, 0.4e-6  # seconds
WORTH_LEAVING = (1.01, 1.02)  # the second one is for short calls, because their times are noisy
# As in core/static_tables.h.
MOST_SPEEDS = 16
NOT_TIMED = -159  # a third as fast as the library: slower kernels are not timed to the end

# A transpose moves bytes; one dtype stands for each width.
BY_WIDTH = {
    WIDTH_NAMES[t.itemsize]: t
    for t in (torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128)
}
ARITHMETIC_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int32": "i32",
}
CPP_TYPES = ARITHMETIC_TYPES | {name: name for name in BY_WIDTH}


def winner(samples: Interleaved, levels: dict[str, int], seconds: dict[str, float]) -> str:
    """Chooses among the kernels within 2 % of the fastest: an own one before torch, then the highest level."""
    fastest = min(seconds, key=seconds.__getitem__)
    close = [n for n in seconds if n == fastest or samples.speedup(n, over=fastest).median >= CLOSE_ENOUGH]
    return max(close, key=lambda name: (name != "torch", levels[name], -seconds[name]))


def felt(point: Point) -> dict[str, float]:
    """The times of the kernels, with the host's time considered. If the GPU needs less than LAUNCH_BOUND for a
    call, the host needs about as long, and some microseconds more through torch. Calls that keep the GPU busy
    hide most of the host's time. So torch's time grows by only a part of it, HOST_GAIN."""
    seconds = dict(point["seconds"])
    if "torch" in seconds and seconds["torch"] < LAUNCH_BOUND:
        seconds["torch"] += HOST_GAIN
    return seconds


def gpu_winner(point: Point) -> str:
    """The library, unless another kernel is clearly faster at this problem.

    The library is torch, or cuBLASLt's first candidate if torch has no such product or may round more than this
    package. cuBLASLt's other candidates often win by chance, so an own kernel of about the same time goes first.
    """
    seconds = felt(point)
    library = next((name for name in LIBRARIES if name in seconds), None)
    best = min(seconds, key=seconds.__getitem__)
    own = [name for name in seconds if is_own(name)]
    ours = min(own, key=seconds.__getitem__, default=best)
    if library != "torch" and CLOSE_ENOUGH * seconds[ours] <= seconds[best]:
        best = ours  # there is no time of torch
    elif library and seconds[library] / seconds[best] < WORTH_LEAVING[seconds[library] < SHORT]:
        return library
    return best


def is_own(kernel: str) -> bool:
    return kernel != "torch" and not kernel.startswith("cublas")


def gpu_columns(points: list[Point]) -> list[str]:
    """The kernels whose speeds a GPU's table holds: first the libraries. Then every kernel that at some point is
    faster than the libraries, and is also the fastest of all other kernels or of own kernels there."""
    names = {name for point in points for name in point["seconds"]}
    first: Counter[str] = Counter()
    for point in points:
        seconds = felt(point)
        library = min((seconds[name] for name in LIBRARIES if name in seconds), default=math.inf)
        others = [name for name in seconds if name not in LIBRARIES]
        for group in (others, list(filter(is_own, others))):
            if group:
                best = min(group, key=seconds.__getitem__)
                first[best] += seconds[best] < library
    libraries = [name for name in LIBRARIES if name in names]
    others = [name for name, count in first.most_common() if count or not libraries]
    return (libraries + others)[:MOST_SPEEDS]


def gpu_speeds(point: Point, columns: list[str]) -> list[int]:
    """The speeds of these kernels relative to the library, in hundredths of an octave. If no library takes the
    problem, they are relative to the fastest kernel."""
    seconds = felt(point)
    base = next((seconds[name] for name in LIBRARIES if name in seconds), min(seconds.values()))

    def speed(name: str) -> int:
        if name == "torch" and name not in seconds:
            name = "cublaslt_1"  # the same library
        return max(NOT_TIMED, round(100 * math.log2(base / seconds[name]))) if name in seconds else NOT_TIMED

    return [speed(name) for name in columns]


def order(point: Point) -> tuple:
    """The sort key of a point: the op, then the dtype's place in the list of types, then sizes."""
    place = OPS.index(point["op"]), list(CPP_TYPES).index(point["dtype"])
    place += point.get("precision", ""), point["threads"]
    layout = point.get("a_transposed", False), point.get("b_transposed", False)
    return (*place, *(point[name] for name in ("batch", "m", "n", "k")), *layout)


def series(point: Point) -> tuple[str, str, str]:
    return point["op"], point["dtype"], point.get("precision", "ieee")


def cpp_row(p: Point, kernels: list[str], columns: list[str]) -> str:
    sizes = f"{p['threads']}, {p['batch']}, {p['m']}, {p['n']}, {p['k']}"
    layout = ", ".join(str(p.get(name, False)).lower() for name in ("a_transposed", "b_transposed"))
    fastest = kernels.index(p["kernel"] if "kernel" in p else gpu_winner(p))
    speeds = f", {{{', '.join(map(str, gpu_speeds(p, columns)))}}}" if columns else ""
    return f"    {{{sizes}, {layout}, {fastest}{speeds}}},"


def cpp_table(name: str, model: str, points: list[Point]) -> tuple[str, str]:
    """The points of one device, op, type and precision as C++: their array, and their entry in the table list."""
    gpu = "kernel" not in points[0]
    columns = gpu_columns(points) if gpu else []
    winners = {p["kernel"] if "kernel" in p else gpu_winner(p) for p in points}
    kernels = columns + sorted(winners - set(columns))
    rows = "\n".join(cpp_row(p, kernels, columns) for p in points)
    names = ", ".join(f'"{kernel}"' for kernel in kernels)
    array = (
        f"constexpr std::string_view {name}Kernels[] = {{{names}}};\n"
        f"constexpr Measured {name}[] = {{\n{rows}\n}};\n"
    )
    op, dtype, precision = series(points[0])
    libraries = sum(kernel in LIBRARIES for kernel in columns)
    kind = f"Op::{op}, DType::{CPP_TYPES[dtype]}, Precision::{precision}"
    return array, f'    {{"{model}", {kind}, {libraries}, {len(columns)}, {name}Kernels, {name}}},'


def generate(files: list[Path], root: Path) -> str:
    """The C++ source for all measured processors."""
    arrays, tables, sources = [], [], []
    for index, path in enumerate(files):
        head, points = read_points(path)
        env = head["environment"]
        sources.append(
            f"//   {path.relative_to(root)}: {env['device']}, torch {env['torch']}, {env['date'][:10]}"
        )
        model = env["gpu_model"] if env["device_type"] == "cuda" else env["cpu_model"]
        # Products on a CPU are left out, because they are predicted (fit_cpu_costs.py).
        listed = [p for p in points if (p["op"], env["device_type"]) != ("gemm", "cpu")]
        for kind, found in groupby(sorted(listed, key=order), key=series):
            name = "k" + "".join(part.capitalize() for part in kind) + f"Of{index}"
            array, table = cpp_table(name, model, list(found))
            arrays.append(array)
            tables.append(table)
    files_read = "\n".join(sources) or "//   (none yet)"
    body = "\n".join(arrays)
    if tables:
        table = "constexpr StaticTable kTables[] = {\n" + "\n".join(tables) + "\n};\n"
        body, result = f"namespace {{\n\n{body}\n{table}\n}}  // namespace\n", "kTables"
    else:
        result = "{}"
    return (
        "// Generated by `python benchmarks/fits/make_static_tables.py --from-json`; do not edit.\n"
        "// clang-format off: one row a line\n"
        f"// Measured:\n{files_read}\n//\n"
        "// {threads, batch, m, n, k, a and b transposed, fastest kernel, speeds}\n"
        '#include "core/static_tables.h"\n\nnamespace fastgemm {\n'
        f"{body}\nstd::span<const StaticTable> static_tables() {{ return {result}; }}\n\n"
        "}  // namespace fastgemm\n"
    )
