"""Runs programs of tests in separate processes."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import fastgemm
import pytest
import torch

# Seconds that a test waits for a process or thread that it started. Less than the limit of a test
# (conftest.py).
PATIENCE = 350

# The values of FASTGEMM_CPU_ISA, and the instruction sets that rows are then built for.
INSTRUCTION_SETS = {"baseline": "baseline", "avx2": "avx2", "avx512": "avx2 avx512"}


def run_python(code_or_file: list[str], **environment: str) -> subprocess.CompletedProcess:
    """Runs Python in a new process that can import the same modules as this one."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    return subprocess.run(
        [sys.executable, *code_or_file], env=env, capture_output=True, text=True, timeout=PATIENCE
    )


# Imports torch once, and forks for each program that it receives. torch must not have threads yet.
_FORKS = """
import gc, json, os, sys, torch
gc.freeze()  # else a fork that ends copies and visits all that torch has made
for line in sys.stdin:
    code, environment, path, here, out = json.loads(line)
    if not (child := os.fork()):
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{out}/{name}", os.O_WRONLY | os.O_CREAT), number)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        os.chdir(here)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
exec(code, {"__name__": "__main__"})
"""


@functools.cache
def _forks() -> subprocess.Popen:
    """The process that forks. It ends with this process, which holds its standard input."""
    return subprocess.Popen(
        [sys.executable, "-c", _FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def run_forked(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs a program in a new process in which torch is already imported. Importing it takes most of the
    start-up time.

    ``run_python`` is for programs that change how torch itself is imported.
    """
    if torch.cuda.is_available():  # CUDA does not survive a fork
        return run_python(["-c", code], **environment)
    forks = _forks()
    with tempfile.TemporaryDirectory() as out:
        task = code, {**os.environ, **environment}, sys.path, os.getcwd(), out
        try:
            print(json.dumps(task), file=forks.stdin, flush=True)
            status = int(forks.stdout.readline())
        except BaseException:  # for example the test's time limit; a late answer would reach the next test
            forks.kill()
            _forks.cache_clear()
            raise
        said = [Path(out, name).read_text(errors="replace") for name in ("stdout", "stderr")]
    return subprocess.CompletedProcess(code, status, *said)


def run_with_instruction_set(isa: str, program: Path) -> subprocess.CompletedProcess:
    """Runs a program with the kernels of an instruction set; skips the test if the processor lacks it."""
    features = fastgemm.build_info()["cpu_features"]
    if not set(INSTRUCTION_SETS[isa].split()) - {"baseline"} <= set(features.split()):
        pytest.skip(f"this processor has no {isa}: {features}")
    done = run_forked(program.read_text(encoding="utf-8"), FASTGEMM_CPU_ISA=isa)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def copy_of_package(folder: Path, *libraries: str) -> Path:
    """Copies the package's Python files, with only the named libraries. In a wheel, these have modules for
    every Python."""
    source = Path(fastgemm.__file__).parent
    target = folder / "fastgemm"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.so", "csrc"))
    for library in libraries:
        found = list(source.glob(library))
        assert found, f"{source} has no {library}"
        for file in found:
            shutil.copy(file, target)
    return folder
