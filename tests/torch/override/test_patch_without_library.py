"""Tests fastgemm without an override library for this torch: patches raise errors, but the ops work."""

import json
from pathlib import Path

import pytest
import torch
from processes import copy_of_package, run_forked

TORCH = ".".join(torch.__version__.split(".")[:2])
# Compares the ops with torch's, and prints the errors and warnings of the functions that replace torch's products.
PROGRAM = """
import json, sys, warnings
sys.path.insert(0, {folder!r})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import fastgemm, torch
from torch.nn import functional
A, B = torch.randn(37, 65), torch.randn(65, 21)

def gradients(matmul, linear):
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    (matmul(a, b).square().sum() + linear(a, b.t()).sum()).backward()
    return a.grad, b.grad

torchs = gradients(torch.matmul, functional.linear)
for matmul in fastgemm.matmul, lambda a, b: fastgemm.gemm(b, a, trans_a=True, trans_b=True).t():
    for linear in fastgemm.linear, fastgemm.nn.linear:
        torch.testing.assert_close(gradients(matmul, linear), torchs)
compiled = torch.compile(fastgemm.matmul, backend="aot_eager", fullgraph=True)
torch.testing.assert_close(gradients(compiled, functional.linear), torchs)
tangent = torch.func.jvp(lambda a: fastgemm.matmul(a, B), (A,), (A,))[1]
torch.testing.assert_close(tangent, A @ B)
with torch.autocast("cpu", torch.bfloat16):
    for product in fastgemm.matmul(A, B), fastgemm.nn.linear(A, B.t()), fastgemm.linear(A, B.t()):
        assert product.dtype == torch.bfloat16

raised = []
for takes_over in fastgemm.patch().__enter__, fastgemm.patch(level=1)(abs), fastgemm.enable:
    try:
        takes_over(*[1] * (takes_over.__name__ == "abs"))
    except RuntimeError as error:
        raised.append(str(error))
info = fastgemm.build_info()["override_library"]
print(json.dumps([fastgemm.__file__, info, raised, [str(each.message) for each in caught]]))
"""
HOW = "; `pip install --force-reinstall --no-deps .` in a clone of fastgemm builds one for this torch"


def overrides(version: str) -> str:
    return f"libfastgemm_override_{version.replace('.', '_')}.so"


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """A copy of the package without an override library for this torch, but with one for a future torch."""
    folder = copy_of_package(tmp_path_factory.mktemp("package"), "_introspect*.so", "libfastgemm.so")
    (folder / "fastgemm" / overrides("99.0")).touch()
    return folder


def run_with(package: Path) -> tuple[str, list[str], list[str]]:
    """The library's entry in build_info, the exception, and the warnings of the import."""
    done = run_forked(PROGRAM.format(folder=str(package)), FASTGEMM_PATCH="1")
    assert done.returncode == 0, done.stderr[-3000:]
    file, library, raised, warned = json.loads(done.stdout)
    assert Path(file).is_relative_to(package)
    return library, raised, warned


def test_patches_raise_and_say_how_to_get_a_library_and_the_ops_work(package):
    library, raised, warned = run_with(package)
    said = f"this build of fastgemm has no library for torch {TORCH} (but for: 99.0)"
    assert library == f"none: {said}"
    functions = ["fastgemm.patch", "fastgemm.patch", "fastgemm.enable"]
    assert raised == [f"{function}: {said}{HOW}" for function in functions]
    assert warned == [f"fastgemm: FASTGEMM_PATCH=1, but {said}{HOW}"]


def test_a_library_that_does_not_load_is_named(package):
    broken = package / "fastgemm" / overrides(TORCH)
    broken.write_text("")
    try:
        _, raised, _ = run_with(package)
    finally:
        broken.unlink()
    for message in raised:
        assert f"{broken.name} cannot be loaded: " in message and message.endswith(HOW)
