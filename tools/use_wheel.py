"""Uses an installed package, with torch and no other packages. The package was not built here.
tools/check_wheels.sh runs this.

python tools/use_wheel.py SECONDS      how long the installation took, to print it with the rest
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import torch

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "nvcc", "cmake", "ninja")
NOTHING = 0.1  # of an op's time: smaller differences are noise


def seconds(body, runs: int = 500) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        body()
    return (time.perf_counter() - start) / runs


def cost_of_a_patch(fastgemm) -> None:
    """Checks that an op other than a product is as fast inside of a patch as outside. It compares the minima of
    many alternating measurements, because other programs may use the machine."""
    x = torch.randn(64, 64)
    outside, inside = [], []
    for _ in range(60):
        outside.append(seconds(lambda: x + x))
        with fastgemm.patch():
            inside.append(seconds(lambda: x + x))
    out, within = min(outside), min(inside)
    print(f"x + x: {out * 1e6:.2f} us, in a patch {within * 1e6:.2f} us")
    assert within <= out * (1 + NOTHING), "a patch slows down an op that is no product"


def main() -> None:
    started = time.perf_counter()
    import fastgemm

    imported = time.perf_counter() - started
    folder = Path(fastgemm.__file__).parent
    assert not any(map(shutil.which, COMPILERS)), "a compiler is on the PATH"
    assert Path(sys.prefix) in folder.parents, f"{folder} is not in this environment"
    files = distribution("fastgemm").files or []
    megabytes = sum(f.locate().stat().st_size for f in files if Path(f.locate()).exists()) / 1e6
    print(
        f"Python {sys.version.split()[0]}, torch {torch.__version__}, fastgemm {fastgemm.__version__}: "
        f"installed in {float(sys.argv[1]):.1f} s, {megabytes:.1f} MB; imported in {imported:.2f} s after torch"
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        a, b = torch.randn(65, 33, device=device).to(dtype), torch.randn(33, 17, device=device).to(dtype)
        right = (a.double() @ b.double()).to(dtype)
        for level in (None, *range(1, 8)):
            torch.testing.assert_close(fastgemm.matmul(a, b, level=level), right)
        torch.testing.assert_close(fastgemm.transpose(a), a.t().contiguous())
    a, b = torch.randn(65, 33, device=device), torch.randn(33, 17, device=device)
    with fastgemm.patch(level=5) as routed:
        a @ b
    assert routed.ops == {"mm": 1}, routed
    with fastgemm.simulate():
        torch.testing.assert_close(fastgemm.matmul(a.cpu(), b.cpu(), level=2), a.cpu() @ b.cpu())
    info = fastgemm.build_info()
    minor = ".".join(torch.__version__.split(".")[:2])
    assert info["override_library"] == f"libfastgemm_override_{minor.replace('.', '_')}.so", info
    print(
        f"overrides: {info['override_library']}; CUDA: {info['cuda_archs'] or 'none'}; GPU: {info['cuda_device']}"
    )
    cost_of_a_patch(fastgemm)
    if find_spec("click") is None:
        done = subprocess.run([sys.executable, "-m", "fastgemm"], capture_output=True, text=True, check=False)
        said = "fastgemm: the command line needs click; pip install 'fastgemm[cli]'"
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, said), done
    print("the wheel works:", device)


if __name__ == "__main__":
    main()
