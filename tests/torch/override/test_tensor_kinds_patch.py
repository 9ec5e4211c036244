"""Tests fastgemm.patch with every kind of tensor: results, gradients and errors must be those of torch alone.

Separate processes make the calls (tensor_kinds_worker.py), so that a crash is a difference of one kind.
"""

import contextlib
import json
import random

import pytest
from patches import needs_library
from processes import run_forked
from reference import DEVICES
from tensor_kinds import KINDS
from tensor_kinds_worker import OPS, Raised, cases, outcome

pytestmark = needs_library
ON_DEVICES = [(device, kind) for device in DEVICES for kind in KINDS if device in KINDS[kind].devices]
# Kinds of one group share a process, because its start and torch's lazy imports take longer than the calls.
GROUPS = [ON_DEVICES[first : first + 12] for first in range(0, len(ON_DEVICES), 12)]


def differences(group: list[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """The calls whose result differs in a patch, by kind. Calls that crash torch alone are left out."""
    found: dict[str, dict[str, str]] = {}
    left_out: list[tuple[str, str]] = []
    while group:
        task = group, random.getrandbits(32), left_out
        done = run_forked(f"from tensor_kinds_worker import tell\ntell(*{task})")
        said = [json.loads(line) for line in done.stdout.splitlines()]
        finished = [each["differences"] for each in said if "differences" in each]
        for (device, kind), of_kind in zip(group, finished, strict=False):
            found[f"{device} {kind}"] = of_kind
        group = group[len(finished) :]
        if done.returncode == 0 or not group:
            assert not group and done.returncode == 0, done.stderr
        elif said and "torch alone" in said[-1]:
            left_out.append((group[0][1], said[-1]["torch alone"]))
            assert len(left_out) < 5, f"torch does not survive {left_out}"
        else:
            (device, kind), *group = group
            found[f"{device} {kind}"] = {
                str(said[-1:] or done.stderr): f"the process ended: {done.returncode}"
            }
    return {kind: of_kind for kind, of_kind in found.items() if of_kind}


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: " ".join(group[0]))
def test_a_patch_changes_nothing(group):
    assert not differences(group)


@pytest.mark.filterwarnings("ignore")
def test_the_calls_are_not_all_refused():
    """Most products of most kinds work in torch alone."""
    torchs = {"plain": 0.9, "float64": 0.4, "complex64": 0.3, "nested": 0.1, "jagged": 0.1, "sparse csr": 0.1}
    for name, least in torchs.items():
        outcomes = [
            outcome(KINDS[name], op, plain, contextlib.nullcontext)
            for _, op, plain, _ in cases(KINDS[name], "cpu")
        ]
        good = [o for o in outcomes if not isinstance(o, Raised)]
        assert len(good) >= least * len(outcomes), (name, len(good), len(outcomes))
    assert all(len(ops) > 40 for ops in OPS.values())
