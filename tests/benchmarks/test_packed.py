"""Tests the preset packed: its contenders, its checks, and the tables of a page."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from contests import Settings, of_contests
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.timing import CpuTimer, Summary
from presets import packed
from render.pages import OF_FILES
from reports import GPU

SMALL = (64, 256)


@pytest.fixture(scope="module")
def report():
    problems = [*((name, SMALL, m) for name in packed.FORMATS for m in (1, 70)), ("int8", SMALL, None)]
    return of_contests("packed", {"cpu": problems}, packed.contest)(Settings("cpu", budget=1e-4))


def test_every_row_for_these_codes_is_checked_and_timed(report):
    assert report.right, [row.message for row in report.results if not row.right]
    first = [row for row in report.results if row.group == packed.INT4 and row.shape == (1, *SMALL)]
    assert {"fastgemm", "invariant", "streamed_weights", "pipelined", "dequantized", "torch"} <= {
        row.choice for row in first
    }
    assert {row.group for row in report.results} == {*packed.FORMATS}
    for row in report.results:
        assert row.seconds and 0 < row.more["error"] < (0.02 if row.choice == "quantize" else 4e-3), row


@pytest.mark.parametrize(("name", "way"), [("int4, groups of 32", "int4pack"), ("int8", "int8pack")])
def test_kernels_of_torch_get_the_same_codes(name, way):
    weight, x = packed.weight_of(name, 64, 256, "cpu"), torch.randn(5, 256, dtype=torch.bfloat16)
    exact = x.double() @ weight.numbers.double().mT
    ways = packed.from_torch(weight, x)
    if way not in ways:
        pytest.skip(f"this torch has no {way}")
    assert list(ways) == [way] and (ways[way]() - exact).norm() < 1e-2 * exact.norm()


def test_a_wrong_product_and_rows_that_depend_on_others(monkeypatch):
    real = fastgemm.linear

    def wrong(x, *operands, **options):
        result = real(x, *operands, **options)
        return result * 1.01 if not options else result + 0.01 * len(x) * ("invariant" in options)

    monkeypatch.setattr(fastgemm, "linear", wrong)
    rows = packed.contest("cpu", "fp8", SMALL, 3).run(1e-4, CpuTimer())
    bad = {row.choice: row.message for row in rows if not row.right}
    assert bad.keys() == {"fastgemm", "invariant"}
    assert bad["fastgemm"].startswith("error ") and bad["invariant"] == "rows depend on the other rows"


def row(m: int, choice: str, microseconds: float, group: str = packed.INT4, **more) -> Measurement:
    shape = (m, 28672, 8192) if m else (8192, 28672)
    found = Measurement(shape=shape, dtype="bfloat16", group=group, choice=choice, **more)
    found.seconds, found.more = Summary.of([microseconds * 1e-6]), {"error": 2e-3}
    if choice not in ("torch", "read", "quantize"):
        found.speedup = Summary.of([100 / microseconds])
    return found


def test_tables_of_a_gpu():
    rows = [row(0, "quantize", 7500.0)]
    for m, own in ((1, 40.0), (4096, 110.0)):
        rows += [row(m, "fastgemm", own, kernel="packed_tiles"), row(m, "packed_mma", 160.0)]
        rows += [row(m, "torch", 100.0, role="baseline")]
    rows += [
        row(1, "read", 32.0, role="limit"),
        row(1, "fastgemm", 50.0, "nf4"),
        row(1, "torch", 100.0, "nf4"),
    ]
    rows += [row(1, "fastgemm", 1.0, "int8", right=False)]
    rows[-1].seconds = rows[-1].speedup = None  # a wrong result was not timed
    text = OF_FILES["packed"].text(Report("packed", GPU, {"preset": "packed"}, rows))
    for part in (
        "| format | N x K | 1 row | 4096 |",
        "| int4, groups of 128 | 28672 x 8192 | 2.50 | 0.91 |",
        "| nf4 | 28672 x 8192 | 2.00 |  |",
        "| int4, groups of 128 | 28672 x 8192 | 80 % |",
        "| 1 | 100 | 40 | 160 | `packed_tiles` |",
        "`fastgemm.quantize_weight` of 8192 x 28672, milliseconds: 7.5 (int4, groups of 128).",
        "by `python benchmarks/run.py packed`.",
    ):
        assert part in text, text
    assert "int8" not in text
