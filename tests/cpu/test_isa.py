"""Every instruction set that the kernels are compiled for, whatever this processor is."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import fastgemm
import pytest

HERE = Path(__file__).parent
EXPECTED = {"baseline": "baseline", "avx2": "avx2", "avx512": "avx2 avx512"}


def run_python(code_or_file: list[str], **environment: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)]), **environment}
    return subprocess.run(
        [sys.executable, *code_or_file], env=env, capture_output=True, text=True, timeout=140
    )


@pytest.mark.parametrize("isa", EXPECTED)
def test_every_row_right(isa):
    if not set(EXPECTED[isa].split()) - {"baseline"} <= set(fastgemm.build_info()["cpu_features"].split()):
        pytest.skip(f"this processor has no {isa}: {fastgemm.build_info()['cpu_features']}")
    done = run_python([str(HERE / "isa_worker.py")], FASTGEMM_CPU_ISA=isa)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[-2] == EXPECTED[isa]


def test_an_unknown_instruction_set_is_refused():
    wrong = f"avx{random.randint(600, 999)}"
    done = run_python(["-c", "import fastgemm; fastgemm.build_info()"], FASTGEMM_CPU_ISA=wrong)
    assert done.returncode != 0
    assert f"FASTGEMM_CPU_ISA={wrong}: expected baseline, avx2, avx512 or native" in done.stderr
