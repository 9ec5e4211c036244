"""Every instruction set that the kernels are compiled for, whatever this processor is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fastgemm import _introspect
from processes import INSTRUCTION_SETS, run_python, run_with_instruction_set

HERE = Path(__file__).parent


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_row_right(isa):
    """No table measured for another instruction set is used; predictions use the available units."""
    done = run_with_instruction_set(isa, HERE / "isa_worker.py")
    features, properties, chosen = done.stdout.splitlines()[-3:]
    assert features == INSTRUCTION_SETS[isa]
    assert properties == f"{isa} False False False False"
    kernel, torch_seconds = chosen.split()
    # torch keeps AVX512-FP16 whatever ours are told, which is ahead of the baseline alone.
    torch_is_ahead = isa == "baseline" and _introspect.cpu_properties()["fp16"]
    assert kernel in (("torch",) if torch_is_ahead else ("microkernel", "pipelined"))
    here = dict(_introspect.cpu_predictions(("bfloat16", "ieee", 1, 512, 512, 512, False, False), 1))
    assert float(torch_seconds) == pytest.approx(here["torch"]), "torch does not obey the variable"


def test_an_unknown_instruction_set_is_refused():
    wrong = f"avx{random.randint(600, 999)}"
    done = run_python(["-c", "import fastgemm; fastgemm.build_info()"], FASTGEMM_CPU_ISA=wrong)
    assert done.returncode != 0
    assert f"FASTGEMM_CPU_ISA={wrong}: expected baseline, avx2, avx512 or native" in done.stderr
