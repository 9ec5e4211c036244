"""Tests fastgemm.patch with every kind of tensor: results, gradients and errors must be those of torch alone.

A separate process makes the calls (tensor_kinds_worker.py), so that a crash fails only one test.
"""

from __future__ import annotations

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


def differences(device: str, kind: str) -> dict[str, str]:
    """The calls whose result differs in a patch. Calls that crash torch alone are left out."""
    left_out: list[str] = []
    while True:
        task = device, kind, random.getrandbits(32), left_out
        done = run_forked(f"from tensor_kinds_worker import tell\ntell(*{task})")
        said = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"patched": done.stderr}
        if done.returncode == 0:
            return said["differences"]
        if "torch alone" not in said:
            return {said["patched"]: f"the process ended: {done.returncode}"}
        left_out.append(said["torch alone"])
        assert len(left_out) < 5, f"torch does not survive {left_out}"


@pytest.mark.parametrize(("device", "kind"), ON_DEVICES)
def test_a_patch_changes_nothing(device, kind):
    assert not differences(device, kind)


@pytest.mark.filterwarnings("ignore")
def test_the_calls_are_not_all_refused():
    """Most products of most kinds work in torch alone."""
    torchs = {"plain": 0.9, "float64": 0.4, "complex64": 0.3, "nested": 0.1, "jagged": 0.1, "sparse csr": 0.2}
    for name, least in torchs.items():
        outcomes = [
            outcome(KINDS[name], op, plain, contextlib.nullcontext)
            for _, op, plain, inference in cases(KINDS[name], "cpu")
            if not inference
        ]
        good = [o for o in outcomes if not isinstance(o, Raised)]
        assert len(good) >= least * len(outcomes), (name, len(good), len(outcomes))
    assert all(len(ops) > 40 for ops in OPS.values())
