"""Tests torch.use_deterministic_algorithms: all runs give the same bits, or the call is refused."""

import hashlib
import warnings

import fastgemm
import pytest
import torch
from fastgemm import tuning
from fastgemm._ops import torch_flags
from processes import run_forked, run_python
from reference import (
    DEVICES,
    every_device,
    kernels_that_ran,
)


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@every_device
def test_gradients_and_the_free_choice_repeat_their_bits():
    x, w = torch.randn(130, 70), torch.randn(70, 90)

    def step():
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = fastgemm.add(fastgemm.transpose(fastgemm.matmul(a, b)), torch.ones(130))
        y.sin().sum().backward()
        return y.detach(), a.grad, b.grad

    first = step()
    for _ in range(5):
        assert all(torch.equal(p, q) for p, q in zip(first, step(), strict=True))


RUN = """
import hashlib, torch, fastgemm
torch.use_deterministic_algorithms(True)
torch.set_num_threads(2)
torch.manual_seed(1)
digest = hashlib.sha256()
for m, n, k in [(300, 200, 777), (64, 64, 4096), (5, 1000, 300)]:
    a, b = torch.randn(m, k).to("{device}"), torch.randn(k, n).to("{device}")
    for level in (None, 1, 2, 3, 4, 5, 6):
        digest.update(fastgemm.matmul(a, b, level=level).cpu().numpy().tobytes())
print(digest.hexdigest())
"""


@every_device
def test_same_bits_in_another_process(device):
    program = RUN.format(device=device)
    first, second = run_python(["-c", program]), run_forked(program)  # at other addresses
    assert first.returncode == 0, first.stderr
    assert len(first.stdout.strip()) == hashlib.sha256().digest_size * 2
    assert first.stdout == second.stdout


@every_device
def test_autotune_refuses():
    """With measurements the choice, and so the last bits, would depend on times."""
    a = torch.randn(16, 16)
    with pytest.raises(RuntimeError, match="chooses by measured time"):
        fastgemm.autotune(a, a, budget=0, save=False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="chooses by measured time"):
        fastgemm.autotune(a, a, budget=0, save=False)
    torch.use_deterministic_algorithms(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fastgemm.autotune(a, a, budget=0, save=False)
    fastgemm.tuning.clear_cache()


@every_device
def test_what_was_measured_before_is_used():
    a = torch.randn(40, 40)
    key = tuning.gemm_key(a, a)
    for kernel in ("naive", "tiled" if a.is_cuda else "blocked"):
        tuning._remember(key, kernel, tuning.environment(a.device))
        assert kernels_that_ran(lambda: fastgemm.matmul(a, a)) == [kernel]
    tuning.clear_cache()


def test_torchs_cublas_counts_only_where_it_is_deterministic(monkeypatch):
    """torch refuses cuBLAS in this mode unless CUBLAS_WORKSPACE_CONFIG makes it reproducible."""

    def computes():
        return torch_flags.torch_computes("cuda", "float32", torch_flags.torch_fp32_precision())

    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert not computes()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert computes()
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    torch.use_deterministic_algorithms(False)
    assert computes()
    torch.use_deterministic_algorithms(True)
    assert torch_flags.torch_computes("cpu", "float32", "ieee")


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize("device", ["cuda"])
def test_another_kernel_is_chosen_on_a_gpu(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    a = torch.randn(64, 64)
    with pytest.raises(RuntimeError, match="CUBLAS_WORKSPACE_CONFIG"):
        fastgemm.matmul(a, a, kernel="torch")
    assert "torch" not in kernels_that_ran(lambda: [fastgemm.matmul(a, a) for _ in range(3)])
