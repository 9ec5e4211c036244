"""Tests that no launch requests more shared memory than a block may have on the GPUs that its row supports.

Launchers run as for a GPU of each kind, but no block runs. The simulator refuses a launch with too much
dynamic shared memory; static shared memory is read from the machine code. Launchers choose their tiles by the
problem, so there are small problems, problems that fill a GPU, narrow ones, and long sums.
"""

from typing import Any

import fastgemm
import pytest
import torch
from compiled import compiled_for
from fastgemm._explain.run import load_simulator
from pairwise import pairs
from reference import by_name, needs_simulator, row_id, simulated_rows

pytestmark = needs_simulator

# The shared memory that a block may have, by compute capability: CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability". 8.0 stands for 8.7 as well, 8.6 for 8.9, 9.0 for 10.x and 11.0, 12.0
# for 12.1.
LIMITS = {80: 163 << 10, 86: 99 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}
SHAPES = ((96, 80, 136), (2048, 1536, 320), (8, 2048, 1024), (2048, 3, 520), (64, 64, 4096), (999, 1001, 200))
OPERATIONS = {"transpose": fastgemm.transpose, "add": fastgemm.add}
ROWS = {(op, row.name): row for op in ("gemm", *OPERATIONS) for row in fastgemm.kernels(op, "cuda")}
ROWS = {key: row for key, row in ROWS.items() if row.role != "shortcut"}  # this launches other rows


def launches(capability: int, call: Any, *operands: Any, **options: Any) -> list[dict[str, Any]]:
    """The launches of a call on a GPU of this compute capability. None of them runs."""
    simulator = load_simulator()
    simulator.begin(False, True, multiprocessors=64, max_blocks=0, capability=capability, run=False)
    try:
        call(*operands, **options)
    finally:
        found = simulator.end()
    return found


def runs_on(capability: int, op: str, kernel: str) -> bool:
    needs = ROWS[op, kernel].needs
    if "sm_90a" in needs:
        return capability == 90
    return "144 KB" not in needs or LIMITS[capability] >= 144 << 10


def assert_fit(capability: int, found: list[dict[str, Any]]) -> None:
    assert found
    for launch in found:
        compiled = compiled_for(f"{capability / 10}", launch["function"], launch["kernel"])
        assert compiled.shared_bytes + launch["dynamic_shared"] <= LIMITS[capability], launch["kernel"]


@pytest.mark.parametrize(("kernel", "dtype"), simulated_rows("gemm"), ids=row_id)
def test_launches_of_products_fit(kernel, dtype):
    for (m, n, k), capability, columns in pairs(SHAPES, LIMITS, (False, True)):
        if runs_on(capability, "gemm", kernel):
            a = torch.empty(k, m, dtype=dtype).t() if columns else torch.empty(m, k, dtype=dtype)
            b = torch.empty(k, n, dtype=dtype)
            assert_fit(capability, launches(capability, fastgemm.matmul, a, b, **by_name(kernel, dtype)))


@pytest.mark.parametrize("op", OPERATIONS)
def test_launches_of_other_operations_fit(op):
    for kernel, dtype in simulated_rows(op):
        a = torch.zeros(1000, 777, dtype=dtype)
        operands = (a,) if op == "transpose" else (a, a.clone())
        for capability in LIMITS:
            assert runs_on(capability, op, kernel)
            found = launches(capability, OPERATIONS[op], *operands, kernel=kernel)
            assert_fit(capability, found)
