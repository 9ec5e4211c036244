"""Tests transpose and add on the simulator, and the scope of a simulation: its levels, threads and end."""

from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from reference import (
    assert_right,
    expected_gemm,
    needs_simulator,
    random_tensor,
    row_id,
    simulated_rows,
    wrapped,
)

pytestmark = needs_simulator


@pytest.fixture(autouse=True)
def on_the_simulator():
    with fastgemm.simulate():
        yield


every_transpose_row = pytest.mark.parametrize(("kernel", "dtype"), simulated_rows("transpose"), ids=row_id)
every_add_row = pytest.mark.parametrize(("kernel", "dtype"), simulated_rows("add"), ids=row_id)


@every_transpose_row
def test_transpose(kernel, dtype):
    sizes = [(1, 1), (1, 9), (9, 1), (3, 5), (16, 16), (17, 33), (64, 31), (65, 130), (128, 192), (270, 131)]
    for rows_, cols in sizes:
        x = random_tensor(rows_, cols, dtype=torch.int8).to(dtype)
        assert fastgemm.transpose(x, kernel=kernel).equal(x.t())
    wide = random_tensor(3, 40, 77, dtype=torch.int8).to(dtype)
    for x in (wide, wide[:, 1:, 3:70], wide.mT, wide[:, :, 8:72]):
        assert fastgemm.transpose(x, kernel=kernel).equal(x.mT)
    out = torch.zeros(3, 77, 50, dtype=dtype)
    fastgemm.transpose(wide, kernel=kernel, out=out[:, :, 4:44])
    assert out[:, :, 4:44].equal(wide.mT)
    assert not out[:, :, :4].any()
    assert not out[:, :, 44:].any()


@every_add_row
def test_add(kernel, dtype):
    for shape in [(1,), (7,), (1000,), (5, 33), (40, 131), (64, 128)]:
        a, b = random_tensor(*shape, dtype=dtype), random_tensor(*shape, dtype=dtype)
        assert_sum(a, b, 1, kernel)
        assert_sum(a, b, -3, kernel)
    a = random_tensor(40, 131, dtype=dtype)
    assert_sum(a, random_tensor(131, dtype=dtype), 2, kernel)
    assert_sum(a, random_tensor(40, 1, dtype=dtype), 1, kernel)
    assert_sum(a[:, 3:90], random_tensor(87, 40, dtype=dtype).t(), 1, kernel)


def assert_sum(a, b, alpha, kernel):
    result = fastgemm.add(a, b, alpha=alpha, kernel=kernel)
    if not a.dtype.is_floating_point:
        assert result.equal(wrapped(a.long() + alpha * b.long(), a.dtype))
        return
    exact = a.double() + alpha * b.double()
    bound = 2 * torch.finfo(a.dtype).eps * (a.double().abs() + abs(alpha) * b.double().abs())
    assert ((result.double() - exact).abs() <= bound).all()


def test_levels_name_cuda_rungs():
    """In a simulation a level is a rung of the CUDA ladder, and level=None is the highest. No CPU rows can run."""
    a, b = torch.randn(20, 30), torch.randn(30, 10)
    for level in (None, 1, 2, 3, 4, 5):
        assert_right(fastgemm.matmul(a, b, level=level), expected_gemm(a, b), f"level {level}")
    with pytest.raises(ValueError, match="unknown kernel 'microkernel' for gemm on the simulator"):
        fastgemm.matmul(a, b, kernel="microkernel")


def test_gradients_run_there_too():
    a, b = torch.randn(20, 30, requires_grad=True), torch.randn(30, 10, requires_grad=True)
    fastgemm.matmul(a, b, kernel="tiled").square().sum().backward()
    with torch.no_grad():
        assert a.grad.allclose(2 * (a @ b) @ b.t(), atol=1e-4)


def test_each_thread_has_a_simulation_of_its_own():
    """Launches of several threads alternate. Meanwhile a thread without a simulation runs on the CPU."""
    a, b = torch.randn(40, 30), torch.randn(30, 50)

    def simulated() -> bool:
        with fastgemm.simulate():
            return all(fastgemm.matmul(a, b, kernel="tiled").allclose(a @ b, atol=1e-4) for _ in range(5))

    def counted() -> bool:
        reports = [fastgemm.explain("gemm", kernel="tiled", shape=(64, 64, 64)) for _ in range(3)]
        return all(len(r.launches) == 1 and r.totals.global_requests == 640 for r in reports)

    def on_cpu() -> bool:
        return all(fastgemm.matmul(a, b, kernel="simd").allclose(a @ b, atol=1e-4) for _ in range(5))

    with ThreadPoolExecutor(6) as pool:
        assert all(task.result() for task in [pool.submit(f) for f in 2 * (simulated, counted, on_cpu)])
