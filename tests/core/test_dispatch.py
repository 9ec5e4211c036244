"""Tests the kernel table, the choice among its rows, and that results are reproducible."""

import time
from pathlib import Path

import fastgemm
import pytest
import torch
from fastgemm import _introspect, tuning
from reference import (
    DTYPES,
    by_name,
    check_gemm,
    every_device,
    is_library,
    poisoned,
    random_tensor,
    refusal_allowed,
    row_id,
    rows,
    threads,
)

ROWS = rows("gemm")


# The table


def test_rows_are_unique_and_in_order():
    table = fastgemm.kernels()
    assert len({(row.op, row.device, row.name) for row in table}) == len(table)
    ops, devices = ["gemm", "transpose", "add"], ["cpu", "cuda"]
    places = [(ops.index(row.op), devices.index(row.device), row.level) for row in table]
    assert places == sorted(places)


# Every level of the CPU takes every dtype. On a GPU, level 7 is the library, which has no int32 product. On a CPU,
# torch has no product of uint8 or int16 with a wider result.
LEVELS = {"cpu": {*range(1, 8)}, "cuda": {*range(1, 7)}}
WITHOUT_LIBRARY = (torch.uint8, torch.int16)


@every_device
@pytest.mark.parametrize("op", ["gemm", "transpose"])
def test_every_level_has_a_rung_for_every_dtype_here(device, op):
    for dtype in DTYPES:
        rungs = [row for row in fastgemm.kernels(op, device, dtype) if row.role == "rung" and row.available]
        wanted = LEVELS[device] - ({7} if op == "gemm" and dtype in WITHOUT_LIBRARY else set())
        assert {row.level for row in rungs} >= wanted, dtype


def test_rows_describe_themselves():
    for row in fastgemm.kernels():
        assert row.name.isidentifier(), row
        assert len(row.summary) > 5, row
        assert row.needs, row
        assert row.dtypes, row
        assert row.role in ("rung", "shortcut", "companion", "pitfall")
        assert 1 <= row.level <= 7
        assert row.available == (row.unavailable is None)


@pytest.mark.parametrize("op", ["gemm", "transpose", "add"])
def test_a_dtype_has_the_rows_that_run_with_it(op):
    call = {
        "gemm": lambda x, **kernel: fastgemm.matmul(x, x.mT, **kernel),
        "transpose": fastgemm.transpose,
        "add": lambda x, **kernel: fastgemm.add(x, x, **kernel),
    }[op]
    for dtype in (*DTYPES, torch.bool, torch.complex32, torch.complex64):
        x = torch.ones(4, 4).to(dtype)
        of_dtype = {row.name for row in fastgemm.kernels(op, "cpu", dtype)}
        for row in fastgemm.kernels(op, "cpu"):
            if not row.available or row.role == "shortcut":
                continue
            try:
                call(x, kernel=row.name)
            except (RuntimeError, TypeError):
                assert row.name not in of_dtype, dtype
            else:
                assert row.name in of_dtype, dtype


def test_filters():
    assert {row.op for row in fastgemm.kernels("add")} == {"add"}
    assert {row.device for row in fastgemm.kernels(device="cpu")} == {"cpu"}
    assert {row.device for row in fastgemm.kernels(device=torch.device("cpu"))} == {"cpu"}
    half = fastgemm.kernels("gemm", "cpu", torch.float16)
    assert half
    assert all("float16" in row.dtypes for row in half)
    assert fastgemm.kernels("transpose", "cpu", torch.complex64) == fastgemm.kernels(
        "transpose", "cpu", torch.int64
    )
    assert fastgemm.kernels("gemm", dtype=torch.uint16) == []
    assert fastgemm.kernels("gemm", dtype=torch.bool) == fastgemm.kernels("gemm", dtype=torch.uint8)
    assert fastgemm.kernels("add", dtype=torch.bool) == []
    with pytest.raises(ValueError, match=r"fastgemm\.kernels: op must be .*, got 'conv'"):
        fastgemm.kernels("conv")
    with pytest.raises(ValueError, match="device must be"):
        fastgemm.kernels(device="meta")


def test_rows_are_immutable():
    row = fastgemm.kernels()[0]
    with pytest.raises(AttributeError):
        row.name = "mine"


# The choice


def differ_by_bits(m=40, n=50, k=1500):
    """Operands whose products by different kernels differ in their last bits."""
    a, b = torch.randn(m, k), torch.randn(k, n)
    assert not torch.equal(fastgemm.matmul(a, b, kernel="naive"), fastgemm.matmul(a, b, kernel="microkernel"))
    return a, b


@pytest.fixture
def no_measurements():
    tuning.clear_cache()
    yield
    tuning.clear_cache()


@every_device
@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
def test_level_7_and_none_choose_alike(dtype):
    for m, n, k in [(8, 8, 8), (40, 50, 1500), (300, 200, 100)]:
        a, b = random_tensor(m, k, dtype=dtype), random_tensor(k, n, dtype=dtype)
        result = fastgemm.matmul(a, b)
        assert torch.equal(result, fastgemm.matmul(a, b, level=7))
        assert torch.equal(result, fastgemm.matmul(a, b, kernel=tuning.chosen_kernel(tuning.gemm_key(a, b))))


@every_device
def test_a_decision_is_made_once(device):
    """Many shapes alternate, like the layers of a model. Most sizes are multiples of 64."""
    sizes = [(m, n, k) for m in (1, 8, 64, 128) for n in range(64, 641, 64) for k in range(64, 513, 64)]
    operands = {(m, k): torch.zeros(m, k) for m, _, k in sizes} | {
        (k, n): torch.zeros(k, n) for _, n, k in sizes
    }

    def multiply_all():
        before = _introspect.decisions_made()
        for m, n, k in sizes:
            fastgemm.matmul(operands[m, k], operands[k, n])
        return _introspect.decisions_made() - before

    tuning.clear_cache()
    assert multiply_all() == len(sizes)
    assert multiply_all() == 0
    tuning.clear_cache()  # measurements since then may change every choice
    assert multiply_all() == len(sizes)


@every_device
def test_a_row_to_add_and_a_matrix_are_two_decisions(device):
    """Libraries can add the row but not the matrix. The calls alternate."""
    a, b = (torch.randn(64, 64).bfloat16() for _ in range(2))
    tuning.clear_cache()
    before = _introspect.decisions_made()
    for _ in range(5):
        fastgemm.gemm(a, b, a)
        fastgemm.gemm(a, b, a[0])
    assert _introspect.decisions_made() - before == 2


def test_a_level_picks_its_own_rung():
    a, b = differ_by_bits()
    for level in range(1, 7):
        row = next(
            r for r in fastgemm.kernels("gemm", "cpu", torch.float32) if r.level == level and r.role == "rung"
        )
        assert torch.equal(fastgemm.matmul(a, b, level=level), fastgemm.matmul(a, b, kernel=row.name))


def layouts():
    a, b = differ_by_bits()
    wide = torch.randn(60, 1600)
    batch = torch.randn(3, 40, 1500)
    return {
        "NN": (a, b),
        "NT": (a, b.t().contiguous().t()),
        "TN": (a.t().contiguous().t(), b),
        "TT": (a.t().contiguous().t(), b.t().contiguous().t()),
        "slice": (wide[3:43, 7:1507], b),
        "vector a": (a[:1], b),
        "vector b": (a, b[:, :1]),
        "column as b": (a, b.t().contiguous().t()[:, :1]),
        "batch": (batch, torch.randn(3, 1500, 50)),
        "one b": (batch, b),
        "one b, batch not mergeable": (batch.transpose(0, 1).contiguous().transpose(0, 1), b),
        "one a": (a, torch.randn(3, 1500, 50)),
        "batch of one": (batch[:1], b),
        "two batches of one": (batch[:1], b[None]),
        "expanded b": (batch, b.expand(3, 1500, 50)),
    }


@pytest.mark.parametrize("layout", list(layouts()))
def test_a_measurement_applies_to_exactly_its_problem(no_measurements, layout):
    a, b = layouts()[layout]
    default, naive = fastgemm.matmul(a, b), fastgemm.matmul(a, b, kernel="naive")
    assert not torch.equal(default, naive)
    tuning._remember(tuning.gemm_key(a, b), "naive")
    assert tuning.chosen_kernel(tuning.gemm_key(a, b)) == "naive"
    assert torch.equal(fastgemm.matmul(a, b), naive)
    assert torch.equal(fastgemm.matmul(a, b, level=7), naive)
    with threads(1 if torch.get_num_threads() > 1 else 2):
        assert not torch.equal(fastgemm.matmul(a, b), naive)
    tuning.clear_cache()
    assert torch.equal(fastgemm.matmul(a, b), default)


def test_a_kept_decision_is_not_used_for_a_problem_that_its_kernel_rejects(no_measurements):
    """torch's int8 product writes only contiguous results, but a tuning key does not contain out's
    strides."""
    a, b = random_tensor(16, 64, dtype=torch.int8), random_tensor(64, 8, dtype=torch.int8)
    tuning._remember(tuning.gemm_key(a, b), "torch")
    assert tuning.chosen_kernel(tuning.gemm_key(a, b)) == "torch"
    check_gemm(a, b)
    check_gemm(a, b, out=poisoned(8, 16, dtype=torch.int32).t())
    check_gemm(a[:, :1].expand(16, 64), b)


def test_calls_never_measure(no_measurements, monkeypatch):
    monkeypatch.setattr(tuning, "time_all", None)
    a, b = differ_by_bits()
    first = fastgemm.matmul(a, b)
    assert all(torch.equal(fastgemm.matmul(a, b), first) for _ in range(20))
    assert fastgemm._introspect.remembered_count() == 0


# Reproducibility


@pytest.mark.parametrize(
    ("device", "kernel", "dtype", "count"),
    [(*row, count) for row in ROWS for count in ((1, 2) if row[0] == "cpu" else (1,))],
    ids=row_id,
)
def test_same_bits_on_every_call(device, kernel, dtype, count):
    with threads(count):
        for m, n, k in [(65, 130, 260), (16, 24, 9000), (1, 700, 300)]:
            a, b = random_tensor(m, k, dtype=dtype), random_tensor(k, n, dtype=dtype)
            choice = by_name(kernel, dtype)
            with refusal_allowed("gemm", device, kernel):
                results = [fastgemm.matmul(a, b, **choice) for _ in range(2)]
                shifted = torch.empty(m * k + 3, dtype=dtype)[3:].view(m, k).copy_(a)
                if not is_library(
                    "gemm", device, kernel
                ):  # the order of summation may depend on the alignment
                    results.append(fastgemm.matmul(shifted, b, **choice))
                assert all(torch.equal(results[0], r) for r in results)


@pytest.mark.parametrize("kernel", ["naive", "blocked", "packed", "simd"])
def test_single_threaded_rungs_do_not_depend_on_the_thread_count(kernel):
    a, b = differ_by_bits()
    with threads(1):
        one = fastgemm.matmul(a, b, kernel=kernel)
    with threads(2):
        assert torch.equal(one, fastgemm.matmul(a, b, kernel=kernel))


def busy_threads(call) -> int:
    """The number of threads that work while ``call`` repeats: those that do at least a sixth of the work of
    the busiest one."""

    def ticks() -> dict[str, int]:
        files = Path("/proc/self/task").glob("*/stat")
        return {f.parent.name: sum(map(int, f.read_text().rsplit(")")[-1].split()[11:13])) for f in files}

    call()
    before, end = ticks(), time.perf_counter() + 5
    while time.perf_counter() < end:
        call()
        spent = {name: count - before.get(name, 0) for name, count in ticks().items()}
        if max(spent.values()) >= 15:  # of 10 ms each
            break
    return sum(count >= max(spent.values()) / 6 for count in spent.values())


PARALLEL = {
    "gemm, level 5": lambda a: fastgemm.matmul(a, a, level=5),
    "gemm, level 6": lambda a: fastgemm.matmul(a, a, level=6),
    "gemm of few rows": lambda a: fastgemm.matmul(a[:4], a, level=5),
    "gemm of few columns": lambda a: fastgemm.matmul(a, a[:, :4], level=5),
    "gemm, long k": lambda a: fastgemm.matmul(a.view(8, -1), a.view(-1, 8), level=5),
    "batched gemm": lambda a: fastgemm.matmul(a.view(-1, 64, 64), a.view(-1, 64, 64), level=5),
    "transpose": lambda a: fastgemm.transpose(a, level=5),
    "add": lambda a: fastgemm.add(a, a, level=5),
}


@pytest.mark.parametrize("name", PARALLEL)
def test_torch_set_num_threads_holds(name):
    a = torch.randn(2048, 2048)  # short calls end before a second thread gets a core
    call = PARALLEL[name]
    for count in (1, 2):
        with threads(count):
            found = [busy_threads(lambda: call(a))]
            while found[-1] < count and len(found) < 5:  # another process may have used the second core
                found.append(busy_threads(lambda: call(a)))
            assert found[-1] == count, found
