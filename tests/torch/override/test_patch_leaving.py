"""A patch is left once for each entry, in the thread that entered it; all else is an error and changes nothing."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from patches import draw, entered
from reference import every_device

pytestmark = [every_device, pytest.mark.usefixtures("each_way", "nothing_is_left")]

ERROR = (
    "fastgemm.patch: left in thread 'elsewhere', which is not in it, but 'MainThread': it stays entered there. "
    "Leave it in the thread that entered it"
)


def elsewhere(function):
    """What a function raises in another thread, as text; empty where it raises nothing."""

    def call():
        threading.current_thread().name = "elsewhere"
        try:
            function()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_left_in_another_thread(device):
    a = draw(5, 5)
    patch = fastgemm.patch()
    with patch as routed:
        assert elsewhere(lambda: patch.__exit__(None, None, None)) == f"RuntimeError: {ERROR}"
        a @ a
        assert routed.total == 1 and entered() == 1
    assert entered() == 0
    a @ a
    assert routed.total == 1


def test_left_in_another_thread_that_is_in_it_once(device):
    """Its own entry it may leave, and no other one."""
    patch = fastgemm.patch()

    def enter_and_leave_twice():
        with patch:
            pass
        patch.__exit__(None, None, None)

    with patch:
        assert elsewhere(enter_and_leave_twice) == f"RuntimeError: {ERROR}"
        assert entered() == 1


def test_a_stack_that_another_thread_closes(device):
    patch, stack = fastgemm.patch(), contextlib.ExitStack()
    routed = stack.enter_context(patch)
    assert elsewhere(stack.close) == f"RuntimeError: {ERROR}"
    torch.mm(draw(5, 5), draw(5, 5))
    assert routed.total == 1
    patch.__exit__(None, None, None)


def test_a_generator_that_another_thread_closes(device):
    patch = fastgemm.patch()

    def products():
        with patch:
            while True:
                yield torch.mm(draw(5, 5), draw(5, 5))

    steps = products()
    next(steps)
    assert elsewhere(steps.close) == f"RuntimeError: {ERROR}"
    assert entered() == 1
    patch.__exit__(None, None, None)


def test_an_exception_that_passes_is_kept(device):
    """The error of leaving names it as its context."""
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


def test_of_what_was_left_nothing_is_kept(device):
    """A patch may outlive any number of threads, and a thread may be renamed inside."""
    patch = fastgemm.patch()

    def enter_and_leave():
        with patch:
            threading.current_thread().name = "renamed"

    assert elsewhere(enter_and_leave) == ""
    assert not len(patch._threads)


def test_disable_ends_nothing_twice(device):
    fastgemm.disable()
    with fastgemm.patch() as routed:
        fastgemm.disable()
        torch.mm(draw(5, 5), draw(5, 5))
    assert routed.total == 1
