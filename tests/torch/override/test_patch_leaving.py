"""A patch must be left once for each entry, in the thread that entered it. Other uses raise and change nothing."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from fastgemm._drop_in import scope
from patches import draw, entered, needs_library
from reference import every_device

pytestmark = [every_device, needs_library, pytest.mark.usefixtures("nothing_is_left")]

ERROR = (
    "fastgemm.patch: left in thread 'elsewhere', which is not in it, but 'MainThread': it stays entered there. "
    "Leave it in the thread that entered it"
)


def elsewhere(function):
    """The text of an exception of a function in another thread; empty if there is none."""

    def call():
        threading.current_thread().name = "elsewhere"
        try:
            function()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def generator(patch):
    def products():
        with patch:
            while True:
                yield torch.mm(draw(5, 5), draw(5, 5))

    steps = products()
    next(steps)
    return steps.close


def stack(patch):
    stack = contextlib.ExitStack()
    stack.enter_context(patch)
    return stack.close


def twice(patch):
    """A thread may leave only its own entries."""
    patch.__enter__()

    def enter_once_and_leave_twice():
        with patch:
            pass
        patch.__exit__(None, None, None)

    return enter_once_and_leave_twice


def once(patch):
    patch.__enter__()
    return lambda: patch.__exit__(None, None, None)


@pytest.mark.parametrize("way", [once, twice, stack, generator])
def test_left_in_another_thread(way, device):
    patch, a = fastgemm.patch(), draw(5, 5)
    leave = way(patch)
    before = patch.routed.total
    assert elsewhere(leave) == f"RuntimeError: {ERROR}"
    a @ a
    assert patch.routed.total == before + 1 and entered() == 1
    patch.__exit__(None, None, None)
    assert entered() == 0
    a @ a
    assert patch.routed.total == before + 1


def test_an_exception_that_passes_is_kept(device):
    """The error of leaving the patch has the passing exception as its context."""
    patch = fastgemm.patch()

    def leave_with_an_exception():
        try:
            with contextlib.ExitStack() as stack:
                stack.push(patch)
                raise KeyError("first")
        except RuntimeError as error:
            assert isinstance(error.__context__, KeyError)
            raise

    with patch:
        assert elsewhere(leave_with_an_exception) == f"RuntimeError: {ERROR}"


@pytest.mark.parametrize("times", [0, 1, 2])
def test_left_more_often_than_entered(device, times):
    patch = fastgemm.patch()
    for _ in range(times):
        patch.__enter__()
    for _ in range(times):
        patch.__exit__(None, None, None)
    with pytest.raises(
        RuntimeError, match="thread 'MainThread', which is not in it: each entry is left once"
    ):
        patch.__exit__(None, None, None)


def test_a_patch_that_was_left_keeps_no_data(device):
    """A patch may outlive many threads, and a thread may be renamed in a patch."""
    patch = fastgemm.patch()

    def enter_and_leave():
        with patch:
            threading.current_thread().name = "renamed"

    assert elsewhere(enter_and_leave) == ""
    assert not len(patch._threads)


def test_a_patch_that_could_not_be_entered_is_not_active(device, monkeypatch):
    """Ctrl-C or a lack of memory may end the making of a frame. The patches around it are left as ever."""

    def interrupted(*_):
        raise KeyboardInterrupt

    a = draw(5, 5)
    with fastgemm.patch(level=1) as outer:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(scope, "patch_frame", interrupted)
            with pytest.raises(KeyboardInterrupt), fastgemm.patch(level=2):
                pytest.fail("it was entered")
        assert entered() == 1
        a @ a
    assert entered() == 0 and outer.total == 1


def test_a_patch_whose_leaving_raised_is_left(device, monkeypatch):
    """Only a patch that is left before those inside it needs new frames. Ctrl-C while one is made ends these."""

    def interrupted(*_):
        raise KeyboardInterrupt

    a, middle, inner = draw(5, 5), fastgemm.patch(level=2), fastgemm.patch(level=3)
    with fastgemm.patch(level=1) as outer:
        reports = outer, middle.__enter__(), inner.__enter__()
        with monkeypatch.context() as meanwhile, pytest.raises(KeyboardInterrupt):
            meanwhile.setattr(scope, "patch_frame", interrupted)
            middle.__exit__(None, None, None)
        assert entered() == 1
        a @ a
        inner.__exit__(None, None, None)
        assert entered() == 1
    assert entered() == 0 and [report.total for report in reports] == [1, 0, 0]


def test_patches_inside_one_that_is_left_stay_active(device):
    a, first, second = draw(5, 5), fastgemm.patch(level=1), fastgemm.patch(level=2)
    reports = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    a @ a
    second.__exit__(None, None, None)
    a @ a
    assert entered() == 0 and [report.total for report in reports] == [0, 1]
