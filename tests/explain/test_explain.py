"""Tests the arithmetic of a report of fastgemm.explain, on hand-made launches."""

from concurrent.futures import ThreadPoolExecutor

import explain_model as model
import fastgemm
import pytest
import torch
from explain_model import only
from fastgemm._explain import build, figures, run
from fastgemm._explain.roofline import _tensor_peak, roofline
from fastgemm._gpus import find_gpu
from processes import run_forked

# --- counters


def test_a_site_counts_sectors_and_what_of_them_is_used(report_of):
    report = report_of(model.naive(coalesced=False), kernel="naive_uncoalesced")
    a, b = only(report.sites, buffer="a"), only(report.sites, buffer="b")
    assert (a.sectors_per_request, a.used, a.conflict) == (32, 1 / 8, None)
    assert (b.sectors_per_request, b.used) == (1, 4 / 32)
    assert (a.file, a.line, a.lanes_per_request) == (model.NAIVE, 35, 32)
    assert figures.wastes(a) and not figures.wastes(b)  # a broadcast needs at least one sector
    totals = report.totals
    requests = 64 * 8 * 128
    assert totals.global_requests == 2 * requests + requests // 128
    assert totals.sectors == requests * (32 + 1) + requests // 128 * 32
    assert totals.bytes_moved == 32 * totals.sectors
    assert totals.conflict is None


def test_a_site_counts_wavefronts(report_of):
    for pitch, conflict in ((32, 32.0), (33, 1.0), (34, 2.0)):
        report = report_of(model.transposed(pitch), "transpose", "shared", (256, 256))
        read = only(report.sites, space="shared", kind="load")
        assert (read.conflict, read.sectors_per_request, read.used) == (conflict, None, None)
        assert figures.wastes(read) == (conflict > 1)
        assert report.totals.conflict == (1 + conflict) / 2


def test_copies_of_a_line_are_merged_and_different_accesses_are_not(report_of):
    first = model.site(16, "global", "load", "a", 4, lambda lane: 4 * lane, 10)
    copies = [{**first, "pc": 20}, model.site(24, "global", "load", "a", 4, lambda lane: 4096 * lane, 10)]
    others = [{**first, "pc": 28, "buffer": "b"}, {**first, "pc": 32, "bytes": 16}]
    others += [{**first, "pc": 36, "kind": "store"}, {**first, "pc": 40}]
    lines = {pc: 40 if pc == 40 else 35 for pc in range(16, 44, 4)}
    launches = [model.launch("naive", "naive", [first, *copies, *others])]
    report = report_of((launches, model.frames(lines, model.NAIVE)))
    assert len(report.sites) == 5
    merged = report.sites[0]
    assert (merged.requests, merged.sectors, merged.lanes) == (30, 40 + 40 + 320, 960)
    assert merged.example[1] == 4096, "the example is the access with the highest cost"


def test_sampled_grids_are_scaled_and_say_so(report_of):
    (launch,), frames = model.naive()
    sampled = {**launch, "blocks": 640, "barriers": 3}
    report = report_of(([sampled], frames))
    assert report.totals.global_requests == 10 * report_of(([launch], frames)).totals.global_requests
    assert report.totals.barriers == 30
    assert any("64 of 640 blocks" in note for note in report.notes)
    assert report.launches[0].sampled and "64 of 640 blocks" in str(report)
    # The accessed bytes are scaled up, too, but never beyond the buffer.
    assert report.roofline.bytes_compulsory == 3 * 4 * 128 * 128


def test_a_site_that_nothing_reached_is_left_out(report_of):
    (launch,), frames = model.naive()
    launch["sites"].append({**launch["sites"][0], "requests": 0})
    assert len(report_of(([launch], frames)).sites) == 3


def test_several_launches_are_added_up_and_the_busiest_is_the_main_one(report_of):
    (first,), frames = model.naive()
    (second,), _ = model.naive(coalesced=False)
    small = {**second, "kernel": "helper", "sites": second["sites"][2:]}
    report = report_of(([small, first], frames))
    assert len(report.launches) == 2 and report.main.kernel == "naive"
    assert report.occupancy is report.launches[1].occupancy
    assert report.totals.global_requests == sum(site.requests for site in report.sites)


# --- problems


def test_problems_are_reported_with_their_place(report_of):
    (launch,), frames = model.naive()
    problem = {"check": "race", "message": "two threads write 'tile'", "sites": [16, 48], "count": 4}
    launch["problems"] = [problem | {"block": (1, 0, 0), "thread": (7, 0, 0)}]
    stopped = RuntimeError("fastgemm: naive: race")
    report = report_of(([launch], frames), raising=stopped)
    (problem,) = report.problems
    assert problem.places == (f"{model.NAIVE}:35", f"{model.NAIVE}:36")
    assert report.error == str(stopped)
    for shown in (str(report), report._repr_html_().replace("&#x27;", "'")):
        for part in (
            "race: two threads write 'tile'",
            "level1_naive.cu:35",
            "block 1,0,0, thread 7,0,0, 4 times",
        ):
            assert part in shown


def test_an_error_that_is_no_fault_of_a_kernel_is_raised(report_of):
    (launch,), frames = model.naive()
    with pytest.raises(RuntimeError, match="cannot run here"):
        report_of(([launch], frames), raising=RuntimeError("level 6 cannot run here"))


# --- roofline


def test_roofline_of_a_product(report_of):
    roof = report_of(model.naive()).roofline
    work, compulsory = 2 * 128**3, 3 * 4 * 128**2
    assert (roof.work, roof.bytes_compulsory) == (work, compulsory)
    assert roof.intensity == pytest.approx(21.33, abs=0.01)
    assert roof.peak == 2 * 128 * 132 * 1.98e9 and roof.executed is None
    assert roof.limits == {"arithmetic": roof.peak, "memory": pytest.approx(4.8e12 * work / compulsory)}
    assert (roof.bound, roof.attainable) == ("arithmetic", roof.peak)
    assert roof.uncached_rate == pytest.approx(4.8e12 * work / roof.bytes_moved)
    assert roof.measured_peak == pytest.approx(64.4e12)


def test_bank_conflicts_lower_the_roof(report_of):
    """32 x 32 tiles of float32 with a 32-way conflict: 32 wavefronts return the bytes of one."""
    conflicted = report_of(model.transposed(32), "transpose", "shared", (256, 256)).roofline
    padded = report_of(model.transposed(33), "transpose", "padded", (256, 256)).roofline
    assert conflicted.bound == "shared memory" and padded.bound == "memory"
    # 33 wavefronts move 2 x 128 useful bytes. Each of 132 multiprocessors has one wavefront per cycle.
    assert conflicted.attainable == pytest.approx(132 * 1.98e9 * 256 / 33)
    assert padded.attainable == pytest.approx(4.8e12)
    assert padded.peak is None and padded.intensity is None


def test_roofline_of_matrix_instructions():
    """A float32 product takes six bf16 products, so its rate is at most a sixth of the tensor cores' rate."""
    work = 2 * 64**3
    site = model.site(16, "none", "mma", "", 0, lambda lane: 0, 10)
    site |= {"instruction": "wgmma.m64n64k16.f32.bf16", "flops": 6 * work}
    gpu = find_gpu("H200")
    frames = model.frames({16: 35}, model.NAIVE)
    launches = tuple(build.build_launch(each, frames, gpu) for each in [model.launch("x", "x", [site])])
    roof = roofline(gpu, launches, op="gemm", dtype="float32", work=work)
    assert roof.peak == pytest.approx(989.4e12 / 6) and roof.executed == 6
    assert roof.unit == "bfloat16 tensor cores" and roof.measured_peak is None


@pytest.mark.parametrize(
    ("instruction", "unit", "tera"),
    [
        ("mma.m8n8k4.f64", "float64 tensor cores", 67),
        ("mma.m16n8k8.f32.tf32", "tf32 tensor cores", 494.7),
        ("mma.m16n8k16.f32.f16", "float16 tensor cores", 989.4),
        ("wgmma.m64n256k32.s32.s8", "int8 tensor cores", 1978.9),
        ("wgmma.m64n256k32.s32.u8", "int8 tensor cores", 1978.9),
    ],
)
def test_matrix_instructions_name_their_unit(instruction, unit, tera):
    assert _tensor_peak(find_gpu("H200"), instruction) == (unit, pytest.approx(tera * 1e12))


# --- threads, builds, imports


def test_a_simulation_that_another_thread_leaves():
    """It must raise, because the simulation would otherwise continue in the thread that entered it."""
    a, simulation = torch.randn(4, 4), fastgemm.simulate()
    with ThreadPoolExecutor(1, "other") as pool:
        pool.submit(simulation.__enter__).result()
        with pytest.raises(RuntimeError, match="in thread 'MainThread', but entered in 'other_0'"):
            simulation.__exit__(None, None, None)
    with fastgemm.simulate():
        torch.testing.assert_close(fastgemm.matmul(a, a, level=2), a @ a)


def test_a_build_without_the_simulator_says_so(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(run.importlib, "import_module", missing)
    for use in (lambda: fastgemm.explain("gemm", level=1, shape=(8, 8, 8)), fastgemm.simulate().__enter__):
        with pytest.raises(RuntimeError, match="FASTGEMM_SIMT=0"):
            use()


def test_importing_the_package_does_not_import_explain():
    code = (
        "import sys, fastgemm as f; print('fastgemm._explain' in sys.modules, 'explain' in dir(f));"
        "f.explain; print('fastgemm._simt' in sys.modules, callable(f.explain))"
    )
    assert run_forked(code).stdout.split() == ["False", "True"] * 2
    with pytest.raises(AttributeError, match="no attribute 'explian'"):
        _ = fastgemm.explian
