"""Tests the op that turns a packed weight into a matrix, on a CPU and by the CUDA kernel on the simulator. Its
bits must be those of torch's operations."""

import fastgemm
import pytest
import torch
from fastgemm._quantized import layout
from reference import needs_simulator
from torch.library import opcheck
from weights import KINDS, kind_id, random_weight

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def by_torch(q: fastgemm.QuantizedWeight, dtype: torch.dtype, monkeypatch) -> torch.Tensor:
    with monkeypatch.context() as patch:
        patch.setattr(layout, "has_kernel", lambda codes, packing: False)
        return q.dequantize(dtype)


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_a_cpu(kind, monkeypatch):
    for shape in ((70, 200), (3, 387), (1, 1)):
        q = random_weight(*shape, kind, order=True)
        for dtype in DTYPES:
            assert torch.equal(q.dequantize(dtype), by_torch(q, dtype, monkeypatch))


@needs_simulator
@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_units_on_the_simulator(kind, monkeypatch):
    q = random_weight(70, 200, kind)._ordered(True)
    for dtype in DTYPES:
        expected = by_torch(q, dtype, monkeypatch)
        with fastgemm.simulate():
            result = q.dequantize(dtype)
        assert torch.equal(result, expected)


def arguments(q: fastgemm.QuantizedWeight):
    packing = q._packing
    facts = {
        name: getattr(packing, name)
        for name in ("n", "k", "code", "scale", "zero", "units", "group_n", "group_k")
    }
    return (q._codes, q._scales, q._zeros, q._global), facts


def test_opcheck_and_compile():
    for kind in (KINDS[0], KINDS[3]):  # opcheck cannot compare scales of 8 bits
        q = random_weight(33, 200, kind)
        tensors, facts = arguments(q)
        opcheck(torch.ops.fastgemm._dequantize.default, tensors, {**facts, "dtype": torch.bfloat16})
        compiled = torch.compile(lambda q: q.dequantize(torch.float16), fullgraph=True, backend="eager")
        assert torch.equal(compiled(q), q.dequantize(torch.float16))


@pytest.mark.parametrize(
    "change, said",
    [
        ({"n": 34}, "scales must be contiguous"),
        ({"k": -1}, "k must not be negative"),
        ({"code": "int3"}, "unknown code 'int3'"),
        ({"group_k": 0}, "must be positive"),
        ({"units": True}, "codes must be contiguous|codes has dtype"),
        ({"dtype": torch.float64}, "not torch.float64"),
    ],
    ids=str,
)
def test_what_is_refused(change, said):
    tensors, facts = arguments(random_weight(33, 200, KINDS[0]))
    with pytest.raises(ValueError, match=said):
        torch.ops.fastgemm._dequantize(*tensors, **(facts | change))


def test_units_are_for_a_gpu():
    q = random_weight(64, 128, KINDS[0])._ordered(True)
    tensors, facts = arguments(q)
    with pytest.raises(ValueError, match="order of another device"):
        torch.ops.fastgemm._dequantize(*tensors, **facts)
    assert q.dequantize().shape == (64, 128)  # by torch's operations
