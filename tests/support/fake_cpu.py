"""A fake processor for tests of ``fastgemm tune``. It differs from this one in the times of some kernels."""

import math
import random
from collections.abc import Collection

import torch
from fastgemm import _introspect
from fastgemm._choice.predictions import Problem
from fastgemm._tune.cpu import CpuTarget


class FakeCpu:
    """Its kernels take a multiple of the untuned predictions, with a little noise. Each problem takes SECONDS of
    its clock."""

    SECONDS = 1 / 32
    THREADS = (1, 4)

    def __init__(self, factors: dict[str, float]):
        self.name, self.factors = _introspect.build_info()["cpu_model"], factors
        self.asked: list[tuple[Problem, int, tuple[str, ...]]] = []
        self._noise = random.Random(1)
        self._before: dict[tuple[Problem, int], dict[str, float]] = {}

    @property
    def target(self) -> CpuTarget:
        return CpuTarget(self.name, self._measure, self.THREADS, clock=lambda: self.SECONDS * len(self.asked))

    def _measure(self, problem: Problem, kernels: Collection[str]) -> dict[str, float]:
        threads = torch.get_num_threads()
        self.asked.append((problem, threads, tuple(kernels)))
        seconds = self.seconds(problem, threads)
        return {name: seconds[name] * math.exp(self._noise.gauss(0, 0.01)) for name in kernels}

    def seconds(self, problem: Problem, threads: int) -> dict[str, float]:
        """The time without noise. The first call must come before anything is tuned."""
        key = problem, threads
        if key not in self._before:
            self._before[key] = dict(_introspect.cpu_predictions(problem, threads))
        return {name: self.factors.get(name, 1.0) * s for name, s in self._before[key].items()}
