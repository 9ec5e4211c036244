"""Tables of what runs on which GPU: from the kernel table, and from predictions for nominal GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from fastgemm import _introspect
from fastgemm.table import KernelInfo, kernels

from .markdown import table

# Compute capability, GPUs of it, and the multiprocessors of the largest; nominal_gpu() in csrc/core/gpu.cpp
# has the rest.
GENERATIONS = (
    ("8.0", "A100, A30", 108),
    ("8.6", "RTX 30, A40, A10", 82),
    ("8.7", "Jetson Orin", 16),
    ("8.9", "RTX 40, L4, L40S", 128),
    ("9.0", "H100, H200, GH200, H20", 132),
    ("10.0", "B200", 148),
    ("10.3", "B300", 148),
    ("11.0", "Jetson Thor", 20),
    ("12.0", "RTX 50, RTX PRO", 170),
    ("12.1", "DGX Spark", 48),
)
RUN_ON = {"9.0": "an H200, both source paths; an H100"}  # what tools/gpu_check.sh has tested on hardware

# Each kind of product: its dtype, precision, and what a tensor core multiplies for it.
SERIES = {
    "float64": ("float64", "ieee", "float64"),
    "float32": ("float32", "ieee", "bfloat16, six products"),
    "float32, `fp16x3`": ("float32", "fp16x3", "float16, three products"),
    "float32, `bf16x3`": ("float32", "bf16x3", "bfloat16, three products"),
    "float32, `tf32`": ("float32", "tf32", "tf32"),
    "float16": ("float16", "ieee", "float16"),
    "bfloat16": ("bfloat16", "ieee", "bfloat16"),
    "int8": ("int8", "ieee", "int8"),
    "uint8": ("uint8", "ieee", "uint8"),
    "int16": ("int16", "ieee", "bytes, four products"),
    "int32": ("int32", "ieee", "bytes, ten products"),
}
HOPPER = "sm_90a"
EDGE = 4096


def rungs() -> list[KernelInfo]:
    return [row for row in kernels("gemm", device="cuda") if row.role == "rung"]


def takes(row: KernelInfo, dtype: str, precision: str) -> bool:
    """Whether a level picks the row for such products, of float32 those of exactly this precision."""
    if dtype not in row.dtypes:
        return False
    return dtype != "float32" or row.precision == precision


def names(rows: Iterable[KernelInfo]) -> str:
    return ", ".join(f"`{row.name}`" for row in rows) or "-"


def gpu_of(capability: str, multiprocessors: int) -> dict[str, object]:
    return {"capability": int(capability.replace(".", "")), "multiprocessors": multiprocessors, "number": 0}


def kernels_section() -> str:
    """Levels 5 and 6 of each kind of product: what every GPU has, and what Hopper has beside."""
    lines = []
    for series, (dtype, precision, multiplied) in SERIES.items():
        cells = []
        for level in (5, 6):
            found = [r for r in rungs() if r.level == level and takes(r, dtype, precision)]
            # level 5 multiplies float32 as it is
            if level == 5 and precision != "ieee":
                found = []
            cells += [
                names(r for r in found if r.needs != HOPPER),
                names(r for r in found if r.needs == HOPPER),
            ]
        lines.append([series, cells[0], cells[1], multiplied, cells[2], cells[3]])
    header = ["product", "level 5", "level 5 on Hopper, too", "level 6: tensor cores multiply"]
    return table([*header, "level 6", "level 6 on Hopper, too"], lines, numbers_from=9)


def generations_section() -> str:
    """How level 6 multiplies on each generation, what level=None goes by, and whether anyone has seen it run."""
    hopper_rows = {row.name for row in rungs() if row.needs == HOPPER}
    lines = []
    for capability, gpus, multiprocessors in GENERATIONS:
        gpu = gpu_of(capability, multiprocessors)
        problem = ("bfloat16", "ieee", 1, EDGE, EDGE, EDGE, False, False)
        wgmma = any(name in hopper_rows for name, _ in _introspect.predictions(problem, gpu))
        by = "wgmma and TMA" if wgmma else "`mma.sync` and `cp.async`"
        run_on = RUN_ON.get(capability, "the simulator alone; never on this hardware")
        lines.append([capability, gpus, by, _introspect.knowledge(gpu), run_on])
    header = ["compute capability", "GPUs", "level 6 by", "`level=None` is", "run on"]
    return table(header, lines, numbers_from=9)


def choices_section() -> str:
    """What levels take for a large product of each type, by predictions."""
    levels = {row.name: row.level for row in rungs()}
    library = [row for row in kernels("gemm", device="cuda") if row.level == 7]
    columns = [name for name in SERIES if "x3" not in name]
    lines = []
    for capability, gpus, multiprocessors in GENERATIONS:
        cells = []
        for dtype, precision, _ in (SERIES[name] for name in columns):
            problem = (dtype, precision, 1, EDGE, EDGE, EDGE, False, False)
            found = _introspect.predictions(problem, gpu_of(capability, multiprocessors))
            if not any(dtype in row.dtypes for row in library):
                found = [(name, seconds) for name, seconds in found if name != "library"]
            level6 = next(name for name, _ in found if levels.get(name) == 6)
            free = found[0][0]
            other = "" if free == level6 else "; library" if free == "library" else f"; `{free}`"
            cells.append(f"`{level6}`{other}")
        lines.append([f"{capability}, {gpus.split(',')[0]}", *cells])
    return table(["GPU", *columns], lines, numbers_from=len(columns) + 1)


def residues_section() -> str:
    """What residues gain in float64, by predictions."""
    lines = []
    for capability, gpus, multiprocessors in GENERATIONS:
        problem = ("float64", "ieee", 1, EDGE, EDGE, EDGE, False, False)
        found = dict(_introspect.predictions(problem, gpu_of(capability, multiprocessors)))
        least = min(found["library"], found["dmma"])
        rates = (2 * EDGE**3 / found[name] / 1e12 for name in ("library", "dmma", "crt"))
        lines.append(
            [
                f"{capability}, {gpus.split(',')[0]}",
                *(f"{rate:.3g}" for rate in rates),
                f"{least / found['crt']:.2f}",
            ]
        )
    header = ["GPU", "library, at most", "`dmma`", "`crt`", "of the better of both"]
    return table(header, lines, numbers_from=1)
