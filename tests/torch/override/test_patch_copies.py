"""Tests copies of a fastgemm.patch and of its counts, by copy and by pickle."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from patches import entered
from processes import run_forked

CLONES = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "deepcopy": copy.deepcopy}
each_clone = pytest.mark.parametrize("clone", CLONES.values(), ids=CLONES)


def counted(**choice):
    patch = fastgemm.patch(**choice)
    a = torch.randn(6, 7)
    with patch:
        torch.mm(a, a.t())
        torch.addmm(torch.randn(6), a, a.t())
        torch.addmm(torch.randn(6), a, a.t(), alpha=1e-50)
    return patch


@each_clone
def test_a_copy_is_a_patch_of_the_same_choice_that_counts_by_itself(clone):
    patch = counted(level=2, precision="ieee")
    other = clone(patch)
    assert other.routed.as_dict() == patch.routed.as_dict()
    a = torch.randn(5, 5)
    with other as routed:
        result = a @ a
    assert routed is other.routed
    assert (other.routed.ops["mm"], patch.routed.ops["mm"]) == (2, 1)
    assert torch.equal(result, fastgemm.matmul(a, a, level=2))
    with ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(other(torch.mm), a, a).result(), result)
    assert other.routed.ops["mm"] == 3


@each_clone
def test_a_copy_of_an_active_patch_is_entered_nowhere(clone):
    a = torch.randn(5, 5)
    with fastgemm.patch() as routed:
        other = clone(fastgemm.patch())
        with fastgemm.patch() as inner:
            active = clone(inner)
    with pytest.raises(RuntimeError, match="each entry is left once"):
        other.__exit__(None, None, None)
    patch = fastgemm.patch()
    with patch:
        other = clone(patch)
        with other:
            a @ a
        a @ a
    assert (patch.routed.ops, other.routed.ops) == ({"mm": 1}, {"mm": 1})
    assert not routed.total and not active.total
    assert entered() == 0


def test_a_shallow_copy_shares_the_counts():
    patch = counted()
    other = copy.copy(patch)
    with other:
        torch.randn(3, 3) @ torch.randn(3, 3)
    assert other.routed is patch.routed
    assert patch.routed.ops == {"mm": 2, "addmm": 1}


@pytest.mark.parametrize("clone", [*CLONES.values(), copy.copy], ids=[*CLONES, "copy"])
def test_copied_counts_are_those_of_their_moment(clone):
    patch = counted()
    counts = clone(patch.routed)
    assert str(counts) == str(patch.routed)
    assert counts.passed_on == {("addmm", "scales that float32 does not hold"): 1}
    with patch:
        torch.randn(3, 3) @ torch.randn(3, 3)
    assert (counts.total, patch.routed.total) == (2, 3)


def test_counts_of_another_process(tmp_path):
    """Distributed ranks may gather the counts."""
    file = tmp_path / "counts"
    code = f"""
import pickle, torch, fastgemm
with fastgemm.patch() as routed:
    torch.ones(3, 3) @ torch.ones(3, 3)
pickle.dump(routed, open({str(file)!r}, "wb"))
"""
    assert run_forked(code).returncode == 0
    counts = pickle.loads(file.read_bytes())
    assert isinstance(counts, fastgemm.Routed)
    assert counts.ops == {"mm": 1}
