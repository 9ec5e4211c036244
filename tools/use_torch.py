"""Uses fastgemm with the torch of this environment and no other packages. tools/check_torches.sh runs it.

Prints the cost of a patch: the minimum of many times of one call, inside and outside of the patch in turns.
"""

from __future__ import annotations

import shutil
import time
import warnings

import fastgemm
import torch
from torch.nn import functional

A, B = torch.randn(37, 65), torch.randn(65, 21)
MOST = {"mm of 16 x 16": 1.0, "add of 16 x 16": 0.05}  # microseconds that a patch may add to a call


def raised(call) -> tuple[type, str]:
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    raise AssertionError("it raised nothing")


def gradients(product) -> tuple[torch.Tensor, ...]:
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    return torch.autograd.grad(product(a, b).square().sum(), (a, b))


def ops() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        a, b = A.to(dtype), B.to(dtype)
        for level in (None, *range(1, 8)):
            expected = (a.double() @ b.double()).to(dtype)
            torch.testing.assert_close(fastgemm.matmul(a, b, level=level), expected)
    assert torch.equal(fastgemm.transpose(A), A.t()) and torch.equal(fastgemm.add(A, A), A + A)
    expected = functional.relu(functional.linear(A, B.t()))
    torch.testing.assert_close(fastgemm.linear(A, B.t(), activation="relu"), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert fastgemm.matmul(A, B).dtype == fastgemm.nn.linear(A, B.t()).dtype == torch.bfloat16


def patches() -> None:
    with fastgemm.patch(level=5) as routed:
        result = A @ B
        by_patch = gradients(torch.mm)
    assert routed.kernels == {"microkernel": 4}, routed
    torch.testing.assert_close(result, (A.double() @ B.double()).float())
    torch.testing.assert_close(by_patch, gradients(torch.mm))
    routed = fastgemm.enable()
    torch.addmm(B[0], A, B)
    fastgemm.disable()
    A @ B
    assert routed.ops == {"addmm": 1}, routed


def errors() -> None:
    """The ops raise the documented errors; in a patch, torch's errors are raised."""
    refused = ValueError, "fastgemm: inner sizes differ: a is (37, 65), b is (37, 65)"
    for op in (torch.ops.fastgemm.gemm, torch.ops.fastgemm._gemm, torch.ops.fastgemm._matmul):
        assert raised(lambda op=op: op(A, A)) == refused
    assert raised(lambda: fastgemm.matmul(A, A))[0] is ValueError
    assert raised(lambda: fastgemm.add(A, B))[0] is ValueError
    assert raised(lambda: fastgemm.transpose(A, level=9))[0] is ValueError
    assert raised(lambda: fastgemm.linear(A, B))[0] is ValueError
    assert raised(lambda: fastgemm.matmul(A, B, level="5"))[0] is TypeError
    for call in (
        lambda: torch.mm(A, A),
        lambda: torch.mm(A, B.double()),
        lambda: torch.addmm(torch.ones(3), A, B),
        lambda: torch.bmm(A[None], B[None].expand(2, 65, 21)),
    ):
        torchs = raised(call)
        with fastgemm.patch():
            assert raised(call) == torchs


def compiling() -> None:
    backends = ["aot_eager", *["inductor"] * (shutil.which("c++") is not None)]
    for backend in backends:
        compiled = torch.compile(fastgemm.matmul, backend=backend, fullgraph=True)
        torch.testing.assert_close(gradients(compiled), gradients(torch.mm))


def differentiating() -> None:
    for product in (fastgemm.matmul, lambda a, b: fastgemm.nn.linear(a, b.t())):
        torch.testing.assert_close(gradients(product), gradients(torch.mm))
    a, b = (torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradgradcheck(fastgemm.matmul, (a, b))
    tangent = torch.func.jvp(lambda a: fastgemm.matmul(a, B), (A,), (A,))[1]
    torch.testing.assert_close(tangent, A @ B)


def microseconds(call, runs: int = 200) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        call()
    return (time.perf_counter() - start) / runs * 1e6


def costs() -> None:
    torch.set_num_threads(1)
    x = torch.randn(16, 16)
    for name, call in {"mm of 16 x 16": lambda: torch.mm(x, x), "add of 16 x 16": lambda: x + x}.items():
        outside, inside = [], []
        for _ in range(1000):  # many short measurements, so that other programs do not disturb some of them
            outside.append(microseconds(call))
            with fastgemm.patch():
                inside.append(microseconds(call))
        out, within = min(outside), min(inside)
        print(f"  {name}: {out:.2f} us, in a patch {within:.2f} us")
        assert within - out <= MOST[name], f"a patch costs {within - out:.2f} us"


def main() -> None:
    warnings.simplefilter("error", UserWarning)
    info = fastgemm.build_info()
    print(f"torch {torch.__version__}: fastgemm {fastgemm.__version__}, {info['override_library']}")
    for check in (ops, patches, errors, differentiating, compiling, costs):
        check()
    print("  ops, patches, errors, gradients, compile, costs: all right")


if __name__ == "__main__":
    main()
