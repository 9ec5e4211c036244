"""fastgemm.patch where there is no library of overrides for this torch: a mode, which routes and counts alike.

What that mode does is tested in one process with what the library does (``each_way``): here is what chooses it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from processes import copy_of_package, run_python

TORCH = ".".join(torch.__version__.split(".")[:2])
# Holds each result against torch's, and prints what was routed and what was warned of.
PROGRAM = """
import json, sys, warnings
sys.path.insert(0, {folder!r})
import fastgemm, torch
from torch.nn import functional
torch.set_default_dtype(torch.float64)  # rounding explains no difference that could be one
A, B, C = torch.randn(37, 65), torch.randn(65, 21), torch.randn(37, 21)

def gradients():
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    functional.linear(a, b.t()).square().sum().backward()
    return torch.cat([a.grad.flatten(), b.grad.flatten()])

products = [
    lambda: A @ B,
    lambda: torch.einsum("bij,jk->bik", torch.stack([A, A]), B) + torch.stack([A, A]) @ B,
    lambda: torch.addmm(C, A, B, beta=0.5, alpha=2.0),
    lambda: C.clone().addmm_(A, B),
    lambda: torch.mm(A, B, out=torch.empty(37, 21)),
    gradients,
    lambda: torch.view_as_real(torch.complex(A, 2 * A) @ torch.complex(B.mT, B.mT).mH),
    lambda: A @ B[:, 0],
]
expected, routed = [product() for product in products], []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for product, torchs in zip(products, expected):
        with fastgemm.patch(level=5) as counts:
            torch.testing.assert_close(product(), torchs)
        routed.append(counts.ops)
        assert set(counts.kernels) <= {{"microkernel"}}
warned = [[str(each.message), each.filename] for each in caught]
print(json.dumps([fastgemm.__file__, fastgemm.build_info()["override_library"], warned, routed]))
"""


def overrides(version: str) -> str:
    return f"libfastgemm_override_{version.replace('.', '_')}.so"


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """A copy without a library of overrides for this torch, but with one for a torch of the future."""
    folder = copy_of_package(tmp_path_factory.mktemp("package"), "_introspect*.so", "libfastgemm.so")
    (folder / "fastgemm" / overrides("99.0")).touch()
    return folder


def run_with(package: Path) -> tuple[str, str, list]:
    """What build_info says of the library, the only warning, and what was routed."""
    done = run_python(["-c", PROGRAM.format(folder=str(package))])
    assert done.returncode == 0, done.stderr[-3000:]
    file, library, ((message, where),), routed = json.loads(done.stdout)
    assert Path(file).is_relative_to(package)
    assert where == "<string>", "it names the line that enters the patch"
    return library, message, routed


def test_products_are_routed_by_a_mode_and_one_warning_says_why(package):
    library, message, routed = run_with(package)
    said = f"this build of fastgemm has no library for torch {TORCH}"
    assert message.startswith("fastgemm.patch: ") and f"{said} (but for: 99.0)" in message
    assert library.startswith(f"none: {said}")
    mm = {"mm": 1}
    assert routed == [mm, {"mm": 1, "bmm": 1}, {"addmm": 1}, {"addmm_": 1}, mm, {"mm": 3}, mm, {}]


def test_a_library_that_does_not_load_is_named(package):
    broken = package / "fastgemm" / overrides(TORCH)
    broken.write_text("")
    try:
        _, message, routed = run_with(package)
    finally:
        broken.unlink()
    assert re.search(rf"{broken.name} cannot be loaded: .*{broken.name}", message), message
    assert routed[0] == {"mm": 1}
