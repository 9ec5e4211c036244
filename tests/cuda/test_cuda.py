"""Tests that need a GPU: streams, graphs, several devices, full memory, failed launches, huge tensors."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from fastgemm import tuning
from processes import run_python
from reference import (
    DEVICES,
    LEVEL,
    LIBRARY_LEVEL,
    assert_right,
    by_name,
    check_gemm,
    expected_gemm,
    integer_product,
    levels,
    random_tensor,
    refusal_allowed,
    row_id,
    rows,
    wrapped,
)
from torch import Tensor

if "cuda" not in DEVICES:
    pytest.skip("no GPU that a CUDA kernel of this build can use", allow_module_level=True)

pytestmark = pytest.mark.parametrize("device", ["cuda"])

ROWS = [(kernel, dtype) for _, kernel, dtype in rows("gemm", "cuda")]
OWN_ROWS = [(kernel, dtype) for kernel, dtype in ROWS if LEVEL["gemm", "cuda", kernel] < LIBRARY_LEVEL]
TRANSPOSES = [
    row for row in fastgemm.kernels("transpose", "cuda") if row.available and row.level < LIBRARY_LEVEL
]
SIZES = [
    (33, 65, 17),
    (64, 48, 9000),
    (1000, 777, 301),
]  # the second shape splits K, the third has a partial last wave
CALLS = [(op, level) for op in ("gemm", "transpose", "add") for level in [None, *levels(op, "cuda")]]


def call(op: str, level: int | None, a: Tensor, b: Tensor) -> Tensor:
    """Calls the op on a and b. transpose uses a, and add uses a twice."""
    if op == "gemm":
        return fastgemm.matmul(a, b, level=level)
    return fastgemm.transpose(a, level=level) if op == "transpose" else fastgemm.add(a, a, level=level)


def check(op: str, result: Tensor, a: Tensor, b: Tensor) -> None:
    if op == "gemm":
        assert_right(result, expected_gemm(a, b))
    else:
        assert torch.equal(result, a.mT if op == "transpose" else a + a)


# Libraries


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_cublaslt_adds_a_bias_row(dtype):
    """cuBLASLt's epilogue adds the row. The plan is kept for the next call, but the row's address is not."""
    a, b = random_tensor(6, 70, 48, dtype=dtype), random_tensor(48, 96, dtype=dtype)
    run = {"kernel": "cublaslt_1"}
    for _ in range(2):
        row = random_tensor(96, dtype=dtype)
        check_gemm(a[0], b, row, **run)
        check_gemm(a[0], b, row[None], alpha=-3, **run)
        check_gemm(a, b, row, **run)
        check_gemm(a[:, ::2], b, row, **run)
    if dtype != torch.float32:
        check_gemm(a[0], b, torch.randn(96), out_dtype=torch.float32, **run)
    for c, scales in ((row, {"beta": 2}), (random_tensor(192, dtype=dtype)[::2], {})):
        with pytest.raises(RuntimeError, match="a row as c with beta = 1"):
            fastgemm.gemm(a[0], b, c, **scales, **run)


# Streams


@pytest.mark.parametrize(("op", "level"), CALLS)
def test_work_goes_to_the_current_stream(op, level):
    """The operand is written late on a side stream. Work on another stream would read the NaN before it."""
    a, b = torch.full((300, 200), torch.nan), torch.randn(200, 100)
    late = torch.randn(300, 200)
    call(op, level, late, b)  # loads code and creates handles before the test of the order
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # 25 ms
        a.copy_(late)
        result = call(op, level, a, b)
    stream.synchronize()
    check(op, result, late, b)


def test_streams_do_not_share_scratch_memory():
    """Many products in flight on several streams at once, each with its own workspace."""
    streams = [torch.cuda.Stream() for _ in range(4)]
    jobs = []
    for i, (m, n, k) in enumerate(SIZES * 8):
        a, b = torch.randn(m, k), torch.randn(k, n)
        jobs.append((streams[i % 4], a, b))
    torch.cuda.synchronize()
    results = []
    for stream, a, b in jobs:
        with torch.cuda.stream(stream):
            results.append(fastgemm.matmul(a, b, level=5))
    torch.cuda.synchronize()
    for (_, a, b), result in zip(jobs, results, strict=True):
        assert_right(result, expected_gemm(a, b))


# Graphs


@pytest.mark.parametrize(("op", "level"), CALLS)
def test_graph_capture_and_replay(op, level):
    for m, n, k in SIZES:
        a, b = torch.randn(m, k), torch.randn(k, n)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call(op, level, a, b)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call(op, level, a, b)
        for _ in range(3):
            a.copy_(torch.randn(m, k))
            b.copy_(torch.randn(k, n))
            result.fill_(torch.nan)
            graph.replay()
            check(op, result, a, b)


@pytest.mark.parametrize(("kernel", "dtype"), OWN_ROWS, ids=row_id)
def test_every_kernel_is_captured(kernel, dtype):
    a, b = random_tensor(200, 150, dtype=dtype), random_tensor(150, 100, dtype=dtype)
    choice = by_name(kernel, dtype)
    fastgemm.matmul(a, b, **choice)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = fastgemm.matmul(a, b, **choice)
    for _ in range(2):
        a.copy_(random_tensor(200, 150, dtype=dtype))
        result.fill_(77)
        graph.replay()
        assert_right(result, expected_gemm(a, b, precision=choice.get("precision")), kernel)


def test_nothing_is_measured_while_capturing(monkeypatch):
    monkeypatch.setattr(tuning, "time_all", None)
    a = torch.randn(100, 100)
    fastgemm.matmul(a, a)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fastgemm.matmul(a, a)
        with pytest.raises(RuntimeError, match="while a CUDA graph is being captured"):
            fastgemm.autotune(a, a)
    graph.replay()


# Devices


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_on_a_device_that_is_not_current():
    with torch.cuda.device(0):
        a, b = torch.randn(300, 200, device="cuda:1"), torch.randn(200, 100, device="cuda:1")
        for op, level in CALLS:
            result = call(op, level, a, b)
            assert result.device == a.device
            assert torch.cuda.current_device() == 0
            check(op, result, a, b)
        with pytest.raises(ValueError, match="all tensors must be on one device"):
            fastgemm.matmul(a, b.to("cuda:0"))


def test_mixed_devices_are_refused():
    a = torch.randn(4, 4)
    for function in (fastgemm.matmul, fastgemm.add):
        with pytest.raises(ValueError, match=r"one device, got a on cuda:0, b on cpu"):
            function(a, a.cpu())
        with pytest.raises(ValueError, match="out on cpu"):
            function(a, a, out=torch.empty(4, 4, device="cpu"))
    with pytest.raises(ValueError, match="one device"):
        fastgemm.gemm(a, a, a.cpu())
    with pytest.raises(ValueError, match="one device"):
        fastgemm.transpose(a, out=torch.empty(4, 4, device="cpu"))


def test_bad_arguments_name_what_this_device_has():
    a = torch.randn(4, 4)
    with pytest.raises(ValueError, match=r"unknown kernel 'naiv' for gemm on cuda; .*'naive'"):
        fastgemm.matmul(a, a, kernel="naiv")
    with pytest.raises(ValueError, match="unknown kernel 'microkernel' for gemm on cuda"):
        fastgemm.matmul(a, a, kernel="microkernel")
    with pytest.raises(ValueError, match="level must be 1 to 7 or None, got 8"):
        fastgemm.matmul(a, a, level=8)
    with pytest.raises(TypeError, match=r"a has dtype torch\.uint32"):
        fastgemm.matmul(a.to(torch.uint32), a.to(torch.uint32))


# Launches

FAILED_LAUNCH = """
import contextlib, torch, fastgemm
a = torch.ones(8, 8, device="cuda")
out = torch.empty_like(a)
fastgemm.matmul(a, a, kernel="naive", out=out)
graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
torch.cuda.synchronize()
with torch.cuda.stream(stream):
    graph.capture_begin()
    with contextlib.suppress(RuntimeError):
        torch.cuda.synchronize()  # not permitted: spoils the capture, so that every launch into it fails
    try:
        fastgemm.matmul(a, a, kernel="naive", out=out)
    except RuntimeError as error:
        print(error)
    with contextlib.suppress(RuntimeError):
        graph.capture_end()
out.zero_()
fastgemm.matmul(a, a, kernel="naive", out=out)
print(out.sum().item())
"""


def test_a_failed_launch_names_kernel_place_and_code():
    done = run_python(["-c", FAILED_LAUNCH])
    assert done.returncode == 0, done.stderr
    message, after = done.stdout.strip().rsplit("\n", 1)
    for part in (
        "launching kernel 'naive' failed",
        "level1_naive.cu:",
        "(code 90",
        "grid (",
        "block (256, 1, 1)",
    ):
        assert part in message
    assert float(after) == 8 * 64  # the library still works


# Sizes beyond 2**31


def enough_memory(gigabytes: float) -> None:
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < gigabytes * 1e9:
        pytest.skip(f"needs {gigabytes} GB of free GPU memory")


@pytest.mark.parametrize("kernel", [row.name for row in TRANSPOSES if row.takes(torch.uint8)])
def test_transpose_beyond_32_bits(kernel):
    enough_memory(10)
    a = torch.empty(65_537, 32_771, dtype=torch.uint8).random_(256)
    out = fastgemm.transpose(a, kernel=kernel)
    for start in range(0, 32_771, 4096):  # comparing all elements at once would double the memory
        assert torch.equal(out[start : start + 4096], a[:, start : start + 4096].t())


@pytest.mark.parametrize("kernel", [kernel for kernel, dtype in OWN_ROWS if dtype == torch.int8])
@pytest.mark.parametrize(("m", "n", "k"), [(33_700_003, 3, 64), (33_700_003, 65, 5)], ids=["A", "C"])
def test_gemm_beyond_32_bits(kernel, m, n, k):
    enough_memory(25)
    a, b = (torch.empty(*shape, dtype=torch.int8).random_(-128, 128) for shape in ((m, k), (k, n)))
    if kernel == "one_wave":
        with pytest.raises(RuntimeError, match="above 2,097,120, the most that its grid of tiles covers"):
            fastgemm.matmul(a, b, kernel=kernel)
        return
    out = fastgemm.matmul(a, b, kernel=kernel)
    picked = torch.cat([torch.arange(64), torch.randint(m, (2000,)), torch.arange(m - 64, m)])
    expected = wrapped(integer_product(a[picked].cpu(), b.cpu()), torch.int32)
    assert torch.equal(out[picked].cpu(), expected)


@pytest.mark.parametrize("level", levels("add", "cuda"))
def test_add_beyond_32_bits(level):
    enough_memory(10)
    a = torch.empty(2**31 + 12_345, dtype=torch.int8).random_(-128, 128)
    out = fastgemm.add(a, a, level=level)
    for start in range(0, a.numel(), 2**29):
        part = slice(start, start + 2**29)
        assert torch.equal(out[part], a[part] + a[part])


# Reproducibility


@pytest.mark.parametrize(("kernel", "dtype"), ROWS, ids=row_id)
def test_same_bits_however_busy_the_gpu_is(kernel, dtype):
    """Blocks that wait for each other or add partial sums must use a fixed order."""
    other, load = torch.cuda.Stream(), torch.randn(2048, 2048)
    choice = by_name(kernel, dtype)
    for m, n, k in [(513, 1025, 2049), (100, 60, 20_000), (1920, 1280, 512), (2176, 2048, 300)]:
        a, b = random_tensor(m, k, dtype=dtype), random_tensor(k, n, dtype=dtype)
        with refusal_allowed("gemm", "cuda", kernel):
            first = fastgemm.matmul(a, b, **choice)
            torch.cuda.synchronize()
            with torch.cuda.stream(other):
                for _ in range(4):
                    torch.mm(load, load)
            busy = [fastgemm.matmul(a, b, **choice) for _ in range(3)]
            torch.cuda.synchronize()
            assert all(torch.equal(first, result) for result in busy)


# Precision


def test_ieee_holds_whatever_torch_may_do():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    a, b = torch.randn(300, 500), torch.randn(500, 200)
    try:
        for setting in ("ieee", "tf32"):
            matmul.fp32_precision = setting
            for level in (None, *levels("gemm", "cuda")):
                check_gemm(a, b, precision="ieee", level=level)
    finally:
        matmul.fp32_precision = before


def test_the_default_has_torchs_precision():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    exact = a.double() @ b.double()
    try:
        matmul.fp32_precision = "tf32"
        error = (fastgemm.matmul(a, b).double() - exact).abs().max().item()
        assert 1e-3 < error < 0.5  # tf32 has 10 bits, float32 23; the results are about 45
    finally:
        matmul.fp32_precision = before
    check_gemm(a, b)


# Libraries


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_geam_transposes_numbers(dtype):
    """geam computes with the elements and may change a NaN's bits, so it is not tested with random bits."""
    (row,) = (row for row in fastgemm.kernels("transpose", "cuda") if row.name == "cublas_geam")
    if not row.available:
        pytest.skip(row.unavailable)
    base = torch.randn(90, 110, dtype=dtype)
    for a in (base, base[3:70, 5:90], base.t(), torch.randn(3, 17, 29, dtype=dtype)):
        out = torch.full(a.mT.shape, torch.nan, dtype=dtype)
        assert torch.equal(fastgemm.transpose(a, kernel=row.name, out=out), a.mT)
