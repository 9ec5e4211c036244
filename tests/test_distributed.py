"""Sharded operands (DTensor) on two processes: values against float64 of one process, placements, communication."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torch.distributed.tensor", reason="this torch is built without torch.distributed")

import fastgemm
import sharding
from ranks import Ranks

SIZES = M, K, N = 7, 11, 5  # all uneven over two devices


@pytest.fixture(scope="module", params=["cpu", "cuda"] if torch.cuda.device_count() >= 2 else ["cpu"])
def ranks(request):
    processes = Ranks(2, request.param)
    yield processes
    processes.stop()


def product(*operands, **options):
    return fastgemm.gemm(*operands, **options)


def check_rule(names, result, options):
    shapes = [(M, K), (K, N), (M, N)][: len(names)]
    sharding.check_product(fastgemm.gemm, (2,), shapes, names, result, **options)


@pytest.mark.parametrize(
    ("names", "result"),
    [
        (("R", "R"), "R"),
        (("S0", "R"), "S0"),
        (("R", "S1"), "S1"),
        (("S1", "S0"), "P"),
        (("P", "R"), "P"),
        (("R", "P"), "P"),
        (("avg", "R"), "avg"),
        (("R", "avg"), "avg"),
    ],
)
def test_products(ranks, names, result):
    ranks.run(check_rule, names, result, {"alpha": 1.5})
