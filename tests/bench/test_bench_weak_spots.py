"""What libraries do badly or not at all: the preset, its checks, bytes as a rate, sustained runs, tables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import fastgemm
import pytest
import torch
from fastgemm.bench import Gemm, check, cuda_timing, instantiate, weak_spots
from fastgemm.bench import ladder as ladder_module
from fastgemm.bench.checking import Reference
from fastgemm.bench.cuda_timing import back_to_back_counts, sustained
from fastgemm.bench.ladder import run_ladder
from fastgemm.bench.presets import Case
from fastgemm.bench.problems import Instance, torch_precision
from fastgemm.bench.records import Measurement, Report, read_report, select
from fastgemm.bench.sweep import against_torch, kernel_name, run_sweep, share_of_allowed
from fastgemm.bench.timing import Summary
from fastgemm.cli.bench import cases_of_preset
from fastgemm.cli.tables import outlier_lines
from reference import DEVICES, needs_simulator
from render.pages import OF_FILES
from reports import GPU, gpu_row

BF16 = torch.bfloat16


def cases() -> list[Case]:
    arguments = ("gemm", [torch.float32], ["NN"], ((),), None, 0, 1)
    with pytest.raises(ValueError, match="for --device cuda"):
        cases_of_preset("cpu", "weak_spots", *arguments)
    return cases_of_preset("cuda", "weak_spots", *arguments)


def test_the_preset_covers_what_libraries_lack():
    found = cases()
    assert all(case.choices == ((("level", 6),), ()) for case in found), "own kernels, and the default"
    problems = [case.problem for case in found]
    for precision in ("ieee", "fp16x3"):
        cubes = [p for p in problems if p.precision == precision and p.m == p.n == p.k and p.batch == 1]
        squares = {(p.m, p.layout) for p in cubes}
        expected = {(n, layout) for n in (1024, 2048, 4096, 8192, 16384) for layout in ("NN", "NT")}
        assert squares == expected | {(4096, "TN"), (4096, "TT")}
    assert {p.m for p in problems if p.dtype == torch.int32} == {1024, 2048, 4096, 8192}
    skinny = [case.problem for case in found if case.in_bytes]
    for dtype, rows in weak_spots.ROWS.items():
        for layout in ("NN", "NT"):
            found_sizes = {
                (p.m, p.n, p.k) for p in skinny if (p.dtype, p.layout) == (dtype, layout) and p.n > 8
            }
            weights = (8192, 28672) if dtype == BF16 else (8192,)
            assert found_sizes == {(m, n, 8192) for m in rows for n in weights}
    assert Gemm(8192, 8, 8192, BF16) in skinny
    for dtype, precision in ((BF16, None), (torch.float32, "ieee")):
        assert Gemm(256, 256, 65536, dtype, precision=precision) in problems
        assert Gemm(128, 128, 128, dtype, batch=64, precision=precision) in problems
    assert [p.m for p in (case.problem for case in found if case.sustained)] == [8192]
    assert len(set(found)) == len(found)


SHRUNK = {"m": 40, "n": 24, "k": 72}


def shrunk(case: Case, **more: object) -> Case:
    sizes = {name: min(getattr(case.problem, name), most) for name, most in SHRUNK.items()}
    return replace(case, problem=replace(case.problem, batch=min(case.problem.batch, 2), **sizes), **more)


def test_every_case_runs_checked_and_named():
    small = dict.fromkeys(shrunk(case, sustained=False) for case in cases())
    report = run_sweep(list(small), budget=0.0005)
    assert report.right and all(row.kernel and row.rate for row in report.results)
    assert {row.choice for row in report.results} == {"level 6", "fastest", ""}
    for row in select(report.results, dtype="float16") + select(report.results, label="1x24x72"):
        assert (row.unit, row.limit_name) == ("GB/s", "copy_") and row.share_of_limit
    assert {row.unit for row in select(report.results, dtype="int32")} == {"GFLOPS"}
    assert all(share["problems"] for share in report.summary["default_of_best"].values())


def test_a_case_that_raises_does_not_lose_the_others(monkeypatch, tmp_path):
    def torch_(self):
        if self.problem.m == 3:
            raise RuntimeError("no room")
        return None

    monkeypatch.setattr(Instance, "torch", torch_)
    cubes = [Case(Gemm(n, n, n), "g") for n in (2, 3, 4)]
    report = run_sweep(cubes, budget=0.001)
    assert [row.right for row in report.results] == [True, False, True] and not report.right
    assert report.results[1].message == "raised RuntimeError: no room"
    (tmp_path / "r.json").write_text(report.to_json())
    assert report.results[1].shape == (3, 3, 3) and read_report(tmp_path / "r.json") == report


def test_bytes_of_a_skinny_product():
    problem = Gemm(2, 30, 20, torch.int8, batch=3)
    assert problem.bytes == 3 * (2 * 20 + 20 * 30 + 4 * 2 * 30)
    instance = instantiate(replace(problem, batch=1), in_bytes=True)
    assert instance.work == 2 * 20 + 20 * 30 + 4 * 2 * 30 and instance.unit == ("GB/s", 1e9)
    assert torch.equal(instance.copy()(), instance.operands[1]), "the larger operand"


def test_what_bounds_a_skinny_product_is_a_plain_read_where_there_is_one(monkeypatch):
    instance = instantiate(Gemm(2, 30, 20), in_bytes=True)
    monkeypatch.setattr(Instance, "device", "cuda")
    module = SimpleNamespace(plain_read=lambda x: lambda: x)
    monkeypatch.setitem(sys.modules, "fastgemm.bench.plain_read", module)
    name, call, moved = instance.memory_limit()
    assert (name, moved) == ("plain read", 4 * 30 * 20) and call() is instance.operands[1]

    def no_compiler(x):
        raise FileNotFoundError("no C compiler")

    module.plain_read = no_compiler
    name, call, moved = instance.memory_limit()
    assert (name, moved) == ("copy_", 2 * 4 * 30 * 20) and torch.equal(call(), instance.operands[1])


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_a_plain_read_is_faster_than_a_copy():
    from fastgemm.bench.plain_read import plain_read

    x = torch.ones(1 << 26, dtype=torch.uint8, device="cuda")
    out = torch.empty_like(x)
    read = plain_read(x)
    assert read() is x and bool((x == 1).all())
    timer = cuda_timing.CudaTimer()
    times = [min(timer.sample(call, 1) for _ in range(5)) for call in (read, lambda: out.copy_(x))]
    assert times[0] < times[1]


def split(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    high = x.to(dtype).float()
    return high, ((x - high) * 2**11).to(dtype).float() / 2**11


@pytest.mark.parametrize(("precision", "dtype"), [("fp16x3", torch.float16), ("bf16x3", BF16)])
def test_check_knows_three_products_of_planes(precision, dtype):
    instance = instantiate(Gemm(64, 64, 1024, precision=precision))
    (a, a_low), (b, b_low) = (split(x, dtype) for x in instance.operands)
    reference = Reference(instance)

    def call(*products):
        return lambda: instance.out.copy_(sum(x.double() @ y.double() for x, y in products))

    right = check(call((a, b), (a, b_low), (a_low, b)), reference)
    assert right.right and right.worst < 0.7
    assert not check(call((a, b), (a_low, b)), reference).right, "a product is missing"


def test_torch_has_no_planes():
    matmul = torch.backends.cuda.matmul
    with torch_precision(Gemm(1, 1, 1, precision="fp16x3")):
        assert matmul.fp32_precision == "ieee"


def test_a_level_names_the_kernel_that_it_picks():
    instance = instantiate(Gemm(8, 8, 8))
    names = {level: kernel_name(instance, (("level", level),)) for level in (1, 5, 7)}
    assert names == {1: "naive", 5: "microkernel", 7: instance.chosen()}
    assert kernel_name(instance, (("kernel", "blocked"),)) == "blocked"
    with pytest.raises(ValueError, match="level must be 1 to 7"):
        instance.chosen(8)


@needs_simulator
def test_a_ladder_shows_the_rung_that_a_level_picks(monkeypatch):
    here = [replace(row, unavailable=None) for row in fastgemm.kernels("gemm", "cuda") if row.level == 6]
    monkeypatch.setattr(
        ladder_module, "kernels", lambda op, device, dtype=torch.float32: [r for r in here if r.takes(dtype)]
    )
    monkeypatch.setattr(Instance, "chosen", lambda self, level=None: "wmma")
    with fastgemm.simulate():
        report = run_ladder([Gemm(16, 16, 16, BF16)], budget=0.001)
    assert [row.kernel for row in select(report.results, role="rung")] == ["wmma"]


class FakeClock:
    """The time of a GPU that takes a given time for each call, and what torch and the sensors say of it."""

    def __init__(self) -> None:
        self.now = 100.0

    def call(self, seconds: float) -> Callable[[], None]:
        return lambda: setattr(self, "now", self.now + seconds)

    def event(self, enable_timing: bool) -> SimpleNamespace:
        found = SimpleNamespace(at=0.0, synchronize=lambda: None)
        found.record = lambda: setattr(found, "at", self.now)
        found.elapsed_time = lambda end: (end.at - found.at) * 1e3
        return found

    def sample(self, call: Callable[[], None], repeats: int) -> float:
        start = self.now
        call()
        return self.now - start

    def joules(self) -> float:
        return 400 * self.now  # an energy counter that says 400 W

    def since(self, start: float) -> dict:
        return {"power_w": 500.0}


def test_a_sample_on_a_gpu_encloses_the_call_alone(monkeypatch):
    done = []
    timer = object.__new__(cuda_timing.CudaTimer)
    timer._flush = SimpleNamespace(zero_=lambda: done.append("flush"))
    timer._start, timer._end = (
        SimpleNamespace(record=lambda name=name: done.append(name), synchronize=lambda: None)
        for name in ("start", "end")
    )
    timer._start.elapsed_time = lambda end: 3.0
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append("spin"))
    assert timer.sample(lambda: done.append("call"), 1) == 3e-3
    assert done == ["spin", "flush", "start", "call", "end"]


def test_back_to_back(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(cuda_timing.time, "perf_counter", lambda: clock.now)
    calls = {"own": clock.call(1 / 128), "torch": clock.call(1 / 32)}
    counts = back_to_back_counts(calls, clock)
    assert counts == {"own": 2 * 128, "torch": 2 * 32}
    samples, readings = sustained(calls, counts, clock)
    assert samples.speedup("own", over="torch").median == 4
    assert readings["own"]["seconds"] == 1
    assert readings["own"]["joules_per_call"] == 400 / 128
    _, short = sustained(calls, dict.fromkeys(calls, 4), clock)
    assert short["own"]["joules_per_call"] == 500 / 128, "too short for the counter"


def timed(label: str, own: float, torch_: float) -> list[Measurement]:
    instance = instantiate(Gemm(1, 1, 1))
    rows = []
    for kernel, role, seconds in (("own", "rung", own), ("torch", "baseline", torch_)):
        row = Measurement.of(instance, kernel, None, role=role, group="random float32")
        row.label, row.seconds = label, Summary.of([seconds])
        rows.append(row)
    rows[0].speedup = Summary.of([torch_ / own])
    return rows


def test_random_problems_are_summed_up():
    found = [timed("fast", 1e-3, 2e-3), timed("slow", 1.2e-3, 1e-3), timed("tiny", 5e-6, 4.5e-6)]
    assert share_of_allowed(found[1]) == pytest.approx(1.2 / 1.04)
    assert share_of_allowed(found[2]) == pytest.approx(5 / 5.5)
    assert share_of_allowed(found[0][:1]) is None
    overall = against_torch(found)
    assert overall["problems"] == 3 and overall["least"] == pytest.approx(1 / 1.2)
    assert overall["speedup"] == pytest.approx((2 / 1.2 * 0.9) ** (1 / 3))
    assert overall["worst"]["problem"] == "float32 slow" and overall["worst"]["kernel"] == "own"
    report = Report(
        "bench", GPU, {}, summary={"measured_again": [], "outliers": [], "against_torch": overall}
    )
    (_, line) = outlier_lines(report)
    assert (
        "geometric mean over torch 1.14, least 0.83; worst: float32 slow, own, 0.83 of torch, 115 %" in line
    )
    report.summary["against_torch"] = against_torch([found[0][:1]])
    assert len(outlier_lines(report)) == 1


def gpu_report() -> Report:
    def trio(
        problem: Gemm, group: str, kernel: str, own: float, default: float, library: bool = True, **more
    ):
        rows = [
            gpu_row(problem, group, kernel, own, 6, **more),
            gpu_row(problem, group, "chosen", default, **more),
        ]
        if library:
            return [*rows, gpu_row(problem, group, "torch.matmul", 50.0, None, "baseline", **more)]
        for row in rows:
            row.speedup = None
        return rows

    limit = {"limit": 60.0, "limit_name": "FMA peak"}
    rows = []
    for n, rate in ((4096, 120.0), (8192, 130.0)):
        problem = Gemm(n, n, n, precision="ieee")
        rows += trio(problem, "float32", "bf16x6", rate, 0.99 * rate, **limit)
    rows += trio(Gemm(4096, 4096, 4096, torch.int32), "int32", "int8x10", 150.0, 75.0, library=False)
    heated = trio(
        Gemm(8192, 8192, 8192, precision="ieee"), "back to back", "bf16x6", 110.0, 109.0, joules=5.0
    )
    for row in heated:
        row.telemetry |= {"temperature_c": 60.0, "throttled_by": ["power cap"]}
    copied = {"limit": 4000.0, "limit_name": "plain read"}
    rows += trio(Gemm(8, 8192, 8192, BF16), "bfloat16, skinny", "skinny", 3600.0, 3500.0, **copied)
    method = {
        "text": "as measured",
        "back_to_back": "warm calls",
        "presets": ["weak_spots"],
        "timer": "cuda events",
    }
    return Report("bench", {**GPU, "device": "NVIDIA H200"}, method, rows + heated)


def test_tables():
    report = gpu_report()
    means = OF_FILES["gpu_weak_spots_means"].text(report)
    assert (
        "| float32 | `bf16x6` | 2 | 130 TFLOPS | 217 % of FMA peak | `torch.matmul` | 2.50 | 2.40 | 0.99 | 0.99 |"
        in means
    )
    assert "| int32 | `int8x10` | 1 | 150 TFLOPS | - | torch has none | - | - | 0.50 | 0.50 |" in means
    problems = OF_FILES["gpu_weak_spots"].text(report)
    assert (
        "| 4096x4096x4096 | `bf16x6` | 120 TFLOPS | 200 % of FMA peak | `torch.matmul` | 2.40 |" in problems
    )
    assert "NVIDIA H200 (driver 580" in problems and "by `fastgemm bench --preset weak_spots`" in problems
    heated = OF_FILES["gpu_weak_spots_sustained"].text(report)
    assert "| level 6 | `bf16x6` | 110 TFLOPS | 2.20 | 1800 | 650 | 5 | 100.00 |" in heated
    assert "Back to back: warm calls; energy by the GPU's counter." in heated
