"""A simulated GPU, to test what ``fastgemm tune`` does with measured times."""

import math
import random
from collections.abc import Collection
from typing import Any

from fastgemm import _introspect
from fastgemm._tune.measuring import LIBRARY, Problem, Target

AMPERE = {
    "capability": 80,
    "multiprocessors": 108,
    "shared_bytes": 163 << 10,
    "l2_bytes": 40 << 20,
    "clock": 1.41e9,
    "bandwidth": 2.039e12,
    "wgmma": False,
}
SECONDS = 1 / 32  # of the fake clock, for each problem


def number_of(name: str) -> int:
    """The same as gpu_number() of core/tuning.h."""
    found = 0xCBF29CE484222325
    for byte in name.encode():
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found


def properties_of(name: str) -> dict[str, Any]:
    return AMPERE | {"number": number_of(name)}


class FakeGpu:
    """Its kernels take a multiple of the time that fastgemm's constants predict. The library takes a multiple
    of its lower bound. Both have a little noise. Each problem takes SECONDS of its clock."""

    def __init__(
        self, name: str = "NVIDIA Test, 108 multiprocessors", factors: dict[str, float] | None = None
    ):
        self.name, self.properties, self.factors = name, properties_of(name), dict(factors or {})
        self.asked: list[tuple[Problem, tuple[str, ...]]] = []
        self._shipped = AMPERE | {"number": 0}
        self._noise = random.Random(1)

    @property
    def target(self) -> Target:
        return Target(self.name, self.properties, self._measure, clock=lambda: SECONDS * len(self.asked))

    def _measure(self, problem: Problem, kernels: Collection[str]) -> dict[str, float]:
        self.asked.append((problem, tuple(kernels)))
        return {
            name: seconds * math.exp(self._noise.gauss(0, 0.01))
            for name in kernels
            if (seconds := self.seconds(problem, name)) is not None
        }

    def seconds(self, problem: Problem, kernel: str) -> float | None:
        """The time without noise; None if the kernel does not take the problem. No library takes int32."""
        if kernel == LIBRARY and problem[0] == "int32":
            return None
        if kernel in ("bf16x3", "fp16x3"):
            problem = ("float32", kernel, *problem[2:])
        shipped = dict(_introspect.predictions(problem, self._shipped))[kernel]
        launch = 5e-6 if kernel == LIBRARY else 0.0
        return self.factors.get(kernel, 1.5 if kernel == LIBRARY else 1.0) * shipped + launch
