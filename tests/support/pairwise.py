"""Fewer cases than every combination of values."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def pairs(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases, each with a value of every factor, such that any two values of two factors meet in one of them.

    A fault depends on one value, or on two that meet; one that only three bring out is rare. The choice is greedy
    and always the same.
    """

    def meetings(case: tuple[Any, ...]) -> set[Any]:
        return set(combinations(enumerate(case), 2))

    every = list(product(*factors))
    left, cases = set().union(*map(meetings, every)), []
    while left:
        cases.append(max(every, key=lambda case: len(left & meetings(case))))
        left -= meetings(cases[-1])
    return cases
