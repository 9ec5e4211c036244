"""fastgemm.patch and every kind of tensor that torch has: results, gradients and errors are those of torch alone.

The calls are made by a process of its own (tensor_kinds_worker.py), so that one which ends it fails a test.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from reference import DEVICES
from tensor_kinds import KINDS
from tensor_kinds_worker import OPS, Raised, cases, outcome

HERE = Path(__file__).parent


class Worker:
    """A process that is started when it is needed, and again after it died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
        return subprocess.Popen(
            [sys.executable, str(HERE / "tensor_kinds_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def stop(self) -> int:
        assert self.process is not None
        self.process.stdin.close()
        status = self.process.wait()
        self.process.stdout.close()
        self.process = None
        return status

    def differences(self, device: str, kind: str) -> dict[str, str]:
        """What is another result in a patch, by call. What torch alone does not survive is left out."""
        left_out: list[str] = []
        task = {"device": device, "kind": kind, "seed": random.getrandbits(32), "left out": left_out}
        while True:
            self.process = self.process or self.start()
            print(json.dumps(task), file=self.process.stdin, flush=True)
            said: dict[str, object] = {}
            for line in self.process.stdout:
                said = json.loads(line)
                if "differences" in said:
                    return said["differences"]
            status = self.stop()
            if "torch alone" not in said:
                return {str(said.get("patched")): f"the process ended: {status}"}
            left_out.append(str(said["torch alone"]))
            assert len(left_out) < 5, f"torch does not survive {left_out}"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    if worker.process is not None:
        assert worker.stop() == 0


ON_DEVICES = [(device, kind) for device in DEVICES for kind in KINDS if device in KINDS[kind].devices]


@pytest.mark.parametrize(("device", "kind"), ON_DEVICES)
def test_a_patch_changes_nothing(device, kind, worker):
    assert not worker.differences(device, kind)


@pytest.mark.filterwarnings("ignore")
def test_the_calls_are_not_all_refused():
    """By torch alone: most products of most kinds are ones that it has."""
    torchs = {"plain": 0.9, "float64": 0.5, "complex64": 0.5, "nested": 0.1, "jagged": 0.1, "sparse csr": 0.2}
    for name, least in torchs.items():
        outcomes = [
            outcome(KINDS[name], op, plain, contextlib.nullcontext)
            for _, op, plain, inference in cases(KINDS[name], "cpu")
            if not inference
        ]
        good = [o for o in outcomes if not isinstance(o, Raised)]
        assert len(good) >= least * len(outcomes), (name, len(good), len(outcomes))
    assert all(len(ops) > 50 for ops in OPS.values())
