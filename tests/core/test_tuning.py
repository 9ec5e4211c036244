"""Tests autotuning and its file, also if the file is damaged, not writable, or written by other processes."""

import contextlib
import gc
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import fastgemm
import filelock
import pytest
import torch
from fastgemm import _load_choices, tuning
from fastgemm._choice import autotuned
from processes import PATIENCE, run_forked

WRITERS, KEYS_EACH = 3, 12


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))
    tuning.clear_cache()
    yield tmp_path / "autotune.json"
    tuning.clear_cache()


@pytest.fixture
def blocked_wins(monkeypatch):
    """Makes the kernel `blocked` the fastest, so that tuning changes the choice."""
    monkeypatch.setattr(
        tuning, "time_all", lambda calls, budget, clock: {n: [1.0 if n == "blocked" else 2.0] for n in calls}
    )


def operands():
    return torch.randn(30, 900), torch.randn(900, 20)


def chosen(a, b):
    return tuning.chosen_kernel(tuning.gemm_key(a, b))


def expect_one_warning(call, message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    assert [w.category for w in caught] == [RuntimeWarning], [str(w.message) for w in caught]
    assert message in str(caught[0].message)
    return result


def test_autotune_measures_and_ranks_every_kernel():
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    tuned = fastgemm.autotune(a, b, budget=0.05)
    expected = {
        r.name for r in fastgemm.kernels("gemm", "cpu", torch.float32) if r.available and r.role == "rung"
    }
    assert {t.kernel for t in tuned.timings} == expected
    seconds = [t.seconds for t in tuned.timings]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    assert tuned.kernel == tuned.timings[0].kernel == chosen(a, b)


def test_autotune_changes_the_choice_and_writes_the_file(blocked_wins, cache):
    a, b = operands()
    assert chosen(a, b) != "blocked"
    assert fastgemm.autotune(a, b).kernel == "blocked"
    assert chosen(a, b) == "blocked"
    assert torch.equal(fastgemm.matmul(a, b), fastgemm.matmul(a, b, kernel="blocked"))
    assert not torch.equal(fastgemm.matmul(a, b), fastgemm.matmul(a, b, kernel="simd"))
    assert chosen(a, b[:, :19]) != "blocked"
    data = json.loads(cache.read_text())
    ((key, kernel, seconds),) = data["sets"][tuning.environment()]
    assert (key, kernel) == (list(tuning.gemm_key(a, b)), "blocked")
    assert min(seconds, key=seconds.__getitem__) == "blocked" and "torch" in seconds


def test_autotune_without_saving(blocked_wins, cache):
    a, b = operands()
    fastgemm.autotune(a, b, save=False)
    assert chosen(a, b) == "blocked"
    assert not cache.exists()


def test_autocast_does_not_change_what_is_measured(monkeypatch):
    """A product of its lower precision would be stored under the key of the operands' own type."""
    types = []

    def time_all(calls, budget, clock):
        assert not torch.is_autocast_enabled("cpu")
        types.extend(call().dtype for call in calls.values())
        return {name: [1.0] for name in calls}

    monkeypatch.setattr(tuning, "time_all", time_all)
    with torch.autocast("cpu", torch.bfloat16):
        fastgemm.autotune(*operands(), save=False)
        assert torch.is_autocast_enabled("cpu")
    assert set(types) == {torch.float32}


def test_autotune_of_transpose_and_other_dtypes(blocked_wins, cache):
    a = torch.randn(300, 200)
    assert fastgemm.autotune(a).kernel == "blocked"
    assert tuning.chosen_kernel(tuning.transpose_key(a)) == "blocked"
    half = torch.randn(40, 30).half()
    fastgemm.autotune(half, half.t(), out_dtype=torch.float32)
    assert tuning.chosen_kernel(tuning.gemm_key(half, half.t(), torch.float32)) == "blocked"
    assert tuning.chosen_kernel(tuning.gemm_key(half, half.t())) != "blocked"
    assert len(json.loads(cache.read_text())["sets"][tuning.environment()]) == 2


def test_autotune_refuses_what_it_cannot_key():
    for bad in [(torch.ones(4),), (torch.ones(2, 2, 2, 2), torch.ones(2, 2))]:
        with pytest.raises(ValueError, match="2-D or 3-D"):
            fastgemm.autotune(*bad)
    with pytest.raises(ValueError, match="two operands for op='gemm'"):
        fastgemm.autotune(torch.ones(2, 2), op="gemm")


def test_a_later_process_reads_the_file(blocked_wins, cache):
    a, b = operands()
    fastgemm.autotune(a, b)
    code = (
        "import torch, fastgemm; from fastgemm import tuning;"
        f"torch.set_num_threads({torch.get_num_threads()});"
        "print(tuning.chosen_kernel(tuning.gemm_key(torch.ones(30, 900), torch.ones(900, 20))))"
    )
    done = run_forked(code)
    assert (done.stdout, done.stderr) == ("blocked\n", "")


def test_the_default_place_is_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("FASTGEMM_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for ignored in ("", " ", "relative", "./relative"):  # by the XDG base directory specification
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert tuning.cache_file() == tmp_path / "home/.cache/fastgemm/autotune.json"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert tuning.cache_file() == tmp_path / "cache/fastgemm/autotune.json"
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", "~/named")
    assert tuning.cache_file() == tmp_path / "home/named/autotune.json"


NO_HOME = (
    {"FASTGEMM_CACHE_DIR": "~nosuchuser/x"},
    {"FASTGEMM_CACHE_DIR": "", "XDG_CACHE_HOME": "~nosuchuser/x"},
    {"FASTGEMM_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": ""},
    {"FASTGEMM_CACHE_DIR": "~/x", "HOME": "relative"},
)


@pytest.mark.parametrize("environment", NO_HOME, ids=["named", "XDG", "empty", "relative"])
def test_without_a_home_directory_nothing_is_kept(environment, blocked_wins, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _load_choices.load()  # as an import does
    expect_one_warning(
        lambda: fastgemm.autotune(*operands()), "there is no home directory; FASTGEMM_CACHE_DIR"
    )
    tuning.clear_cache(disk=True)
    assert not list(tmp_path.iterdir())


ENVIRONMENT = tuning.environment()
KEY = list(tuning.gemm_key(*operands()))


def file_of(*entries) -> bytes:
    return json.dumps({"format": 1, "sets": {ENVIRONMENT: list(entries)}}).encode()


# test_tuning_refusals.py damages every place of a file.
DAMAGED = {
    "empty": b"",
    "cut off": b'{"format": 1, "sets": {"x": [[[',
    "another format": b'{"format": "autotune", "sets": {}}',
    "not UTF-8": b"\xff\xfe\x00{}",
    "nested too deep": b"[" * 200_000,
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_ignored_with_one_warning_and_replaced(blocked_wins, cache, damage):
    cache.write_bytes(DAMAGED[damage])
    expect_one_warning(autotuned.load, f"ignoring the autotune cache {cache}")
    a, b = operands()
    torch.testing.assert_close(fastgemm.matmul(a, b), a @ b, rtol=1e-3, atol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fastgemm.autotune(a, b)
        tuning.clear_cache()
        autotuned.load()
    assert chosen(a, b) == "blocked"


def test_a_damaged_file_does_not_stop_the_import(cache):
    cache.write_bytes(DAMAGED["nested too deep"])
    done = run_forked("import fastgemm; print('imported')")
    assert done.stdout == "imported\n", done.stderr
    assert done.stderr.count("Warning") == 1


def test_a_kernel_that_is_gone_is_passed_over(cache):
    cache.write_text(json.dumps({"format": 1, "sets": {ENVIRONMENT: [[KEY, "kernel_of_yesterday"]]}}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert autotuned.load() == 0


def test_measurements_of_another_environment_are_kept_but_not_used(blocked_wins, cache):
    other = {
        "AnotherCPU|torch 9.9|table 0": [[KEY, "naive"]],
        "cpu of tomorrow|table 0": [[[*KEY[:2], "float4", *KEY[3:]], "naive", {"naive": None}, 5], 7],
    }
    cache.write_text(json.dumps({"format": 1, "sets": other}))
    assert autotuned.load() == 0
    a, b = operands()
    fastgemm.autotune(a, b)
    sets = json.loads(cache.read_text())["sets"]
    assert set(sets) == {*other, tuning.environment()}
    assert {where: sets[where] for where in other} == other


def test_a_file_of_a_newer_format_is_left_alone(blocked_wins, cache):
    cache.write_text(text := json.dumps({"format": 99, "sets": {ENVIRONMENT: {"kernels": "naive"}}}))
    newer = "a newer version of fastgemm wrote it, in format 99; this one knows 3"
    expect_one_warning(autotuned.load, f"ignoring the autotune cache {cache}: {newer}")
    expect_one_warning(
        lambda: fastgemm.autotune(*operands()), f"cannot write the autotune cache {cache}: {newer}"
    )
    assert cache.read_text() == text


DAMAGED_ENTRIES = {
    "a size beyond int64": [[*KEY[:-1], 2**70], "naive"],
    "an unknown type": [[*KEY[:2], "float4", *KEY[3:]], "naive"],
    "no time": [KEY, "naive", {"naive": 0}],
    "no list": 5,
}


@pytest.mark.parametrize("damage", DAMAGED_ENTRIES)
def test_a_damaged_entry_is_dropped_alone(cache, damage):
    other = [*KEY[:-1], 901]
    cache.write_bytes(file_of(DAMAGED_ENTRIES[damage], [other, "naive"]))
    assert expect_one_warning(autotuned.load, f"ignoring 1 damaged entry of the autotune cache {cache}") == 1
    tuning._save({tuple(KEY): "blocked"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert autotuned.load() == 2
    assert json.loads(cache.read_text())["sets"][ENVIRONMENT] == [[other, "naive"], [KEY, "blocked"]]


def sized(n):
    return (*KEY[:-1], n)


def test_the_newest_entries_are_kept_and_learned_from(cache, monkeypatch):
    """The time of an import and of a first call must not grow without limit."""
    monkeypatch.setattr(autotuned, "KEPT", 4)
    monkeypatch.setattr(autotuned, "LEARNED", 2)
    learned = []
    monkeypatch.setattr(autotuned, "learn", lambda key, seconds: learned.append(key[-1]))
    entries = [[sized(n), "naive", {"naive": 1e-3}] for n in range(1, 7)]
    cache.write_bytes(file_of(*entries, [[*sized(7), 3], "naive", {"naive": 1e-3}]))
    assert autotuned.load() == 4 and learned == [5, 6]
    for n in (4, 8):
        tuning._save({sized(n): "blocked"})
    assert [key[12] for key, *_ in json.loads(cache.read_text())["sets"][ENVIRONMENT]] == [6, 7, 4, 8]


def test_a_file_is_read_again_only_if_another_process_wrote_it(cache, monkeypatch):
    tuning._save({sized(1): "naive"})
    theirs = cache.with_suffix(".theirs")
    theirs.write_bytes(file_of([sized(2), "naive"]))
    parse, reads = json.loads, []
    monkeypatch.setattr(json, "loads", lambda text: reads.append(text) or parse(text))
    for n in (3, 4):
        tuning._save({sized(n): "blocked"})
        assert autotuned.kept_kernel(sized(n)) == "blocked" and autotuned.kept_kernel(sized(1)) == "naive"
    assert not reads
    os.replace(theirs, cache)
    assert autotuned.kept_kernel(sized(2)) == "naive" and autotuned.kept_kernel(sized(1)) is None
    tuning._save({sized(5): "blocked"})
    assert set(autotuned.kept()) == {sized(2), sized(5)} and len(reads) == 1


def test_a_link_stays_a_link(cache):
    target = cache.with_name("elsewhere.json")
    target.write_bytes(file_of([sized(1), "naive"]))
    cache.symlink_to(target.name)
    tuning._save({sized(2): "naive"})
    assert cache.is_symlink() and len(json.loads(target.read_text())["sets"][ENVIRONMENT]) == 2


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, None], ids=["a pipe", "a folder", "/dev/null"])
def test_what_is_no_regular_file_is_neither_read_nor_replaced(make, cache, monkeypatch):
    """A link to /dev/null switches the cache off; root may replace /dev/null itself. Reading a pipe would wait."""
    target = cache.with_name("special") if make else Path(os.devnull)
    if make:
        make(target)
    cache.symlink_to(target)
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("replaced"))
    monkeypatch.setattr(filelock, "FileLock", lambda *_, **__: pytest.fail("made a file for the lock"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _load_choices.load()
    expect_one_warning(lambda: tuning._save({sized(1): "naive"}), f"{target} is no regular file")
    assert cache.is_symlink() and not target.is_file()


def test_garbage_is_collected_while_a_writer_waits_for_the_lock(cache, monkeypatch):
    """Waiting takes up to 10 seconds; only work on the file is done without collections."""
    collects, replace = [], os.replace

    class Lock(contextlib.nullcontext):
        def __enter__(self):
            collects.append(gc.isenabled())

    monkeypatch.setattr(filelock, "FileLock", lambda *_, **__: Lock())
    monkeypatch.setattr(os, "replace", lambda *paths: collects.append(gc.isenabled()) or replace(*paths))
    assert tuning._save({sized(1): "naive"})
    assert collects == [True, False] and gc.isenabled()


def test_the_environment_names_processor_torch_and_table():
    info = fastgemm.build_info()
    for part in (info["cpu_model"], torch.__version__, info["table_hash"]):
        assert part in tuning.environment()


def unwritable_places(tmp_path):
    (tmp_path / "a_file").write_text("")
    (tmp_path / "with_folder" / "autotune.json").mkdir(parents=True)
    return [tmp_path / "a_file" / "below", tmp_path / "with_folder", "/proc/fastgemm"]


def test_an_unwritable_place_costs_one_warning(blocked_wins, tmp_path, monkeypatch):
    a, b = operands()
    for place in unwritable_places(tmp_path):
        monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(place))
        tuned = expect_one_warning(lambda: fastgemm.autotune(a, b), "cannot write the autotune cache")
        assert tuned.kernel == chosen(a, b) == "blocked"  # but it is kept in memory
        tuning.clear_cache()
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path / "a_file" / "below"))
    tuning.clear_cache(disk=True)


def test_a_failed_write_leaves_the_old_file_and_no_scratch_files(blocked_wins, cache, monkeypatch):
    a, b = operands()
    fastgemm.autotune(a, b)
    before = cache.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        expect_one_warning(lambda: fastgemm.autotune(a[:5], b), "disk full")
    assert cache.read_bytes() == before
    assert {p.name for p in cache.parent.iterdir()} <= {"autotune.json", "autotune.json.lock"}


WRITER = f"""
import sys, warnings
from fastgemm import tuning
from fastgemm._choice import autotuned
writer = int(sys.argv[1])
warnings.simplefilter("error")
for i in range({KEYS_EACH}):
    key = ("gemm", "cpu", "float32", "float32", "ieee", False, False, False, 1, 1, writer + 1, i + 1, 8)
    tuning._save({{key: "naive"}})
    autotuned.load()
"""


def test_concurrent_writers_lose_nothing(cache):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(i)], env=env, stderr=subprocess.PIPE, text=True)
        for i in range(WRITERS)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=PATIENCE)
        assert writer.returncode == 0, errors
    entries = json.loads(cache.read_text())["sets"][tuning.environment()]
    assert {tuple(key[10:12]) for key, _ in entries} == {
        (w + 1, i + 1) for w in range(WRITERS) for i in range(KEYS_EACH)
    }
    assert autotuned.load() == WRITERS * KEYS_EACH
