"""Tests that any two values occur together, in fewer cases than all combinations."""

from itertools import combinations, product

from pairwise import pairs


def test_every_two_values_meet():
    factors = ["abcde", (1, 2, 3, 4), (None, 0), (False, True)]
    cases = pairs(*factors)
    assert len(cases) == len(set(cases)) <= 24
    for (i, x), (j, y) in combinations(enumerate(factors), 2):
        assert {(case[i], case[j]) for case in cases} == set(product(x, y))
