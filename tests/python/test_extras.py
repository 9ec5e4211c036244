"""What works with torch alone, and what is said where a package of the extra cli is missing."""

import subprocess
import sys
import textwrap

import pytest

# As in an environment that has none of them: the import system finds no such package.
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"click", "matplotlib", "platformdirs", "rich", "scipy"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    program = WITHOUT + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_a_product_needs_torch_alone():
    done = run("""
        import torch, fastgemm

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
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("print(report)", "fastgemm: a report as text needs rich; pip install 'fastgemm[cli]'"),
        ("report._repr_html_()", "fastgemm: a report as a table needs rich; pip install 'fastgemm[cli]'"),
        ("report.plot()", "fastgemm: a plot needs matplotlib; pip install 'fastgemm[cli]'"),
    ],
)
def test_a_report_says_what_it_needs(use, message):
    done = run(f"""
        import fastgemm

        report = fastgemm.explain("transpose", level=2, shape=(64, 64))
        {use}
    """)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {message}"


def test_the_command_line_says_what_it_needs():
    done = run("""
        from fastgemm.cli import main

        main()
    """)
    assert done.returncode == 1
    assert done.stderr == "fastgemm: the command line needs click; pip install 'fastgemm[cli]'\n"
