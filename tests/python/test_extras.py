"""Tests features that need only torch, and the messages if a package of the extra cli is missing."""

import textwrap

import pytest
from processes import run_forked

# Simulates an environment without these packages: the import system does not find them.
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"click", "matplotlib", "platformdirs", "rich", "scipy"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import fastgemm
"""


def test_a_product_needs_torch_alone():
    program = """
        import torch

        a, b = torch.randn(65, 33), torch.randn(33, 17)
        for level in (None, *range(1, 8)):
            torch.testing.assert_close(fastgemm.matmul(a, b, level=level), a @ b)
        torch.testing.assert_close(fastgemm.transpose(a), a.t().contiguous())
        torch.testing.assert_close(fastgemm.add(a, a), 2 * a)
        with fastgemm.patch(level=5) as routed:
            a @ b
        assert routed.ops == {"mm": 1}, routed
        layer = fastgemm.nn.convert(torch.nn.Linear(33, 5))
        torch.testing.assert_close(layer(a), torch.nn.functional.linear(a, layer.weight, layer.bias))
        assert fastgemm.autotune(a, b, budget=0.05, save=False)
        report = fastgemm.explain("gemm", level=2, shape=(64, 64, 64))
        assert report.to_dict()["kernel"] == report.kernel
    """
    done = run_forked(WITHOUT + textwrap.dedent(program))
    assert done.returncode == 0, done.stderr


REPORT = "report = fastgemm.explain('transpose', level=2, shape=(64, 64)); "


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (REPORT + "print(report)", "ModuleNotFoundError: fastgemm: a report as text needs rich"),
        (REPORT + "report._repr_html_()", "ModuleNotFoundError: fastgemm: a report as text needs rich"),
        (REPORT + "report.plot()", "ModuleNotFoundError: fastgemm: a plot needs matplotlib"),
        ("from fastgemm.cli import main; main()", "fastgemm: the command line needs click"),
    ],
)
def test_a_missing_package_is_named(use, message):
    done = run_forked(WITHOUT + use)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"{message}; pip install 'fastgemm[cli]'"
    assert message.startswith("ModuleNotFoundError") or done.stderr.count("\n") == 1
