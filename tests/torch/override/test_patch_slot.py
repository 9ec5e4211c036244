"""Where a patch stands: a slot of torch's thread-local state.

What else is kept there, and what else torch hands on, is left as it is; patches are entered and left in any order.
"""

from __future__ import annotations

import contextlib
import gc
import random

import fastgemm
import pytest
import torch
from patches import ELSEWHERE, backward_in_another_thread, draw, entered, in_a_thread, needs_library
from reference import every_device, kernels_that_ran

pytestmark = [needs_library, pytest.mark.usefixtures("nothing_is_left")]


# What else is in torch's thread-local state


FOREIGN = [object() for _ in range(64)]  # for ever: torch 2.11 gives back a reference that it did not take


def test_others_that_keep_python_objects_there(device):
    key, first, second, *_ = ["tests/torch/override/test_patch_slot.py", *FOREIGN]
    get, put = torch._C._get_obj_in_tls, torch._C._stash_obj_in_tls

    def work():
        FOREIGN.extend(FOREIGN[:2] * 20)
        put(key, first)
        found = []
        with fastgemm.patch() as routed:
            found.append(get(key))
            with fastgemm.patch():
                put(key, second)
                torch.ones(3, 3) @ torch.ones(3, 3)
            torch.ones(3, 3) @ torch.ones(3, 3)
            backward_in_another_thread(
                lambda grad, x: found.append(get(key)) or grad, draw(4, 4).requires_grad_()
            )
        found.append(get(key))
        assert found == [first, second, second]
        return routed.total

    assert in_a_thread(work) == 1


def profiled_products(profile) -> int:
    return sum(event.name == "fastgemm.gemm[naive]" for event in profile.events())


@every_device
@pytest.mark.parametrize("memory", [False, True], ids=["", "memory"])
class TestProfiler:
    """torch's profiler stands in ThreadLocalDebugInfo, a stack that is handed on with the slot."""

    def new(self, memory):
        return torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=memory, record_shapes=memory
        )

    def test_started_before_a_patch_and_stopped_inside(self, memory, device):
        a, profile = draw(5, 5), self.new(memory)
        profile.start()
        with fastgemm.patch(level=1, kernel="naive") as routed:
            a @ a
            profile.stop()
            a @ a
        assert profiled_products(profile) == 1
        assert routed.kernels == {"naive": 2}

    def test_started_inside_and_stopped_behind(self, memory, device):
        a, profile = draw(5, 5), self.new(memory)
        with fastgemm.patch(kernel="naive") as routed:
            a @ a
            profile.start()
            a @ a
        a @ a
        profile.stop()
        assert profiled_products(profile) == 1
        assert sum(event.name == "aten::mm" for event in profile.events()) == 2
        assert routed.kernels == {"naive": 2}

    def test_around_and_inside(self, memory, device):
        a = draw(5, 5)
        with self.new(memory) as around, fastgemm.patch(kernel="naive") as routed:
            a @ a
        with fastgemm.patch(kernel="naive") as routed_too, self.new(memory) as inside:
            a @ a
        assert profiled_products(around) == profiled_products(inside) == 1
        assert routed.kernels == routed_too.kernels == {"naive": 1}

    def test_with_a_schedule(self, memory, device):
        a, found = draw(5, 5), []
        profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2),
            on_trace_ready=lambda profile: found.append(profiled_products(profile)),
            profile_memory=memory,
        )
        with fastgemm.patch(kernel="naive") as routed, profile:
            for _ in range(4):
                a @ a
                profile.step()
            with fastgemm.patch(kernel="naive") as inner:
                for _ in range(4):
                    a @ a
                    profile.step()
        assert found == [2, 2]
        assert routed.kernels == inner.kernels == {"naive": 4}

    def test_of_a_backward_pass(self, memory, device):
        x, profile = draw(4, 4).requires_grad_(), self.new(memory)
        profile.start()
        with fastgemm.patch(kernel="naive") as routed:
            (x @ x).sum().backward()
            profile.stop()
            (x @ x).sum().backward()
        assert routed.kernels == {"naive": 6}
        assert profiled_products(profile) == 3


@every_device
def test_record_function_and_saved_tensor_hooks_around_and_inside(device):
    x, names = draw(4, 4).requires_grad_(), []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: names.append("kept") or t, lambda t: t)
    with torch.profiler.record_function("outer"), fastgemm.patch(kernel="naive") as routed, hooks:
        with torch.profiler.record_function("inner"):
            y = x @ x
        y.sum().backward()
    assert names == ["kept", "kept"]
    assert routed.kernels == {"naive": 3}


# Entering and leaving


@every_device
@pytest.mark.parametrize("count", [2, 3, 5])
def test_patches_may_be_left_in_any_order(count, device):
    a = draw(4, 4)
    patches = [fastgemm.patch(kernel="naive") for _ in range(count)]
    counts = [0] * count
    active = []
    for number in range(count):
        patches[number].__enter__()
        active.append(number)
    while active:
        left = random.choice(active)
        active.remove(left)
        patches[left].__exit__(None, None, None)
        assert entered() == len(active)
        a @ a
        if active:
            counts[active[-1]] += 1
    assert [patch.routed.total for patch in patches] == counts
    assert kernels_that_ran(lambda: a @ a) == []


@every_device
def test_left_out_of_order_the_others_go_on_passing_on(device):
    a = draw(4, 4)
    outer, middle, inner = (
        fastgemm.patch(level=1),
        fastgemm.patch(level=2),
        fastgemm.patch(kernel=ELSEWHERE[device]),
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(outer)
        middle.__enter__()
        stack.enter_context(inner)
        a @ a
        middle.__exit__(None, None, None)
        a @ a
    assert [patch.routed.total for patch in (outer, middle, inner)] == [1, 1, 0]
    assert sum(inner.routed.passed_on.values()) == 2


@every_device
def test_one_patch_twice_left_once_is_still_entered(device):
    a, patch, other = draw(4, 4), fastgemm.patch(level=1), fastgemm.patch(level=2)
    patch.__enter__()
    other.__enter__()
    patch.__enter__()
    patch.__exit__(None, None, None)
    a @ a
    other.__exit__(None, None, None)
    a @ a
    patch.__exit__(None, None, None)
    a @ a
    assert (patch.routed.total, other.routed.total) == (1, 1)
    with pytest.raises(RuntimeError, match="each entry is left once"):
        patch.__exit__(None, None, None)


@every_device
def test_exceptions_end_the_patches_that_they_pass(device):
    a, patch = draw(4, 4), fastgemm.patch(level=1)

    class Interrupted(BaseException):
        pass

    def products(depth):
        with patch:
            if depth == 0:
                raise Interrupted
            try:
                products(depth - 1)
            finally:
                assert entered() == 6 - depth
                a @ a

    with pytest.raises(Interrupted):
        products(5)
    assert patch.routed.total == 5
    assert kernels_that_ran(lambda: a @ a) == []

    def fails(grad, x):
        with patch:
            raise ZeroDivisionError

    with fastgemm.patch(), pytest.raises(ZeroDivisionError):
        backward_in_another_thread(fails, draw(4, 4).requires_grad_())
    assert kernels_that_ran(lambda: a @ a) == []


@every_device
def test_a_generator_that_is_suspended_inside_of_a_patch(device):
    """As in torch.no_grad(), what it entered holds outside until it goes on."""
    a = draw(4, 4)

    def products():
        with fastgemm.patch(level=1) as routed:
            while True:
                yield routed

    one, other = products(), products()
    first = next(one)
    a @ a
    with fastgemm.patch(level=2) as between:
        second = next(other)
        a @ a
    a @ a
    one.close()
    a @ a
    assert entered() == 1
    other.close()
    a @ a
    assert (first.total, between.total, second.total) == (1, 0, 3)
    third = next(products())  # dropped at once
    gc.collect()
    a @ a
    assert not third.total
