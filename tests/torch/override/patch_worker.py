"""Patches a process of its own, holds each result against torch's, and prints as JSON what was routed and what was
warned of.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable

import fastgemm
import torch
from torch import Tensor
from torch.nn import functional

torch.set_default_dtype(torch.float64)  # rounding explains no difference that could be one
A, B, C = torch.randn(37, 65), torch.randn(65, 21), torch.randn(37, 21)
SCALES = {"beta": 0.5, "alpha": 2.0}


def out_of(function: Callable, *args: Tensor, **scales: float) -> Tensor:
    out = torch.empty(37, 21)
    assert function(*args, **scales, out=out) is out
    return out


def gradients() -> Tensor:
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    functional.linear(a, b.t()).square().sum().backward()
    return torch.cat([a.grad.flatten(), b.grad.flatten()])


PRODUCTS: dict[str, Callable[[], Tensor]] = {
    "mm": lambda: A @ B,
    "batch": lambda: torch.einsum("bij,jk->bik", torch.stack([A, A]), B) + torch.stack([A, A]) @ B,
    "addmm": lambda: torch.addmm(C, A, B, **SCALES),
    "in place": lambda: C.clone().addmm_(A, B),
    "mm out": lambda: out_of(torch.mm, A, B),
    "addmm out": lambda: out_of(torch.addmm, C, A, B, **SCALES),
    "gradients": gradients,
    "complex": lambda: torch.view_as_real(torch.complex(A, 2 * A) @ torch.complex(B.mT, B.mT).mH),
    "nothing": lambda: torch.addmm(C, A, B, alpha=0),
    "vector": lambda: A @ B[:, 0],
}


def counts() -> dict:
    expected = {name: product() for name, product in PRODUCTS.items()}
    found = {}
    for name, product in PRODUCTS.items():
        with fastgemm.patch(level=5) as routed:
            result = product()
        torch.testing.assert_close(result, expected[name])
        passed_on = {op: calls for (op, _), calls in routed.passed_on.items()}
        found[name] = {"ops": routed.ops, "kernels": routed.kernels, "passed_on": passed_on}
    return found


def nested() -> list:
    """The outer patch twice, once inside of one by a CUDA kernel, which takes nothing here."""
    patch = fastgemm.patch(level=1)
    with patch as outer, fastgemm.patch(kernel="narrow") as inner:
        A @ B
        with patch:
            A @ B
        torch.bmm(A[None], B[None])
    A @ B  # outside
    return [outer.ops, outer.kernels, inner.total, sum(inner.passed_on.values())]


@fastgemm.patch(level=5)
def decorated() -> Tensor:
    return A @ B


def in_a_thread() -> dict:
    """Patched there and not here."""
    patch = fastgemm.patch(level=5)

    def work() -> None:
        with patch:
            A @ B

    with patch:
        thread = threading.Thread(target=lambda: A @ B)
        thread.start()
        thread.join()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return patch.routed.ops


if __name__ == "__main__":
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = {"counts": counts(), "nested": nested(), "thread": in_a_thread()}
        torch.testing.assert_close(decorated(), A @ B)
    found["warnings"] = [[str(each.message), each.filename] for each in caught]
    found["file"] = fastgemm.__file__
    found["library"] = fastgemm.build_info()["override_library"]
    print(json.dumps(found))
