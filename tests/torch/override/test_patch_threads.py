"""Tests that a patch reaches only autograd's threads, and leaves nothing in them."""

import contextlib
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from fastgemm._drop_in import scope
from memory_meter import FEWEST, keeps_nothing
from patches import ELSEWHERE, backward_in_another_thread, draw, entered, in_a_thread, needs_library
from reference import every_device
from torch.utils.checkpoint import checkpoint

pytestmark = [needs_library, pytest.mark.usefixtures("nothing_is_left")]


@every_device
def test_a_thread_of_autograds_multiplies_in_the_patch_of_the_backward_pass(device):
    x = draw(4, 4).requires_grad_()
    with fastgemm.patch(kernel="naive") as outer, fastgemm.patch(level=2) as routed:
        backward_in_another_thread(lambda grad, x: torch.mm(grad + 1, x), x)
    assert torch.equal(x.grad, fastgemm.matmul(torch.full((4, 4), 2.0).double(), x.detach(), level=2))
    assert routed.ops == {"mm": 1}
    assert not outer.total
    x.grad = None
    backward_in_another_thread(lambda grad, x: torch.mm(grad, x), x)
    assert routed.ops == {"mm": 1}  # autograd's thread waits for more work, and is no longer in a patch


@every_device
def test_a_patch_entered_in_a_thread_of_autograds(device):
    """It is the innermost patch in this thread, and passes products on to the patch of the backward pass."""
    x = draw(4, 4).requires_grad_()
    inner = fastgemm.patch(level=2)
    elsewhere = fastgemm.patch(kernel=ELSEWHERE[device])

    def function(grad, x):
        with inner:
            torch.mm(grad, x)
        with elsewhere:
            torch.mm(grad, x)
        return torch.mm(grad, x)

    with fastgemm.patch(level=1) as outer:
        backward_in_another_thread(function, x)
        assert entered() == 1
    assert (outer.total, inner.routed.total, elsewhere.routed.total) == (2, 1, 0)
    backward_in_another_thread(function, x)
    assert (outer.total, inner.routed.total) == (2, 2)


@every_device
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_and_hooks_in_a_thread_of_autograds(reentrant, device):
    x, w = draw(4, 4).requires_grad_(), draw(4, 4).requires_grad_()

    def multiply_it_again(leaf):
        leaf.grad = leaf.grad @ x.detach()

    def function(grad, x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            leaf.register_hook(lambda grad: grad @ x.detach())
            leaf.register_post_accumulate_grad_hook(multiply_it_again)
            checkpoint(lambda y: (y @ w).relu() @ w, leaf, use_reentrant=reentrant).backward(grad)
        return grad

    with fastgemm.patch(level=1) as routed:
        backward_in_another_thread(function, x)
    again = 2 if reentrant else 1  # all of it, or the needed part
    assert routed.ops == {"mm": 2 + again + 4 + 2}


@torch.jit.script
def _product(x: torch.Tensor):
    return torch.mm(x, x)


@torch.jit.script
def _forked(x: torch.Tensor):
    future = torch.jit.fork(_product, x)
    return torch.jit.wait(future)


@every_device
def test_a_task_of_torchscript_has_the_patch_of_where_it_was_forked(device):
    x = draw(4, 4)
    with fastgemm.patch(level=1) as routed:
        for _ in range(20):
            assert torch.equal(_forked(x), fastgemm.matmul(x, x, level=1))
    assert routed.ops == {"mm": 20}
    _forked(x)  # in the same threads
    assert routed.ops == {"mm": 20}


@every_device
def test_a_new_thread_is_in_no_patch_whoever_starts_it(device):
    a = draw(4, 4)
    started = []

    def function(grad, x):  # this thread has a patch from autograd
        started.append(in_a_thread(lambda: (a @ a, scope.innermost())[1]))
        return grad

    with fastgemm.patch() as routed:
        assert in_a_thread(lambda: (a @ a, scope.innermost())[1]) is None
        backward_in_another_thread(function, draw(4, 4).requires_grad_())
        future = torch.futures.Future()
        called = future.then(lambda _: a @ a)
        in_a_thread(lambda: future.set_result(None))  # the patch of the calling thread
        called.wait()
    assert started == [None]
    assert not routed.total


@every_device
def test_patches_of_two_threads_interleave(device):
    a, steps = draw(4, 4), threading.Barrier(2)
    shared = fastgemm.patch(kernel="naive")

    def work(own, enters_first):
        for first in (enters_first, not enters_first) * 5:
            if not first:
                steps.wait()
            with own:
                a @ a
                if first:
                    steps.wait()
                    steps.wait()  # the other thread has entered its patches
                with shared:
                    a @ a
                    if not first:
                        steps.wait()
                a @ a
            assert scope.depth() == 0
            steps.wait()

    patches = fastgemm.patch(level=2), fastgemm.patch(level=3)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, patches, (True, False)))
    assert [patch.routed.total for patch in patches] == [20, 20]
    assert all(len(patch.routed.kernels) == 1 for patch in patches)
    assert shared.routed.kernels == {"naive": 20}


@every_device
def test_entries_leave_no_memory(device):
    if device == "cuda":
        pytest.skip("the memory measured is the host's")
    outer, inner, x = fastgemm.patch(level=1), fastgemm.patch(kernel="naive"), torch.randn(2, 2)

    def nested():
        with outer, inner, outer:
            pass

    def out_of_order():
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
        inner.__exit__(None, None, None)

    def raising():
        with contextlib.suppress(ZeroDivisionError), outer:
            raise ZeroDivisionError

    def forked():
        with outer:
            _forked(x)

    for enter in (nested, out_of_order, raising, forked):
        assert keeps_nothing(enter, FEWEST), enter.__name__


def test_a_thread_that_ended_inside_of_a_patch_holds_nothing():
    patch, held, seen = fastgemm.patch(level=1), [], []

    def ends_inside():
        patch.__enter__()
        torch.ones(3, 3) @ torch.ones(3, 3)
        held.append(scope.innermost())
        seen.append(weakref.ref(patch._entered.entries[-1]))
        seen.append(sys.getrefcount(held[0]))

    thread = threading.Thread(target=ends_inside)
    thread.start()
    thread.join()
    entry, references = seen
    assert entry() is None
    assert not patch._threads
    until = time.monotonic() + 20  # join() may return before the thread-local state is destroyed
    while (left := sys.getrefcount(held[0])) == references and time.monotonic() < until:
        time.sleep(0.01)
    assert (
        left < references
    )  # without the reference of torch's slot; sometimes the thread's frame held another one
    assert patch.routed.total == 1
