"""Tests the slot of torch's thread-local state that holds a patch.

Other data in this state must not change. Patches may be entered and left in any order.
"""

import gc
import random

import fastgemm
import pytest
import torch
from patches import ELSEWHERE, backward_in_another_thread, draw, entered, in_a_thread, needs_library
from reference import every_device, kernels_that_ran

pytestmark = [needs_library, pytest.mark.usefixtures("nothing_is_left")]


# Other data in torch's thread-local state


FOREIGN = [object() for _ in range(64)]  # never deleted: torch 2.11 releases a reference that it did not take


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


def profiler(memory):
    cpu = [torch.profiler.ProfilerActivity.CPU]
    return torch.profiler.profile(activities=cpu, profile_memory=memory, record_shapes=memory)


@every_device
@pytest.mark.parametrize("memory", [False, True], ids=["", "memory"])
def test_torchs_profiler(memory, device):
    """The profiler's data are in ThreadLocalDebugInfo, a stack that torch copies to threads together with the
    slot."""
    a, patch = draw(5, 5), fastgemm.patch(kernel="naive")
    with profiler(memory) as around, patch:
        a @ a
    with patch, profiler(memory) as inside:
        a @ a
    before, behind = profiler(memory), profiler(memory)
    before.start()
    with patch:
        a @ a
        before.stop()
        a @ a
        behind.start()
        a @ a
    a @ a
    behind.stop()
    assert [profiled_products(profile) for profile in (around, inside, before, behind)] == [1] * 4
    assert sum(event.name == "aten::mm" for event in behind.events()) == 2
    assert patch.routed.kernels == {"naive": 5}


@every_device
def test_the_profiler_of_a_backward_pass(device):
    x, profile = draw(4, 4).requires_grad_(), profiler(memory=False)
    profile.start()
    with fastgemm.patch(kernel="naive") as routed:
        (x @ x).sum().backward()
        profile.stop()
        (x @ x).sum().backward()
    assert routed.kernels == {"naive": 6}
    assert profiled_products(profile) == 3


# Entering and leaving


@every_device
@pytest.mark.parametrize("count", [2, 5])
def test_patches_may_be_left_in_any_order(count, device):
    """A patch that passes a product on passes it to the next patch that is still entered."""
    a = draw(4, 4)
    patches = [fastgemm.patch(kernel="naive" if i % 2 else ELSEWHERE[device]) for i in range(count)]
    counts, active = [0] * count, list(range(count))
    for patch in patches:
        patch.__enter__()
    while active:
        left = random.choice(active)
        active.remove(left)
        patches[left].__exit__(None, None, None)
        assert entered() == len(active)
        a @ a
        for number in [number for number in active if number % 2][-1:]:
            counts[number] += 1
    assert [patch.routed.total for patch in patches] == counts
    assert kernels_that_ran(lambda: a @ a) == []


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
    """As with torch.no_grad(), a patch that a generator entered also holds outside until the generator
    continues."""
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
