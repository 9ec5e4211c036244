"""Fewer cases than every combination of values."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def pairs(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases, each with one value of every factor. Any two values of two factors occur together in one of
    them.

    Most faults depend on one value or on two together; faults that need three are rare. The choice is greedy
    and deterministic.
    """

    def meetings(case: tuple[Any, ...]) -> set[Any]:
        return set(combinations(enumerate(case), 2))

    every = list(product(*factors))
    left, cases = set().union(*map(meetings, every)), []
    while left:
        cases.append(max(every, key=lambda case: len(left & meetings(case))))
        left -= meetings(cases[-1])
    return cases
