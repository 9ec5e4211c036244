"""Tests ``fastgemm tune`` on a CPU: the problems that it measures, the results of its fit, and its file."""

import json
import warnings

import fastgemm
import pytest
import torch
from fake_cpu import FakeCpu
from fastgemm import _introspect, _tune
from fastgemm._choice import cpu_predictions
from fastgemm._tune import cpu as tune_cpu
from processes import run_forked

SQUARE = ("float32", "ieee", 1, 700, 700, 700, False, False)
FACTORS = {"pipelined": 1.6, "microkernel": 1.5, "torch": 1.2}

pytest.importorskip("scipy")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))
    _introspect.reset_cpu_costs()
    yield tmp_path / "predictions.json"
    _introspect.reset_cpu_costs()


@pytest.fixture
def cpu(monkeypatch):
    found = FakeCpu(FACTORS)
    found.seconds(SQUARE, 1)  # before anything is tuned
    monkeypatch.setattr(_tune, "cpu_at_hand", lambda: found.target)
    return found


def tune(problems: int = 40, **options):
    return fastgemm.tune(seconds=problems * FakeCpu.SECONDS, device="cpu", **options)


def test_problems_are_spread_over_shapes_and_threads_and_short():
    source = tune_cpu.problems("float32", (1, 2))
    found = [next(source) for _ in range(200)]
    again = tune_cpu.problems("float32", (1, 2))
    assert found == [next(again) for _ in range(200)]
    assert sum(threads == 1 for _, threads in found) == 100
    sides = [problem[3:6] for problem, _ in found]
    assert sum(min(s) >= 64 for s in sides) > 50 and sum(min(s) <= 32 for s in sides) > 50
    assert sum(problem[2] > 1 for problem, _ in found) > 10
    for problem, threads in found:
        assert min(tune_cpu.predicted(problem, threads).values()) <= tune_cpu.LONGEST


def test_every_type_has_its_turn_and_torch_is_timed_beside_those_that_may_win(cpu):
    found = tune(60, dtypes=["float32", torch.int8])
    assert [problem[0] for problem, *_ in cpu.asked] == ["float32", "int8"] * 30
    assert {threads for _, threads, _ in cpu.asked} == set(FakeCpu.THREADS)
    assert all("torch" in names for *_, names in cpu.asked)
    assert any("simd" not in names for *_, names in cpu.asked)
    assert len(found.points) == 60


def test_products_without_terms_are_not_predicted():
    for at in range(2, 6):  # batch, m, n, k
        problem = (*SQUARE[:at], 0, *SQUARE[at + 1 :])
        with pytest.raises(ValueError, match="sizes are predicted from 1 on, got 0"):
            _introspect.cpu_predictions(problem, 1)
        with pytest.raises(ValueError, match="sizes are predicted from 1 on, got 0"):
            _introspect.predictions(problem, None)
    with pytest.raises(ValueError, match="threads: 0"):
        _introspect.cpu_predictions(SQUARE, 0)


def test_predictions_follow_what_was_measured(cpu):
    before = dict(_introspect.cpu_predictions(SQUARE, 1))
    found = tune(60, dtypes=["float32"])
    now = dict(_introspect.cpu_predictions(SQUARE, 1))
    for name in FACTORS:
        assert now[name] == pytest.approx(FACTORS[name] * before[name], rel=0.1), name
    assert _introspect.cpu_knowledge() == "tuned"
    assert found.after["float32"].free <= min(1.03, found.before["float32"].free)
    assert found.after["float32"].points == 12, "every fifth product is held out"
    assert dict(_introspect.cpu_predictions(("float64", *SQUARE[1:]), 1)), "other types stay"


def test_a_later_process_loads_it_and_forget_takes_it_back(cpu, cache):
    before = _introspect.cpu_predictions(SQUARE, 1)
    assert tune(dtypes=["float32"]).saved
    now = _introspect.cpu_predictions(SQUARE, 1)
    asked = f"print(json.dumps([i.cpu_knowledge(), i.cpu_predictions({SQUARE}, 1)]))"
    done = run_forked(f"import json, fastgemm; from fastgemm import _introspect as i; {asked}")
    knowledge, predictions = json.loads(done.stdout)
    assert done.stderr == "" and knowledge == "tuned"
    assert dict(predictions) == pytest.approx(dict(now), rel=1e-3)
    assert _tune.forget("cpu") == (cpu.name, True)
    assert _introspect.cpu_predictions(SQUARE, 1) == before
    assert _tune.forget("cpu") == (cpu.name, False)


def test_types_tuned_later_lie_beside_those_before(cpu):
    tune(20, dtypes=["float32"])
    tune(30, dtypes=["int8"])
    fitted = cpu_predictions.known()
    assert {fit.dtype for fit in fitted.kernels} == {"float32", "int8"} and len(fitted.points) == 50


@pytest.mark.parametrize(
    "change",
    [
        {"kernels": [["yesterday", "float32", [1.0]]]},
        {"kernels": [["pipelined", "float32", [-1.0] * len(_introspect.CPU_COUNTS)]]},
        {"points": [[list(SQUARE), 0, {"torch": 1.0}]]},
        {"points": [[list(SQUARE), 1, {"torch": 0.0}]]},
        {"points": 5},
    ],
)
def test_a_damaged_set_is_ignored_with_one_warning_and_replaced(cpu, cache, change):
    tune(10, dtypes=["float32"])
    data = json.loads(cache.read_text())
    data["sets"][cpu_predictions.environment()] |= change
    cache.write_text(json.dumps(data))
    _introspect.reset_cpu_costs()
    with pytest.warns(
        RuntimeWarning, match="ignoring the results of fastgemm tune for this processor"
    ) as caught:
        assert cpu_predictions.load() == 0
    assert len(caught) == 1 and _introspect.cpu_knowledge() != "tuned"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune(10, dtypes=["float32"])
        assert cpu_predictions.load() == 1


def test_a_file_of_a_newer_format_is_left_alone(cache):
    cache.write_text('{"format": 99, "sets": {}}')
    with pytest.warns(RuntimeWarning, match="ignoring .* a newer version of fastgemm wrote it, in format 99"):
        assert cpu_predictions.load() == 0
    with pytest.warns(RuntimeWarning, match="cannot write .* a newer version of fastgemm wrote it"):
        assert not cpu_predictions.save(cpu_predictions.FittedCpu("now", (), ()))
    assert json.loads(cache.read_text())["format"] == 99


def test_unknown_devices_are_refused(cpu):
    with pytest.raises(ValueError, match="device must be 'cuda', 'cpu' or None"):
        fastgemm.tune(device="simt")


def test_this_processor_can_be_measured():
    found = fastgemm.tune(seconds=0.2, device="cpu", dtypes=["float32"], save=False)
    assert found.points and "torch" in found.points[0].seconds


def test_what_autotune_measured_serves_neighbours(cache, monkeypatch):
    """The measurement is used in this process and in later ones, until it is forgotten."""
    a, b, threads = torch.randn(96, 96), torch.randn(96, 96), torch.get_num_threads()
    near = ("float32", "ieee", 1, 97, 95, 96, False, False)
    names = {name for name, _ in _introspect.cpu_predictions(near, threads)}
    before = dict(_introspect.cpu_predictions(near, threads))
    key = fastgemm.tuning.gemm_key(a, b)
    seconds = {name: s * (3 if name == "pipelined" else 1) for name, s in before.items()}
    fastgemm.tuning._remember(key, "torch", seconds=seconds)
    fastgemm.tuning._save({key: "torch"}, seconds=seconds)
    now = dict(_introspect.cpu_predictions(near, threads))
    assert now["pipelined"] > 2 * before["pipelined"] and set(now) == names
    done = run_forked(
        f"import json, fastgemm; print(json.dumps(fastgemm._introspect.cpu_predictions({near}, {threads})))"
    )
    assert dict(json.loads(done.stdout)) == pytest.approx(now, rel=1e-3)
    fastgemm.tuning.clear_cache(disk=True)
    assert dict(_introspect.cpu_predictions(near, threads)) == before
    fastgemm.autotune(a, b, budget=0.001)
    assert json.loads((cache.parent / "autotune.json").read_text())["format"] == 3
    assert dict(_introspect.cpu_predictions(near, threads)) != before
    fastgemm.tuning.clear_cache(disk=True)


def test_a_busy_machine_at_one_measurement_slows_no_kernel_alone():
    """autotune's times of some kernels must not change the predictions of others."""
    near = ("float32", "ieee", 1, 97, 95, 96, False, False)
    key = ("gemm", "cpu", "float32", "float32", "ieee", False, False, False, 1, 1, 96, 96, 96)
    before = dict(_introspect.cpu_predictions(near, 1))
    cpu_predictions.learn(key, {name: 50 * before[name] for name in ("microkernel", "torch")})
    assert dict(_introspect.cpu_predictions(near, 1)) == pytest.approx(before, rel=0.2)
