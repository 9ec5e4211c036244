"""Tests ``fastgemm tune`` without a GPU: its measurements, the constants from them, and its file."""

import json
import math
import statistics
import warnings

import fastgemm
import pytest
import torch
from fake_gpu import SECONDS, FakeGpu, number_of, properties_of
from fastgemm import _introspect, _tune
from fastgemm._choice import predictions as _predictions
from fastgemm._tune import measuring, refit
from fastgemm._tune.problems import LONGEST, MOST_BYTES, SERIES, bytes_of, problems
from fastgemm.bench.timing import CpuTimer
from processes import run_forked

FACTORS = {"mma_sync": 0.6, "dmma": 0.5, "small_tile": 2.0, "split_k": 1.6, "bf16x6": 1.7, "int8x10": 0.7}
HALF = ("float16", "ieee", 1, 2048, 2048, 2048, False, False)
ROUND = SECONDS * len(SERIES)  # one problem of each series
OTHER = "NVIDIA Other, 46 multiprocessors"

pytest.importorskip("scipy")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))
    _introspect.reset_predictions()
    yield tmp_path / "predictions.json"
    _introspect.reset_predictions()


@pytest.fixture
def gpu(monkeypatch):
    found = FakeGpu(factors=FACTORS)
    monkeypatch.setattr(_tune, "gpu_at_hand", lambda: found.target)
    return found


def tune_quickly(**options):
    return fastgemm.tune(seconds=5 * ROUND, **options)


# What is measured


def test_problems_are_spread():
    made = problems("float16", "ieee", properties_of(OTHER))
    found = [next(made) for _ in range(400)]
    sizes = [problem[2:6] for problem in found]
    aligned = [all(size % 8 == 0 for size in s[1:]) for s in sizes]
    assert {problem[6:] for problem in found} == {(a, b) for a in (False, True) for b in (False, True)}
    assert 100 < sum(aligned) < 300
    for count, least in (
        (sum(s[0] > 1 for s in sizes), 30),
        (sum(s[1] == s[2] == s[3] and s[0] == 1 for s in sizes), 30),
        (sum(min(s[1:]) <= 32 for s in sizes), 50),
        (sum(min(s[1:]) >= 1024 for s in sizes), 20),
    ):
        assert count >= least


@pytest.mark.parametrize("series", SERIES, ids="-".join)
def test_problems_are_sized_to_the_gpu_and_the_same_again(series):
    gpu = properties_of(OTHER)
    found = [problem for problem, _ in zip(problems(*series, gpu), range(60), strict=False)]
    assert found == [problem for problem, _ in zip(problems(*series, gpu), range(60), strict=False)]
    for problem in found:
        own = [s for name, s in _introspect.predictions(problem, gpu) if name != "library"]
        assert bytes_of(problem) <= MOST_BYTES and min(own) <= LONGEST
    small = problems(*series, gpu, most_bytes=1 << 20)
    assert all(bytes_of(next(small)) <= 1 << 20 for _ in range(30))


def test_every_series_has_its_turn_until_time_is_up(gpu):
    shares = []
    found = fastgemm.tune(seconds=4 * ROUND, progress=lambda text, share: shares.append(share))
    assert len(found.points) == len(gpu.asked) == 4 * len(SERIES)
    assert [problem[:2] for problem, _ in gpu.asked] == 4 * list(SERIES)
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] < 1
    assert found.seconds == pytest.approx(4 * ROUND)


def test_only_kernels_that_may_win_are_timed(gpu):
    fastgemm.tune(seconds=8 * ROUND)
    near = [(problem, names) for i, (problem, names) in enumerate(gpu.asked) if i // len(SERIES) % 4 != 3]
    far = [(problem, names) for i, (problem, names) in enumerate(gpu.asked) if i // len(SERIES) % 4 == 3]
    assert all("library" in names for _, names in gpu.asked)
    for problem, names in near[: 2 * len(SERIES)]:  # before any correction
        expected = measuring.predicted(problem, gpu.properties | {"number": 0})
        least = min(expected[name] for name in expected if name not in ("library", "bf16x3", "fp16x3"))
        assert set(names) == {n for n, s in expected.items() if n == "library" or s <= measuring.NEAR * least}
    assert statistics.mean(len(n) for _, n in far) > 1.2 * statistics.mean(len(n) for _, n in near)


def test_a_kernel_comes_into_the_race_where_its_constants_are_far_off(gpu):
    """By its constants the kernel seems 3 times as slow as others, but it is equally fast."""
    gpu.factors |= {"cp_async": 0.25, "mma_sync": 1.0, "direct": 1.0}
    fastgemm.tune(seconds=60 * SECONDS, dtypes=["float64"])
    timed = ["cp_async" in names for _, names in gpu.asked]
    assert statistics.mean(timed[-20:]) > statistics.mean(timed[:20])


def test_the_stopwatch_times_those_that_take_the_problem_and_passes_errors_on(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("illegal memory access")

    stopwatch = measuring.DeviceStopwatch("cpu", CpuTimer())
    problem = ("float32", "ieee", 1, 48, 40, 33, True, False)
    found = stopwatch(problem, ["naive", "simd", "dot_int8", "library"])
    assert set(found) == {"naive", "simd", "library"}
    assert all(1e-8 < seconds < 1 for seconds in found.values())
    monkeypatch.setattr("fastgemm.bench.problems.ops.matmul", fail)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        stopwatch(problem, ["naive"])


# What follows


def test_predictions_of_this_gpu_follow_and_of_no_other(gpu):
    other = properties_of(OTHER)
    before = {number: _introspect.predictions(HALF, g) for number, g in enumerate((other, gpu.properties))}
    assert before[0] == before[1] and _introspect.knowledge(gpu.properties) == "predicted"
    fastgemm.tune(seconds=60 * ROUND)
    assert _introspect.knowledge(gpu.properties) == "tuned" and _introspect.knowledge(other) == "predicted"
    assert _introspect.predictions(HALF, other) == before[0]
    now = dict(_introspect.predictions(HALF, gpu.properties))
    for name in ("mma_sync", "library", "small_tile"):
        assert now[name] == pytest.approx(gpu.seconds(HALF, name), rel=0.15), name
    assert now["mma_sync"] < 0.75 * dict(before[1])["mma_sync"]


@pytest.mark.parametrize("rounds", [12, 60])
def test_choices_become_better(gpu, rounds):
    found = fastgemm.tune(seconds=rounds * ROUND)
    assert set(found.after) == {dtype if p == "ieee" else p for dtype, p in SERIES}
    for series, after in found.after.items():
        before = found.before[series]
        assert after.points == rounds
        assert 1 <= after.free <= max(1.05, before.free) and after.level6 <= max(1.1, 1.02 * before.level6)
    lost = [statistics.mean(quality.free for quality in q.values()) - 1 for q in (found.before, found.after)]
    assert lost[0] > 0.02 and lost[1] < lost[0] / 3


def test_a_kernel_with_few_points_keeps_its_constants_scaled(gpu):
    shipped = _introspect.costs("dmma", "float64", gpu.properties)
    found = fastgemm.tune(seconds=20 * SECONDS, dtypes=[torch.float64])
    assert 5 <= sum("dmma" in point.seconds for point in found.points) < refit.ENOUGH
    scaled = _introspect.costs("dmma", "float64", gpu.properties)
    assert scaled == pytest.approx([FACTORS["dmma"] * cost for cost in shipped], rel=0.02)


def test_types_that_were_not_asked_for_stay(gpu):
    double = ("float64", *HALF[1:])
    before = _introspect.predictions(HALF, gpu.properties), _introspect.predictions(double, gpu.properties)
    found = fastgemm.tune(seconds=40 * SECONDS, dtypes=["float64"])
    assert {point.problem[0] for point in found.points} == {"float64"}
    assert _introspect.predictions(HALF, gpu.properties) == before[0]
    assert _introspect.predictions(double, gpu.properties) != before[1]


def test_kernels_of_sixteen_bits_are_fitted_together(gpu):
    found = fastgemm.tune(seconds=50 * SECONDS, dtypes=["float16", "bfloat16"])
    costs = {(fit.kernel, fit.dtype): fit.costs for fit in found.fitted.kernels}
    assert costs["mma_sync", "float16"] == costs["mma_sync", "bfloat16"]
    assert [fit.dtype for fit in found.fitted.library] == ["float16", "bfloat16"]


def test_int32_alone_has_no_library(gpu):
    found = fastgemm.tune(seconds=40 * SECONDS, dtypes=["int32"])
    assert found.fitted.library == () and _introspect.knowledge(gpu.properties) == "tuned"


# The file


def test_a_later_process_loads_it(gpu, cache):
    assert tune_quickly().saved
    done = run_forked(
        "import json; from fastgemm import _introspect as i;"
        f"print(json.dumps([i.knowledge({gpu.properties}), dict(i.predictions({HALF}, {gpu.properties}))]))"
    )
    assert done.stderr == ""
    knowledge, predictions = json.loads(done.stdout)
    assert knowledge == "tuned"
    assert predictions == pytest.approx(dict(_introspect.predictions(HALF, gpu.properties)), rel=1e-4)
    assert list(predictions) == [name for name, _ in _introspect.predictions(HALF, gpu.properties)]


def test_it_need_not_be_saved(gpu, cache):
    assert not tune_quickly(save=False).saved and not cache.exists()
    assert _introspect.knowledge(gpu.properties) == "tuned"


def test_two_gpus_and_types_tuned_later_lie_side_by_side(gpu, cache, monkeypatch):
    fastgemm.tune(seconds=10 * SECONDS, dtypes=["float64"])
    fastgemm.tune(seconds=20 * SECONDS, dtypes=["int8"])
    other = FakeGpu(OTHER)
    monkeypatch.setattr(_tune, "gpu_at_hand", lambda: other.target)
    fastgemm.tune(seconds=10 * SECONDS, dtypes=["float32"])
    found = {fitted.gpu: fitted for fitted in _predictions.read()}
    assert set(found) == {gpu.name, OTHER}
    assert {fit.dtype for fit in found[gpu.name].kernels} == {"float64", "int8"}
    assert {(f.dtype, len(f.points)) for f in found[gpu.name].library} == {("float64", 10), ("int8", 20)}


def test_forget_takes_back_this_gpu_alone(gpu, cache, monkeypatch):
    before = _introspect.predictions(HALF, gpu.properties)
    tune_quickly()
    other = FakeGpu(OTHER)
    with monkeypatch.context() as patch:
        patch.setattr(_tune, "gpu_at_hand", lambda: other.target)
        tune_quickly()
    assert _tune.forget() == (gpu.name, True)
    assert _introspect.predictions(HALF, gpu.properties) == before
    assert _introspect.knowledge(other.properties) == "tuned"
    assert [fitted.gpu for fitted in _predictions.read()] == [OTHER]
    assert _tune.forget() == (gpu.name, False)


def test_sets_of_other_versions_are_kept_but_not_used(gpu, cache):
    entry = tune_quickly().fitted.as_json()
    other = {f"gpu {OTHER}|torch 9.9": entry}
    other |= {_predictions.environment(gpu.name): entry | {"terms": "0.0: launch"}}
    cache.write_text(json.dumps({"format": 1, "sets": other}))
    _introspect.reset_predictions()
    assert _predictions.load() == 0 and _introspect.knowledge(gpu.properties) == "predicted"
    tune_quickly()
    assert set(json.loads(cache.read_text())["sets"]) == set(other)


def _changed(**change):
    def damage(sets: dict) -> bytes:
        entry = next(iter(sets.values())) | change
        return json.dumps({"format": 1, "sets": dict.fromkeys(sets, entry)}).encode()

    return damage


ONES = [1.0] * len(_introspect.COUNTS)
DAMAGED = {
    "empty": lambda sets: b"",
    "cut off": lambda sets: json.dumps({"format": 1, "sets": sets}).encode()[:-20],
    "another format": lambda sets: b'{"format": "tuned", "sets": {}}',
    "sets a list": lambda sets: b'{"format": 1, "sets": []}',
    "not UTF-8": lambda sets: b"\xff\xfe\x00{}",
    "nested too deep": lambda sets: b"[" * 200_000,
    "a set a number": lambda sets: json.dumps({"format": 1, "sets": dict.fromkeys(sets, 5)}).encode(),
    "no properties": _changed(properties={}),
    "no multiprocessors": _changed(properties=properties_of(OTHER) | {"multiprocessors": 0}),
    "a kernel that there is not": _changed(kernels=[["yesterday", "float16", ONES]]),
    "a type that there is not": _changed(kernels=[["mma_sync", "float4", ONES]]),
    "too few constants": _changed(kernels=[["mma_sync", "float16", [1.0]]]),
    "a constant below zero": _changed(kernels=[["mma_sync", "float16", [-1.0, *ONES[1:]]]]),
    "a constant that is no number": _changed(kernels=[["mma_sync", "float16", [math.nan, *ONES[1:]]]]),
    "a point without time": _changed(library=[["float16", "ieee", ONES, [[list(HALF), 0.0]]]]),
    "a point without size": _changed(library=[["float16", "ieee", ONES, [[["float16", "ieee", 0], 1.0]]]]),
    "a size beyond int64": _changed(
        library=[["float16", "ieee", ONES, [[[*HALF[:3], 2**70, *HALF[4:]], 1]]]]
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_ignored_with_one_warning_and_replaced(gpu, cache, damage):
    tune_quickly()
    cache.write_bytes(DAMAGED[damage](json.loads(cache.read_text())["sets"]))
    _introspect.reset_predictions()
    with pytest.warns(
        RuntimeWarning, match=r"ignoring the results of fastgemm tune .*predictions\.json"
    ) as caught:
        assert _predictions.load() == 0
    assert len(caught) == 1 and _introspect.knowledge(gpu.properties) == "predicted"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune_quickly()
        _introspect.reset_predictions()
        assert _predictions.load() == 1
    assert _introspect.knowledge(gpu.properties) == "tuned"


def test_a_damaged_file_does_not_stop_the_import(cache):
    cache.write_bytes(b'{"format": 1, "sets": {"x": [[[')
    done = run_forked("import fastgemm; print('imported')")
    assert done.stdout == "imported\n" and done.stderr.count("Warning") == 2  # of GPU and processor


def test_an_unwritable_place_costs_one_warning(gpu, tmp_path, monkeypatch):
    (tmp_path / "a_file").write_text("")
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path / "a_file" / "below"))
    with pytest.warns(RuntimeWarning, match="cannot write the results of tuning"):
        assert not tune_quickly().saved
    assert _introspect.knowledge(gpu.properties) == "tuned"


# Refusals


def test_without_a_gpu_or_scipy_it_says_so(gpu, monkeypatch):
    monkeypatch.setattr(_tune, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'fastgemm\[tune\]'"):
        fastgemm.tune()
    monkeypatch.undo()
    monkeypatch.setattr(_tune, "cuda_obstacle", lambda: "torch sees no CUDA device")
    with pytest.raises(RuntimeError, match="measures a GPU, and none can be used here: torch sees no CUDA"):
        fastgemm.tune(device="cuda")
    assert gpu.asked == []


def test_arguments_are_checked(gpu):
    for seconds in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="positive number"):
            fastgemm.tune(seconds=seconds)
    with pytest.raises(ValueError, match="'complex64' is none of"):
        fastgemm.tune(dtypes=[torch.complex64])


def test_in_deterministic_mode_it_refuses_or_warns(gpu):
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="chooses by measured time"):
            tune_quickly()
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="chooses by measured time"):
            tune_quickly(save=False)
    finally:
        torch.use_deterministic_algorithms(False)


def test_inside_a_transform_it_refuses(gpu):
    with pytest.raises(RuntimeError, match=r"inside torch\.func transforms"):
        torch.func.vmap(lambda x: tune_quickly() and x)(torch.ones(2))


def test_the_fake_gpu_is_as_the_library_sees_one(gpu):
    """The tests' hash of a name must equal the library's, so that data set by name are found by number."""
    _introspect.set_costs(OTHER, "mma_sync", "float16", ONES)
    assert _introspect.knowledge(properties_of(OTHER)) == "tuned"
    assert _introspect.knowledge(gpu.properties | {"number": number_of(OTHER) + 1}) == "predicted"
    seen = set(_introspect.gpu_properties())
    assert set(properties_of(OTHER)) == seen == {*_predictions.PROPERTIES, "number"}


def test_a_library_time_above_its_limit_is_predicted():
    """The limit is twice what the other constants say, and the measured time three times that."""
    gpu, problem = properties_of(OTHER), ("float64", "ieee", 1, 64, 64, 4096, False, False)
    *counts, least = _introspect.counts("library", problem, gpu)
    costs = [*(1.0 for _ in counts), 2 * sum(counts) / least]
    _introspect.set_library(OTHER, "float64", "ieee", costs, [(problem, 3 * sum(counts))], gpu)
    assert dict(_introspect.predictions(problem, gpu))["library"] == pytest.approx(3 * sum(counts), rel=0.01)
