"""tune=True on a GPU: captures, streams, and the time that it takes."""

from __future__ import annotations

import time

import fastgemm
import pytest
import torch
from fastgemm import tuning
from fastgemm._choice import autotuned
from fastgemm._drop_in import first_calls
from reference import DEVICES

if "cuda" not in DEVICES:
    pytest.skip("no GPU that a CUDA kernel of this build can use", allow_module_level=True)

pytestmark = pytest.mark.parametrize("device", ["cuda"])


@pytest.fixture(autouse=True)
def settled(tmp_path, monkeypatch):
    """The keys of each measurement."""
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))
    tuning.clear_cache()
    keys, settle = [], first_calls._settle

    def noting(key, *given):
        keys.append(key)
        settle(key, *given)

    monkeypatch.setattr(first_calls, "_settle", noting)
    yield keys
    fastgemm.disable()
    tuning.clear_cache()


def operands(m=512, n=768, k=1024, dtype=torch.bfloat16):
    return torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_the_first_call_measures_and_all_have_its_bits(settled, dtype):
    a, b = operands(dtype=dtype)
    with fastgemm.patch(tune=True) as routed:
        results = [a @ b for _ in range(3)]
    assert all(torch.equal(results[0], other) for other in results)
    torch.testing.assert_close(results[0].double(), a.double() @ b.double(), rtol=1e-2, atol=1)
    assert len(settled) == 1
    ((kernel, seconds),) = autotuned.kept("cuda").values()
    assert 2 <= len(seconds) <= 6
    assert [*routed.kernels] == [kernel]
    assert all(1e-7 < spent < 1e-2 for spent in seconds.values())


def test_nothing_is_measured_during_a_capture(settled):
    a, b = operands()
    expected = fastgemm.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with fastgemm.patch(tune=True):
        with torch.cuda.graph(graph):
            c = a @ b
        assert not settled
        graph.replay()
        assert torch.equal(c, expected)
        a @ b
        assert len(settled) == 1
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            a @ b
    assert len(settled) == 1


def test_on_another_stream_with_rows_and_in_place(settled):
    a, b = operands(dtype=torch.float32)
    row, c = torch.randn(768), torch.randn(512, 768)
    expected = torch.addmm(row, a, b), torch.addmm(c, a, b, beta=0.5, alpha=2.0)
    with torch.cuda.stream(torch.cuda.Stream()), fastgemm.patch(tune=True):
        found = torch.addmm(row, a, b), c.addmm_(a, b, beta=0.5, alpha=2.0)
    torch.cuda.synchronize()
    for own, torchs in zip(found, expected, strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-4, atol=1e-2)
    assert [key[13] & 4 for key in settled] == [4, 0]


def test_unaligned_rows_are_measured_for_themselves(settled):
    a, b = operands()
    with fastgemm.patch(tune=True):
        a @ b
        a @ torch.randn(1024, 769, dtype=b.dtype)[:, :768]
    assert [key[13] & 1 for key in settled] == [1, 0]
    assert settled[0][:13] == settled[1][:13]


def test_what_does_not_fit_into_free_memory_is_not_measured(settled):
    free, _ = torch.cuda.mem_get_info()
    assert not first_calls._fits(free, torch.device("cuda", 0))
    assert first_calls._fits(1 << 20, torch.device("cuda", 0))


def test_a_signature_takes_a_bounded_time(settled):
    operands_of = [operands(n=n) for n in (256, 320, 384, 448)]
    with fastgemm.patch(tune=True):
        torch.mm(*operands(n=64))  # loads what is loaded once
        torch.cuda.synchronize()
        start = time.perf_counter()
        for a, b in operands_of:
            a @ b
        torch.cuda.synchronize()
    assert len(settled) == 5
    assert time.perf_counter() - start < 4 * (first_calls.LIMIT + 0.5)
