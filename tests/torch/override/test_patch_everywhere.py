"""Tests fastgemm.enable and disable, a patch of a whole process."""

import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from patches import BAD_CHOICES, ELSEWHERE, draw, entered, kernel_of, needs_library
from reference import every_device, kernels_that_ran

pytestmark = needs_library


@pytest.fixture(autouse=True)
def disabled_afterwards():
    yield
    fastgemm.disable()
    assert entered() == 0


@every_device
def test_every_thread_is_patched_until_it_is_disabled(device):
    """This includes threads that already exist, and new threads."""
    a, go = draw(9, 9), threading.Event()

    def work():
        go.wait()
        return a @ a

    with ThreadPoolExecutor(2) as before:
        early = [before.submit(work) for _ in range(2)]
        a @ a
        routed = fastgemm.enable(level=1)
        assert isinstance(routed, fastgemm.Routed)
        go.set()
        results = [task.result() for task in early]
    with ThreadPoolExecutor(1) as after:
        results += [after.submit(work).result(), a @ a]
        fastgemm.disable()
        a @ a, after.submit(work).result()
    assert all(torch.equal(result, fastgemm.matmul(a, a, level=1)) for result in results)
    assert routed.kernels == {kernel_of(1, device): 4}
    assert kernels_that_ran(lambda: a @ a) == []


@every_device
def test_patches_go_first(device):
    """Calls of enable and disable inside of a patch have an effect only outside of it."""
    a, first, second = draw(9, 9), kernel_of(1, device), kernel_of(2, device)
    outside = fastgemm.enable(level=1)
    a @ a
    with fastgemm.patch(level=2) as inside:
        a @ a
        with ThreadPoolExecutor(1) as pool:  # a thread without a patch
            pool.submit(lambda: a @ a).result()
        fastgemm.disable()
        a @ a
        again = fastgemm.enable(level=1)
        a @ a
    a @ a
    assert (outside.kernels, inside.kernels, again.kernels) == ({first: 2}, {second: 3}, {first: 1})


@every_device
def test_what_patches_pass_on_is_taken(device):
    a = draw(9, 9)
    routed = fastgemm.enable(level=1)
    with fastgemm.patch(kernel=ELSEWHERE[device]) as outer, fastgemm.patch(kernel=ELSEWHERE[device]) as inner:
        result = a @ a
    assert torch.equal(result, fastgemm.matmul(a, a, level=1))
    for patch in (outer, inner):
        assert not patch.total
        assert [op for op, _ in patch.passed_on] == ["mm"]
    assert routed.kernels == {kernel_of(1, device): 1}
    assert not routed.passed_on


@every_device
def test_products_that_no_patch_takes_are_torchs_and_reported_by_all(device):
    a = torch.randn(4, 4)
    routed = fastgemm.enable()
    with fastgemm.patch() as inside:
        result = torch.addmm(a, a, a, alpha=1e-50)
    fastgemm.disable()
    assert torch.equal(result, torch.addmm(a, a, a, alpha=1e-50))
    assert routed.passed_on == inside.passed_on == {("addmm", "scales that float32 does not hold"): 1}
    assert not routed.total


@every_device
def test_called_again_it_replaces_the_choice(device):
    a = draw(9, 9)
    for _ in range(2):
        fastgemm.disable()  # nothing is enabled before
    first = fastgemm.enable(level=1)
    a @ a
    second = fastgemm.enable(kernel=kernel_of(2, device))
    a @ a
    a @ a
    assert first is not second
    assert first.kernels == {kernel_of(1, device): 1}
    assert second.kernels == {kernel_of(2, device): 2}
    fastgemm.disable()  # both
    assert kernels_that_ran(lambda: a @ a) == []


@every_device
@pytest.mark.parametrize("arguments", [{"extend": 1}, {"tune": 1}, {"tune": None, "extend": ""}], ids=str)
@pytest.mark.parametrize("start", [fastgemm.patch, fastgemm.enable])
def test_every_truth_value_is_taken(start, arguments, device, measured):
    a = draw(9, 9)
    started = start(**arguments)
    with started if start is fastgemm.patch else contextlib.nullcontext(started) as routed:
        a @ a
    assert routed.total == 1 and entered() == 0
    assert bool(measured) == bool(arguments.get("tune"))


def test_what_cannot_be_enabled_does_not_tune(monkeypatch):
    tunes = []
    monkeypatch.setattr("fastgemm._drop_in.enable.set_tunes_all", tunes.append)
    monkeypatch.setattr("fastgemm._drop_in.scope.patch_frame", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fastgemm.enable(tune=True)
    assert not tunes


@every_device
@pytest.mark.parametrize(("arguments", "error", "message"), BAD_CHOICES)
def test_bad_arguments_change_nothing(arguments, error, message, device):
    a = draw(9, 9)
    for start in (fastgemm.patch, fastgemm.enable):
        with pytest.raises(error, match=message):
            start(**arguments)
    assert kernels_that_ran(lambda: a @ a) == []
    routed = fastgemm.enable(level=1)
    with pytest.raises(error, match=message):
        fastgemm.enable(**arguments)
    a @ a
    assert routed.kernels == {kernel_of(1, device): 1}


@every_device
@pytest.mark.parametrize("start", ["enable", "patch"])
def test_without_counting(start, device):
    a = draw(9, 9)
    f = a.float()
    options = {"level": 1, "count": False}
    with fastgemm.patch(**options) if start == "patch" else contextlib.nullcontext() as routed:
        routed = routed or fastgemm.enable(**options)
        ran = kernels_that_ran(lambda: (a @ a, torch.addmm(f, f, f, alpha=1e-50)))
    assert ran == [kernel_of(1, device)]
    assert not routed.total
    assert not routed.passed_on
    assert str(routed) == "routed 0"


@every_device
def test_threads_multiply_while_it_is_switched(device):
    """Each product is right, whether a patch is active at that moment or not, and is counted at most once."""
    a, stop, wrong = draw(12, 12), threading.Event(), []
    expected, calls = a @ a, [0] * 3

    def work(number):
        while not stop.is_set():
            if not torch.allclose(a @ a, expected):
                wrong.append(number)
            calls[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    counts = []
    for level in itertools.islice(itertools.cycle([1, 2, 3]), 150):
        counts.append(fastgemm.enable(level=level))
        if level == 3:
            fastgemm.disable()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(routed.total for routed in counts) <= sum(calls)
