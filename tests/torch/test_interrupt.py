"""Tests that long products on the CPU end if a signal handler raises, and at their time limit."""

import contextlib
import functools
import signal
import threading
import time

import fastgemm
import pytest
import torch
from fastgemm._choice.clocks import time_limit
from interrupts import SOON, interrupted

ROWS = [
    row
    for row in fastgemm.kernels("gemm", "cpu")
    if row.available and row.name != "torch" and row.takes_matrices
]


class Enough(Exception):
    """The exception of a program's own handler."""


@contextlib.contextmanager
def alarm(handler):
    """Calls the handler after 0.2 s."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def matrix():
    """A matrix whose product takes level 1 some seconds."""
    return torch.ones(2048, 2048)


def backward():
    a = matrix().requires_grad_()
    result = a @ a  # computed quickly by torch
    return fastgemm.patch(level=1)(lambda: result.backward(torch.ones_like(result)))


def compiled():
    function = torch.compile(lambda a: fastgemm.matmul(a, a, level=1), backend="aot_eager", fullgraph=True)
    for size in 8, 16:
        function(torch.ones(size, size))  # makes sizes symbolic, so that there is no second compilation
    return lambda: function(matrix())


def of(call):
    return lambda: functools.partial(call, matrix())


CALLS = {
    "matmul": of(lambda a: fastgemm.matmul(a, a, level=1)),
    "gemm": of(lambda a: fastgemm.gemm(a, a, a, level=1)),
    "linear": of(lambda a: fastgemm.linear(a, a, level=1)),
    "out": of(lambda a: fastgemm.matmul(a, a, level=1, out=torch.empty_like(a))),
    "torch.ops": of(lambda a: torch.ops.fastgemm.gemm(a, a, level=1)),
    "patch": of(lambda a: fastgemm.patch(level=1)(torch.mm)(a, a)),
    "blocked": of(lambda a: fastgemm.matmul(a.double(), a.double(), level=2)),
    "packed": of(lambda a: fastgemm.matmul(a.double(), a.double(), level=3)),
    "backward": backward,
    "compiled": compiled,
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_handler_raises_ends_the_call(name):
    enough, call = Enough("enough", 7), CALLS[name]()

    def handler(*_):
        raise enough

    start = time.monotonic()
    with pytest.raises(Enough) as caught, alarm(handler):
        call()
    assert time.monotonic() - start < SOON
    assert caught.value is enough
    assert caught.value.args == ("enough", 7)
    small = torch.randn(300, 200)
    torch.testing.assert_close(fastgemm.matmul(small, small.t()), small @ small.t(), rtol=1e-5, atol=1e-4)


@contextlib.contextmanager
def handled(action):
    """Calls the action in a handler during the product. Returns its result or exception."""
    results = []

    def handler(*_):
        try:
            results.append(action())
        except RuntimeError as error:
            results.append(error)

    with alarm(handler):
        yield results


LARGE = 700  # the sides of a product that takes level 1 about as long as the alarm


@pytest.mark.parametrize(
    ("multiply", "requires_grad"), [(torch.matmul, True), (fastgemm.matmul, False), (fastgemm.matmul, True)]
)
def test_a_handler_may_train(multiply, requires_grad):
    a = torch.randn(LARGE, LARGE, dtype=torch.float64, requires_grad=requires_grad)
    w = torch.randn(8, 8, requires_grad=True)

    def step():
        multiply(w, w).sum().backward()
        return torch.is_grad_enabled()

    with handled(step) as seen:
        while not seen:
            result = fastgemm.matmul(a, a, level=1)
    assert seen == [True]
    ones = torch.ones(8, 8)
    torch.testing.assert_close(w.grad, ones @ w.t() + w.t() @ ones)
    assert result.requires_grad == requires_grad
    torch.testing.assert_close(result, a @ a)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_handler_finds_gradients_off_where_the_program_did(mode):
    a = torch.randn(LARGE, LARGE, dtype=torch.float64)
    w = torch.randn(8, 8, requires_grad=True)
    with mode(), handled(lambda: (w @ w).requires_grad) as seen:
        while not seen:
            fastgemm.matmul(a, a, level=1)
    assert seen == [False]


def test_products_of_a_handler_are_routed():
    a, small = torch.ones(LARGE, LARGE), torch.ones(3, 3)
    with fastgemm.patch(level=1) as patch:

        def routed():
            before = patch.ops.total()
            torch.mm(small, small)
            return patch.ops.total() - before

        with handled(routed) as seen:
            while not seen:
                torch.mm(a, a)
    assert seen == [1]


@pytest.mark.parametrize("call", [fastgemm.matmul, fastgemm.add], ids=["matmul", "add"])
def test_a_simulated_kernel_goes_on_where_a_handler_launches_another(call):
    a, small = torch.randn(300, 300), torch.randn(8, 8)
    with fastgemm.simulate(), handled(lambda: call(small, small)) as seen:
        while not seen:
            result = fastgemm.matmul(a, a, level=1)
        after = fastgemm.matmul(small, small, level=1)
    assert "runs another" in str(seen[0])
    torch.testing.assert_close(result, a @ a, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(after, small @ small, rtol=1e-5, atol=1e-4)


def test_torchscript_passes_on_what_a_handler_raises():
    def handler(*_):
        raise Enough

    a = torch.ones(LARGE, LARGE, dtype=torch.float64)
    with fastgemm.patch(level=1):
        traced = torch.jit.trace(lambda x: torch.mm(x, x), torch.ones(3, 3))
        with pytest.raises(Enough), alarm(handler):
            while True:
                traced(a)


def test_a_call_in_another_thread_leaves_signals_to_the_main_thread():
    ended = []

    def handler(*_):
        ended.append(threading.current_thread())

    a = torch.ones(900, 900)
    results = []
    thread = threading.Thread(target=lambda: results.append(fastgemm.matmul(a, a, level=1)))
    with alarm(handler):
        thread.start()
        while not ended:
            time.sleep(0.01)
        thread.join()
    assert ended == [threading.main_thread()]
    assert torch.equal(results[0], a @ a)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_kernel_stops_at_its_time_limit(row):
    dtype = getattr(torch, row.dtypes[-1] if "float32" not in row.dtypes else "float32")
    a = torch.ones(400, 400, dtype=dtype)
    expected = fastgemm.matmul(a, a)

    def call():
        if row.name == "symmetric":
            return fastgemm.gemm(a, a, trans_b=True, kernel=row.name)
        return fastgemm.matmul(a, a, kernel=row.name)

    with pytest.raises(RuntimeError, match="its time limit is over"), time_limit(0):
        call()
    assert torch.equal(call(), expected)


@pytest.mark.parametrize("shape", [(400, 100, 100, 100), (1, 100, 100, 1 << 16), (3, 700, 700, 700)])
def test_every_route_stops_at_its_time_limit(shape):
    """Tests a batch of small products, a long k, and a few large products."""
    batch, m, n, k = shape
    a, b = torch.ones(batch, m, k), torch.ones(batch, k, n)
    with pytest.raises(RuntimeError, match="its time limit is over"), time_limit(0):
        fastgemm.matmul(a, b, level=5)
    assert torch.equal(fastgemm.matmul(a, b, level=5), torch.full((batch, m, n), float(k)))


def test_a_small_product_does_not_look_at_the_clock():
    a = torch.ones(64, 64)
    with time_limit(0):
        result = fastgemm.matmul(a, a, level=5)
    assert torch.equal(result, a @ a)


def test_a_time_limit_is_one_of_its_thread():
    a = torch.ones(500, 500)
    results = []
    with time_limit(0):
        thread = threading.Thread(target=lambda: results.append(fastgemm.matmul(a, a, level=2)))
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="its time limit is over"):
            fastgemm.matmul(a, a, level=2)
    assert torch.equal(results[0], fastgemm.matmul(a, a, level=2))


PROGRAM = """
import signal, torch, fastgemm
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
a = torch.ones(4096, 4096)  # of which a product takes level 1 more than a minute
print("ready", flush=True)
fastgemm.matmul(a, a, level=1)
"""


def test_ctrl_c_ends_a_program():
    """tests/cli/test_cli_interrupt.py has programs that tune and that simulate."""
    code, errors = interrupted(PROGRAM)
    assert code == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")
