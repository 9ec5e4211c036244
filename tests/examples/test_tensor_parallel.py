"""Tests examples/tensor_parallel.py on two processes."""

import subprocess
import sys

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import fastgemm
import tensor_parallel
from click.testing import CliRunner
from pages import ROOT
from processes import run_forked, run_python
from ranks import LOOPBACK, Ranks
from studies.reports import read_report

EXAMPLE = ROOT / "examples" / "tensor_parallel.py"
SMALL = ["--size", "24", "32", "64", "--rounds", "2"]


def run_two(*program: str) -> subprocess.CompletedProcess:
    """Runs a program with torchrun on two processes, without GPUs."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    network = {"GLOO_SOCKET_IFNAME": LOOPBACK} if LOOPBACK else {}
    return run_python([*launch, *program], OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", **network)


def test_run_by_torchrun(tmp_path):
    file = tmp_path / "report.json"
    types = ["--type", "float32", "--type", "bfloat16", "--json", str(file)]
    done = run_two(str(EXAMPLE), *SMALL, *types)
    assert done.returncode == 0, done.stderr[-3000:]
    report = read_report(file)
    assert report.right and report.environment["devices"] == 2
    timed = {(row.type_name, row.choice) for row in report.results if row.seconds.median > 0}
    choices = "one device", "compute", "all-reduce", "by hand", "whole", "one product", "columns", "inner"
    assert timed == {(kind, choice) for kind in ("float32", "bfloat16") for choice in choices}
    assert "24x32x64" in done.stdout


# In this program a thread of gloo is the last to hold a tensor when the interpreter ends, and the program waits
# for it. This sometimes happens on a busy machine. Only the sleep at the very end lets the thread continue.
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
    compute(0.2 * int(os.environ["RANK"]))  # the other rank's collective then ends after its caller continued
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
    done = run_forked(f"import runpy; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')")
    assert done.returncode == 2 and "torchrun --standalone --nproc-per-node 2" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--size", "0", "0", "0"], "'--size': 0 is not in the range"),
        (["--rounds", "0"], "'--rounds': 0 is not in the range"),
        (["--json", "/nonexistent/x"], "does not exist"),
    ],
    ids=str,
)
def test_usage(options, said):
    result = CliRunner().invoke(tensor_parallel.main, options)
    assert result.exit_code == 2 and said in result.output


def check_wrong_results_are_noticed() -> None:
    """The report fails if a device's error exceeds that of a single device. Here a product loses its last row."""
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
