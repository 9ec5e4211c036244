"""examples/tensor_parallel.py on two processes, and the tables that are made of its reports."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import fastgemm
from fastgemm.bench import Summary
from fastgemm.bench.records import Measurement, Report, read_report
from pages import ROOT
from processes import run_python
from ranks import LOOPBACK, Ranks
from render.models import CUTS, SCALING
from render.pages import OF_FILES

EXAMPLE = ROOT / "examples" / "tensor_parallel.py"
SMALL = ["--size", "24", "32", "64", "--rounds", "2"]


def run_two(*program: str) -> subprocess.CompletedProcess:
    """A program on two processes that torchrun starts, without GPUs."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    network = {"GLOO_SOCKET_IFNAME": LOOPBACK} if LOOPBACK else {}
    return run_python([*launch, *program], OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", **network)


def test_run_by_torchrun(tmp_path):
    file = tmp_path / "report.json"
    types = ["--type", "float32", "--type", "bfloat16", "--json", str(file)]
    done = run_two(str(EXAMPLE), *SMALL, *types)
    assert done.returncode == 0, done.stderr[-3000:]
    report = read_report(file)
    assert report.right and report.environment["devices"] == 2 and report.environment["commit"] != ""
    timed = {(row.type_name, row.choice) for row in report.results if row.seconds.median > 0}
    choices = "one device", "compute", "all-reduce", "by hand", "whole", "one product", "columns", "inner"
    assert timed == {(kind, choice) for kind in ("float32", "bfloat16") for choice in choices}
    assert "24x32x64" in done.stdout and SCALING.text(report.results) in done.stdout


# Runs a program so that a thread of gloo is the last to hold a tensor when the interpreter ends, and waits for it:
# what a busy machine does now and then. Only the sleep at the very end lets the thread go on.
LATE_THREAD = """
import atexit, os, runpy, sys, time

class SleepsWhenModulesAreCleared:
    def __del__(self, sleep=time.sleep):
        sleep(0.1)

groups, sys.last_of_all = [], SleepsWhenModulesAreCleared()

def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

def leave_a_thread_behind():
    sys.setswitchinterval(1e3)
    compute(0.2 * int(os.environ["RANK"]))  # so that the other rank's collective ends after its caller has gone on
    groups[0].allreduce([torch.ones(4)])
    compute(0.5)

atexit.register(leave_a_thread_behind)  # before all others, hence run after them

import torch
import torch.distributed as dist

def destroy_and_keep(destroy=dist.destroy_process_group):
    groups.append(dist.group.WORLD)
    destroy()

dist.destroy_process_group = destroy_and_keep
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_ends_well_while_a_thread_holds_a_tensor(tmp_path):
    late = tmp_path / "late.py"
    late.write_text(LATE_THREAD)
    done = run_two(str(late), str(EXAMPLE), *SMALL, "--type", "float32")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "24x32x64" in done.stdout


def test_says_how_to_start_it():
    done = run_python([str(EXAMPLE)])
    assert done.returncode == 2 and "torchrun --standalone --nproc-per-node 2" in done.stderr


def check_wrong_results_are_noticed() -> None:
    """Every device's error beyond that of one fails the report: here a product whose last row is lost."""
    sys.path.insert(0, str(EXAMPLE.parent))
    import tensor_parallel as example

    mesh = example.init_device_mesh("cpu", (2,))
    assert example.run(mesh, [(24, 32, 64)], ["float32"], 1).right
    product = fastgemm.matmul

    def without_a_rank(a, b, **options):
        lost = isinstance(a, example.DTensor) and mesh.get_local_rank() == 1
        return product(a, b, **options) * (0 if lost else 1)

    fastgemm.matmul = without_a_rank
    try:
        report = example.run(mesh, [(24, 32, 64)], ["float32"], 1)
    finally:
        fastgemm.matmul = product
    assert not report.right
    assert {row.choice for row in report.results if not row.right} == {"whole"}


def test_wrong_results_are_noticed():
    ranks = Ranks(2, "cpu")
    try:
        ranks.run(check_wrong_results_are_noticed)
    finally:
        ranks.stop()


MILLISECONDS = {
    "one device": 10.0,
    "compute": 5.0,
    "all-reduce": 1.25,
    "by hand": 6.25,
    "whole": 8.0,
    "one product": 4.0,
    "columns": 3.0,
    "inner": 4.0,
}


def report_of(*sizes: tuple[int, int, int], all_reduce: list[float]) -> Report:
    environment = {
        "devices": 2,
        "backend": "nccl",
        "device": "NVIDIA Test",
        "device_type": "cuda",
        "nccl": "2.28",
    }
    environment |= {"driver": "580", "cuda": "13.0", "cublas": "13.0", "torch": "2.11.0", "commit": "0123"}
    report = Report("tensor_parallel", environment | {"date": "2026-01-01T00:00:00"}, {})
    for size, reduce in zip(sizes, all_reduce, strict=True):
        for choice, milliseconds in (MILLISECONDS | {"all-reduce": reduce}).items():
            row = Measurement(
                "mlp", size, "x".join(map(str, size)), "bfloat16", "", 0, "", None, choice=choice
            )
            alone = MILLISECONDS[
                "one product" if choice in ("columns", "inner", "one product") else "one device"
            ]
            row.seconds = Summary.of([milliseconds / 1e3])
            row.speedup = Summary.of([alone / milliseconds])
            row.rate = size[0] * size[1] * 2 / milliseconds / 1e6 if choice == "all-reduce" else 100.0
            report.results.append(row)
    return report


def test_tables():
    report = report_of((1000, 1000, 4000), all_reduce=[1.25])
    line = SCALING.text(report.results).splitlines()[2]
    assert line == (
        "| 1000x1000x4000 | bfloat16 | 10.0 | 100 | 5.00 | 1.25 | 1.6 | 6.25 | 80 % | 8.00 | 62 % |"
    )
    line = CUTS.text(report.results).splitlines()[2]
    assert line == "| 1000x1000x4000 | bfloat16 | 4.00 | 3.00 | 67 % | 4.00 | 50 % |"
    section = OF_FILES["gpu_scale"].text(report)
    assert "On 2 devices through NCCL 2.28. Measured on NVIDIA Test" in section
    assert "`examples/tensor_parallel.py`" in section
