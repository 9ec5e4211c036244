"""Tests tools/ncu_check.py without a GPU: how it reads a profiler's output and reports differences."""

import json

import counter_check
import fastgemm
import pytest
from fastgemm.bench import Gemm, Transpose
from reference import needs_simulator
from render.counters import section
from scripts import tool

pytestmark = needs_simulator

ncu_check = tool("ncu_check")
PADDED = ncu_check.Case(Transpose(64, 96), "padded")
ENVIRONMENT = {
    "device_type": "cuda",
    "cublas": "13.1.0",
    "device": "NVIDIA Test",
    "driver": "580",
    "cuda": "13.0",
    "ncu": "2025.3",
    "torch": "2.11.0",
    "date": "2026-01-01T00:00:00+00:00",
    "commit": "0123456789ab",
}


def as_ncu_prints(launch, changes=()) -> str:
    """The output of ncu for a launch with the simulator's counts, except for some counters."""
    counts = {**launch.counts, **dict(changes)}
    columns = {"ID": "0", "Kernel Name": f"void unnamed>::{launch.function}(Transpose, Tiles)"}
    columns |= {"Block Size": str(launch.block), "Grid Size": str(launch.grid)}
    for name, (*_, metrics) in ncu_check.COUNTERS.items():
        columns |= {f"{metric}.sum": "0" for metric in metrics}
        columns[f"{metrics[0]}.sum"] = f"{counts[name]:,}"
    lines = [
        [f'"{name}"' for name in columns],
        ['""'] * len(columns),
        [f'"{text}"' for text in columns.values()],
    ]
    return "==PROF== Connected to process 1\n" + "\n".join(",".join(line) for line in lines)


def records(changes=()):
    (launch,) = ncu_check.simulate(PADDED, 132)
    return ncu_check.compared([(PADDED, launch)], ncu_check.parse(as_ncu_prints(launch, changes)))


def test_every_own_row_is_checked():
    own = {
        (row.op, row.name)
        for row in fastgemm.kernels(device="cuda")
        if row.level != ncu_check.LIBRARY_LEVEL
        and row.role != "shortcut"
        and "none" in row.groups
        and not row.needs_scales
        if row.name != "dequantized"
    }
    assert {(case.problem.op, case.kernel) for case in ncu_check.cases()} == own


def test_rows_of_packed_weights_take_their_cases():
    first = {case.kernel: case for case in reversed([*ncu_check.cases()]) if case.weight}
    for case in first.values():
        launches = ncu_check.simulate(case, 2)
        assert any(any(launch.counts.values()) for launch in launches), case
        assert case.about["shape"] == "8x256x512 NT int4"
    assert len(first) == 8


def test_equal_counters():
    found = records()
    # 6 tiles of 32 x 32. Each row of a tile is one warp-wide request to read and one to write.
    assert found[0]["counts"]["load requests"] == [192, 192] and found[0]["grid"] == (6, 1, 1)
    assert found[0]["counts"]["shared load wavefronts"] == [192, 192]
    assert not counter_check.differences(found[0])
    assert ncu_check.report_unexplained(found) == 0
    data = {"environment": ENVIRONMENT, "launches": found}
    text = section(json.loads(ncu_check.as_json(data)))
    assert "| transpose | `padded` | `transpose_shared` |  | 1 | 384 | 1,536 | 384 |" in text
    assert "equal in 1 of 1 launches" in text and "NVIDIA Test" in text


def test_a_difference_without_a_reason_fails(capsys):
    found = records({"shared load wavefronts": 6144}.items())
    assert counter_check.differences(found[0]) == {"shared load wavefronts": None}
    assert ncu_check.report_unexplained(found) == 1
    assert "shared load wavefronts: 192 simulated, 6,144 on the GPU" in capsys.readouterr().err
    text = section({"environment": ENVIRONMENT, "launches": found})
    assert "**384 / 6,336**" in text and "not explained" in text


def test_a_difference_with_a_reason(capsys):
    case = ncu_check.Case(Gemm(32, 32, 32), "tiled")
    (launch,) = ncu_check.simulate(case, 132)
    output = as_ncu_prints(launch, {"shared loads": launch.counts["shared loads"] // 2}.items())
    found = ncu_check.compared([(case, launch)], ncu_check.parse(output))
    assert ncu_check.report_unexplained(found) == 0
    assert "LDS.128" in section({"environment": ENVIRONMENT, "launches": found})


def test_launches_must_be_the_same():
    (launch,) = ncu_check.simulate(PADDED, 132)
    with pytest.raises(SystemExit, match="1 launches simulated, 2 on the GPU"):
        ncu_check.compared([(PADDED, launch)], ncu_check.parse(as_ncu_prints(launch)) * 2)
    other = ncu_check.Launch("transpose_naive_kernel<4, true>", launch.grid, launch.block, launch.counts)
    with pytest.raises(SystemExit, match="transpose_naive_kernel"):
        ncu_check.compared([(PADDED, launch)], [other])
    with pytest.raises(SystemExit, match="no table"):
        ncu_check.parse(
            "==ERROR== The user does not have permission to access NVIDIA GPU Performance Counters"
        )
