"""Tests every instruction set that the kernels are compiled for and that this processor supports."""

import random
from pathlib import Path

import pytest
from processes import INSTRUCTION_SETS, run_forked, run_with_instruction_set

HERE = Path(__file__).parent


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_row_right(isa):
    """No table measured for another instruction set is used; predictions use the available units."""
    done = run_with_instruction_set(isa, HERE / "isa_worker.py")
    features, properties, kernel = done.stdout.splitlines()[-3:]
    assert features == INSTRUCTION_SETS[isa]
    assert properties == f"{isa} False False False False"
    # torch ignores the variable, and a processor without its units counts as one that was not measured.
    assert kernel in ("torch", "microkernel", "pipelined")


def test_an_unknown_instruction_set_is_refused():
    wrong = f"avx{random.randint(600, 999)}"
    done = run_forked("import fastgemm; fastgemm.build_info()", FASTGEMM_CPU_ISA=wrong)
    assert done.returncode != 0
    assert f"FASTGEMM_CPU_ISA={wrong}: expected baseline, avx2, avx512 or native" in done.stderr
