"""A results file that is older than the sources of its kernels is found, and a list of known ones shrinks."""

from __future__ import annotations

import json
import subprocess

import pytest
from scripts import tool

KERNEL = "csrc/cuda/gemm/ladder/level2_tiled.cu"
PART = "csrc/cuda/gemm/parts/tile.cuh"
OTHER = "csrc/cuda/gemm/ladder/level4_vectorized.cu"


def git(root, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", "-C", root, *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def measure(root, commit=None):
    """A results file that names the kernel of level 2, as of the last commit."""
    environment = {"commit": commit or git(root, "rev-parse", "HEAD")[:12]}
    rows = [{"op": "gemm", "kernel": "tiled"}, {"op": "gemm", "kernel": "torch.matmul"}]
    write(
        root, "benchmarks/results/gpu/ladder.json", json.dumps({"environment": environment, "results": rows})
    )


@pytest.fixture
def root(tmp_path):
    write(tmp_path, KERNEL, '#include "cuda/gemm/parts/tile.cuh"\nint tiled() { return 1; }  // one\n')
    write(tmp_path, PART, "constexpr int kTile = 32;\n")
    write(tmp_path, OTHER, "int vectorized() { return 1; }\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "kernels")
    measure(tmp_path)
    return tmp_path


@pytest.fixture
def check(root, capsys):
    def run(*arguments):
        code = tool("check_results").main(list(arguments), root=root)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def test_what_did_not_change_is_not_stale(root, check):
    assert check() == (0, "")
    write(root, OTHER, "int vectorized() { return 2; }\n")
    write(root, KERNEL, (root / KERNEL).read_text().replace("// one", "// a remark\n"))
    assert check() == (0, "")


def test_a_list_of_kernels_is_no_source_of_theirs(root, check):
    write(root, PART, '#include "cuda/gemm/rows.def"\n')
    write(root, "csrc/cuda/gemm/rows.def", "ROW(tiled)\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "a list")
    measure(root)
    write(root, "csrc/cuda/gemm/rows.def", "ROW(tiled) ROW(vectorized)\n")
    assert check() == (0, "")


@pytest.mark.parametrize(
    ("path", "text"), [(KERNEL, "int tiled() { return 2; }\n"), (PART, "constexpr int kTile = 16;\n")]
)
def test_a_planted_stale_file_is_found(root, check, path, text):
    write(root, path, text)
    code, said = check()
    assert code == 1
    assert "gpu/ladder.json is stale: since" in said and "changed: tiled; measure it again" in said


def test_a_file_that_names_no_kernel_is_of_all(root, check):
    path = root / "benchmarks/results/gpu/ladder.json"
    path.write_text(path.read_text().replace('"tiled"', '"fastgemm"'))
    assert check() == (0, "")
    write(root, OTHER, "int vectorized() { return 2; }\n")
    code, said = check()
    assert code == 1 and "vectorized" in said


def test_a_commit_that_nobody_knows_is_stale(root, check):
    measure(root, "0123456789ab")
    code, said = check()
    assert code == 1 and "0123456789ab is no commit of this history" in said


def test_the_list_of_known_ones_shrinks(root, check):
    write(root, KERNEL, "int tiled() { return 2; }\n")
    assert check("--add", "no GPU today")[0] == 0
    code, said = check()
    assert code == 0 and "known to be stale: gpu/ladder.json" in said and "(no GPU today)" in said
    git(root, "add", ".")
    git(root, "commit", "-qm", "another kernel")
    measure(root)
    code, said = check()
    assert code == 1 and "gpu/ladder.json is not stale any more: take it out" in said
    write(root, "benchmarks/stale.json", "{}")
    assert check() == (0, "")


def test_without_history_nothing_is_said(tmp_path, check, root):
    (root / ".git").rename(root / "elsewhere")
    code, said = check()
    assert code == 0 and "no history" in said


def test_the_results_of_this_repository():
    assert tool("check_results").main([]) == 0
