"""Compares the simulator's counters with those of a GPU, launch by launch.

    python tools/ncu_check.py --json benchmarks/results/h100/counters.json

Every own CUDA row of the kernel table runs twice on the same problems: on the simulator, with every block
counted, and on the GPU under Nsight Compute. Needs `ncu` on the PATH, and a package built with CUDA kernels
and simulator. Fails if a counter differs and tools/counter_check.py has no reason for it.
tools/render_results.py makes a table from the file.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import counter_check
import fastgemm
import torch
from fastgemm._explain.kernel_names import short_name
from fastgemm.bench.problems import Add, Gemm, Problem, Transpose, dtype_name, label, random_matrix
from fastgemm.bench.records import dense
from render.counters import section
from studies.environment import describe
from torch import Tensor

LIBRARY_LEVEL = 7
KERNEL = re.compile(r"\w+_kernel\b")
ALIGNMENT = 512  # as of CUDA's allocator; kernels depend on the alignment of their operands
Counts = dict[str, int]

# The counters to compare, by name: where the simulator has it (space, kinds of access, field of its sites),
# and the metrics of the hardware that add up to it. The hardware counts copies (cp.async) as loads.
# Instructions and wavefronts in shared memory are those that Nsight Compute shows per source line, from
# patched code. The counter at the banks themselves is not used: it also counts passes that collide with other
# traffic, up to 12 % more in warp_specialized.
LSU = "l1tex__t_{}_pipe_lsu_mem_global_op_{}"
PASSES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}"
DONE = "smsp__sass_inst_executed_op_{}"
LOADS, SHARED_LOADS, SHARED_STORES = ("load", "cp.async"), ("load", "ldmatrix"), ("store", "stmatrix")
COUNTERS: dict[str, tuple[str, tuple[str, ...], str, tuple[str, ...]]] = {
    "load requests": ("global", LOADS, "requests", (LSU.format("requests", "ld"),)),
    "load sectors": ("global", LOADS, "sectors", (LSU.format("sectors", "ld"),)),
    "store requests": ("global", ("store",), "requests", (LSU.format("requests", "st"),)),
    "store sectors": ("global", ("store",), "sectors", (LSU.format("sectors", "st"),)),
    "bulk copies": ("global", ("tma load",), "requests", (DONE.format("tma_ld"),)),
    "shared loads": ("shared", SHARED_LOADS, "requests", (DONE.format("shared_ld"), DONE.format("ldsm"))),
    "shared load wavefronts": (
        "shared",
        SHARED_LOADS,
        "wavefronts",
        (PASSES.format("ld"), PASSES.format("ldsm")),
    ),
    "shared stores": (
        "shared",
        SHARED_STORES,
        "requests",
        (DONE.format("shared_st"), DONE.format("shared_stsm")),
    ),
    "shared store wavefronts": (
        *("shared", SHARED_STORES, "wavefronts"),
        (PASSES.format("st"), PASSES.format("stsm")),
    ),
}


@dataclass(frozen=True)
class Case:
    """A problem for one row of the kernel table. ``weight``: the format of a packed weight B."""

    problem: Problem
    kernel: str
    weight: str = ""

    @property
    def about(self) -> dict[str, str]:
        problem = self.problem
        return {
            "op": problem.op,
            "row": self.kernel,
            "dtype": dtype_name(problem.dtype),
            "shape": f"{label(problem)} {self.weight}".rstrip(),
        }


@dataclass(frozen=True)
class Launch:
    function: str  # the instantiation or its template
    grid: tuple[int, ...]
    block: tuple[int, ...]
    counts: Counts


# Sizes with several tiles of every kernel in each dimension, and a size that is a multiple of no tile.
F32, F64, F16, BF16, I8 = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8
GEMM = (Gemm(256, 384, 128), Gemm(130, 200, 70), Gemm(128, 256, 192, F32, "TN"), Gemm(256, 384, 128, BF16))
TRANSPOSE = (*(Transpose(512, 384, dtype) for dtype in (F32, F64, F16, I8)), Transpose(301, 515))
ADD = (Add(256, 384), Add(256, 384, BF16), Add(255, 383))
# Below 211e6 multiply-adds level 5 takes its kernel for small products (132 multiprocessors).
LARGE = {
    "cp_async": (*GEMM, Gemm(256, 256, 256), Gemm(640, 640, 640), Gemm(600, 700, 520, I8)),
    "warp_specialized": (Gemm(1024, 768, 272), Gemm(1000, 777, 301), Gemm(768, 1024, 288, F64)),
}
# For tensor cores: several tiles and steps, every type, both layouts of operands, and a size that is a
# multiple of no tile.
TENSOR_CORES = (
    *(Gemm(256, 512, 256, BF16, layout) for layout in ("NN", "TT")),
    *(Gemm(256, 512, 256, dtype, "NT") for dtype in (I8, torch.int32, F64)),
    *(Gemm(256, 512, 256, F32, layout) for layout in ("NT", "NN")),
    Gemm(300, 265, 264, BF16),
)


# Packed weights: several units along N and K, few and many rows of x, and a size that is a multiple of no tile.
PACKED = (
    *(("int4", Gemm(m, 256, 512, BF16, "NT")) for m in (8, 200)),
    *((weight, Gemm(64, 256, 512, BF16, "NT")) for weight in ("int8", "mxfp4")),
    ("int4", Gemm(150, 264, 392, BF16, "NT")),
)
INT16 = (Gemm(256, 512, 256, torch.int16, "NT"), Gemm(300, 265, 264, torch.int16))


def problems_of(row: fastgemm.KernelInfo) -> tuple[Problem, ...]:
    if row.name == "int16x4":
        return INT16
    if (row.op, row.level) == ("gemm", 6):
        return tuple(replace(p, precision=row.precision) if p.dtype == F32 else p for p in TENSOR_CORES)
    return LARGE.get(row.name, {"gemm": GEMM, "transpose": TRANSPOSE, "add": ADD}[row.op])


def cases() -> Iterator[Case]:
    for row in fastgemm.kernels(device="cuda"):
        if row.level == LIBRARY_LEVEL or row.role == "shortcut" or row.name == "dequantized":
            continue  # the last two launch other rows
        yield from (Case(p, row.name) for p in problems_of(row) if row.takes(p.dtype))
        if "none" not in row.codes:
            yield from (Case(p, row.name, weight) for weight, p in PACKED)


def aligned(tensor: Tensor) -> Tensor:
    """A copy that begins at a multiple of ALIGNMENT."""
    room = torch.empty(tensor.nbytes + ALIGNMENT, dtype=torch.uint8, device=tensor.device)
    start = -room.data_ptr() % ALIGNMENT
    copy = room[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


def prepare(case: Case, device: str) -> tuple[list[Tensor], Tensor]:
    """Operands, and memory for the result."""
    problem, dtype = case.problem, case.problem.dtype

    def operand(rows: int, cols: int, stored_transposed: bool = False) -> Tensor:
        shape = (cols, rows) if stored_transposed else (rows, cols)
        x = aligned(random_matrix(*shape, dtype=dtype).to(device))
        return x.mT if stored_transposed else x

    def room(rows: int, cols: int, kind: torch.dtype = dtype) -> Tensor:
        return aligned(torch.zeros(rows, cols, dtype=kind, device=device))

    if isinstance(problem, Gemm):
        m, n, k, layout = problem.m, problem.n, problem.k, problem.layout
        if case.weight:
            packed = fastgemm.quantize_weight(random_matrix(n, k, dtype=dtype), case.weight).to(device)
            return [operand(m, k), packed.mT], room(m, n)
        kind = {torch.int8: torch.int32, torch.int16: torch.int64}.get(dtype, dtype)
        return [operand(m, k, layout[0] == "T"), operand(k, n, layout[1] == "T")], room(m, n, kind)
    rows, cols = problem.shape
    if problem.op == "transpose":
        return [operand(rows, cols)], room(cols, rows)
    return [operand(rows, cols), operand(rows, cols)], room(rows, cols)


def run(case: Case, operands: list[Tensor], out: Tensor) -> None:
    function = {"gemm": fastgemm.matmul, "transpose": fastgemm.transpose, "add": fastgemm.add}
    options: dict[str, Any] = {"precision": case.problem.precision} if case.problem.precision else {}
    if not case.weight:  # a product with a packed weight has no out=
        options["out"] = out
    function[case.problem.op](*operands, kernel=case.kernel, **options)


# --- the simulator


def simulated_counts(sites: list[dict[str, Any]]) -> Counts:
    return {
        name: sum(site[field] for site in sites if site["space"] == space and site["kind"] in kinds)
        for name, (space, kinds, field, _) in COUNTERS.items()
    }


def simulate(case: Case, multiprocessors: int) -> list[Launch]:
    from fastgemm import _simt  # here, because the run under ncu does not need it

    operands, out = prepare(case, "cpu")
    _simt.begin(count=True, raise_problems=True, multiprocessors=multiprocessors, max_blocks=0)
    try:
        run(case, operands, out)
    finally:
        launches = _simt.end()
    if any(launch["blocks_counted"] < launch["blocks"] for launch in launches):
        raise SystemExit(f"ncu_check: {case.about} is too large for every block to be counted")
    return [
        Launch(
            short_name(re.sub(r"^fastgemm::simt::Launcher<&\(?(.*?)\)?>$", r"\1", launch["function"])),
            tuple(launch["grid"]),
            tuple(launch["block"]),
            simulated_counts(launch["sites"]),
        )
        for launch in launches
    ]


# --- the hardware


def run_all_on_gpu() -> None:
    """The workload for ncu: every case once."""
    for case in cases():
        run(case, *prepare(case, "cuda"))
    torch.cuda.synchronize()


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", text))


def parse(output: str) -> list[Launch]:
    """Parses the table of `ncu --csv --page raw`: a line of names, a line of units, then one line per
    launch."""
    lines = output.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise SystemExit("ncu_check: ncu printed no table:\n" + "\n".join(lines[-20:]))
    table = csv.DictReader(io.StringIO("\n".join(lines[begin:])))
    next(table)  # units
    return [
        Launch(
            KERNEL.search(row["Kernel Name"])[0],
            numbers(row["Grid Size"]),
            numbers(row["Block Size"]),
            {
                name: sum(int(float(row[f"{metric}.sum"].replace(",", ""))) for metric in metrics)
                for name, (*_, metrics) in COUNTERS.items()
            },
        )
        for row in table
    ]


def measure() -> list[Launch]:
    metrics = ",".join(f"{metric}.sum" for *_, group in COUNTERS.values() for metric in group)
    # Only launches of this library. The clock is not fixed, because these counters depend on neither clock
    # nor caches.
    command = [
        *("ncu", "--csv", "--page", "raw", "--print-units", "base", "--metrics", metrics),
        *("--clock-control", "none", "--cache-control", "none"),
        *("--kernel-name-base", "demangled", "--kernel-name", "regex:fastgemm::"),
        *(sys.executable, __file__, "--workload"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"ncu_check: ncu failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return parse(done.stdout)


# --- both


def compared(expected: list[tuple[Case, Launch]], found: list[Launch]) -> list[dict[str, Any]]:
    """A record for each launch, with the counts of both as [simulator, hardware]."""
    if len(expected) != len(found):
        raise SystemExit(f"ncu_check: {len(expected)} launches simulated, {len(found)} on the GPU")
    records = []
    for (case, ours), theirs in zip(expected, found, strict=True):
        a, b = ((KERNEL.search(each.function)[0], each.grid, each.block) for each in (ours, theirs))
        if a != b:
            raise SystemExit(f"ncu_check: {case.kernel} launched {a} simulated, {b} on the GPU")
        counts = {name: [ours.counts[name], theirs.counts[name]] for name in COUNTERS}
        records.append(
            {
                **case.about,
                "kernel": ours.function,
                "grid": ours.grid,
                "block": ours.block,
                "counts": {name: both for name, both in counts.items() if any(both)},
            }
        )
    return records


def versions() -> dict[str, Any]:
    text = subprocess.run(["ncu", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+)", text)
    return {**describe("cuda"), "ncu": found[1] if found else "unknown"}


def as_json(data: dict[str, Any]) -> str:
    """JSON with one line per launch."""
    launches = ",\n".join(map(dense, data["launches"]))
    return f'{{"environment":{dense(data["environment"])},\n "launches":[\n{launches}\n]}}\n'


def report_unexplained(records: list[dict[str, Any]]) -> int:
    """Prints the differences without an explanation. Returns 1 if there are any."""
    unexplained = 0
    for record in records:
        for name, why in counter_check.differences(record).items():
            if why is None:
                ours, theirs = record["counts"][name]
                place = (
                    f"{record['op']} {record['row']} {record['dtype']} {record['shape']}, {record['kernel']}"
                )
                print(f"{place}: {name}: {ours:,} simulated, {theirs:,} on the GPU", file=sys.stderr)
                unexplained = 1
    return unexplained


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to write the comparison")
    parser.add_argument("--workload", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.workload:
        run_all_on_gpu()
        return 0
    if shutil.which("ncu") is None:
        raise SystemExit("ncu_check: Nsight Compute's `ncu` is not on the PATH")
    environment = versions()
    found = measure()
    expected = [
        (case, launch) for case in cases() for launch in simulate(case, environment["multiprocessors"])
    ]
    data = {"environment": environment, "launches": compared(expected, found)}
    if arguments.json:
        arguments.json.write_text(as_json(data), encoding="utf-8")
    print(section(data))
    return report_unexplained(data["launches"])


if __name__ == "__main__":
    sys.exit(main())
