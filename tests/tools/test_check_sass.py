"""Tests tools/check_sass.py and tools/compile_cuda.sh for a single kernel, and without their tools."""

import os
import shutil
import subprocess
from pathlib import Path

import check_sass
import cuda_tools
import fastgemm
import pytest
from check_sass import Kernel
from compiled import compiled_for
from pages import ROOT

if not (ROOT / "csrc/cuda").is_dir():
    pytest.skip("the sources are not here", allow_module_level=True)

TILED, NARROW, NEW = (Path(f"gemm/{name}.cu") for name in ("ladder/level2_tiled", "fast/narrow", "fast/new"))


BOTH = {str(source): {"sm_90a", "sm_80", "sm_120"} for source in (TILED, NARROW, NEW)}


def compiled(source: Path, name: str, registers: int) -> list[Kernel]:
    return [Kernel(source, arch, name, registers, 64, 0) for arch in ("sm_90a", "sm_80", "sm_120")]


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """The two generated files, for two kernels with three functions."""
    monkeypatch.setattr(check_sass, "DOCUMENT", tmp_path / "page.md")
    monkeypatch.setattr(check_sass, "RESOURCES", tmp_path / "resources.def")
    check_sass.DOCUMENT.write_text(f"before\n{check_sass.BEGIN}{check_sass.END}after\n")
    old = compiled(NARROW, "narrow<float>", 30) + compiled(TILED, "tiled<float>", 40)
    write(old + compiled(TILED, "tiled<double>", 50))
    return old


def write(kernels: list[Kernel], **choice: bool) -> None:
    for path, text in check_sass.stale_files(kernels, **choice).items():
        path.write_text(text)


def rows() -> list[list[str]]:
    """The file, the function, its instantiations and their registers."""
    lines = check_sass.DOCUMENT.read_text().splitlines()
    return [[cell.strip(" `") for cell in line.split("|")[1:5]] for line in lines if ".cu" in line]


def stored(arch: str) -> dict[str, list[int]]:
    return check_sass.from_json(check_sass.RESOURCES.read_text())[arch]


def test_instantiations_of_a_kernel_share_a_line(pages):
    assert rows() == [[str(NARROW), "narrow", "1", "30"], [str(TILED), "tiled", "2", "40 to 50"]]
    assert stored("sm_80") == {"narrow<float>": [30, 64], "tiled<double>": [50, 64], "tiled<float>": [40, 64]}
    write(compiled(TILED, "tiled<double>", 50))  # all kernels: the others are no longer compiled
    assert rows() == [[str(TILED), "tiled", "1", "50"]]
    assert stored("sm_80") == {"tiled<double>": [50, 64]}


def test_one_kernel_s_rows_alone_are_replaced(pages):
    write(compiled(TILED, "tiled<float>", 44), only=True)
    assert rows() == [[str(NARROW), "narrow", "1", "30"], [str(TILED), "tiled", "1", "44"]]
    assert stored("sm_80")["tiled<float>"] == [44, 64] and stored("sm_80")["narrow<float>"] == [30, 64]
    page = check_sass.DOCUMENT.read_text()
    assert page.startswith(f"before\n{check_sass.BEGIN}| file |") and page.endswith(
        f"{check_sass.END}after\n"
    )


def test_a_new_kernel_stands_where_all_of_them_would_put_it(pages):
    new = compiled(NEW, "new<float>", 60)
    narrow, tiled = pages[:3], pages[3:] + compiled(TILED, "tiled<double>", 50)
    write(new, only=True)
    assert [name for name, *_ in rows()] == [str(NARROW), str(NEW), str(TILED)]
    assert not check_sass.stale_files(narrow + new + tiled)


def test_a_check_compares_what_was_built(pages):
    """The columns and resources of other architectures count only where their kernels were built."""
    kernels = pages + compiled(TILED, "tiled<double>", 50)
    two = [k for k in kernels if k.arch != "sm_120"]
    assert not check_sass.stale_files(two, check=True)
    assert set(check_sass.stale_files(two)) == {check_sass.DOCUMENT, check_sass.RESOURCES}
    for arch in ("sm_90a", "sm_80", "sm_120"):
        next(k for k in kernels if k.arch == arch).registers += 8
        stale = check_sass.stale_files(
            [k for k in kernels if k.arch != "sm_120" or arch == "sm_120"], check=True
        )
        assert set(stale) == {check_sass.DOCUMENT, check_sass.RESOURCES}, arch
        next(k for k in kernels if k.arch == arch).registers -= 8


@pytest.mark.parametrize(
    ("leaves", "stays"),
    [
        ("Half", "BFloat16"),
        ("uint8", "int8"),
        ("MixedBytes<uint8, int8>", "int8"),
        ("Pair<Half>", "Pair<BFloat16>"),
        ("(fastgemm::Fp8)1, Half", "(fastgemm::Fp8)0, BFloat16"),
        ("BFloat16, (Major)0, (Major)1", "BFloat16, (Major)0, (Major)0"),
        ("Half, (Major)1, (Major)0", "BFloat16, (Major)0, (Major)0"),
    ],
)
def test_a_check_needs_one_kernel_of_two_twins(pages, leaves, stays):
    """What a twin stands for is not compared, unless it was built; all other kernels are."""
    kernels = pages + compiled(TILED, "tiled<double>", 50)
    first, second = (compiled(NEW, f"new<{name}, true>", 60) for name in (stays, leaves))
    write(kernels + first + second)
    assert check_sass.RESOURCES in check_sass.stale_files(
        kernels + first, check=True
    )  # a build with all kernels
    assert not check_sass.stale_files(kernels + first, check=True, compiled_for=BOTH)
    assert set(check_sass.stale_files(kernels + second, check=True, compiled_for=BOTH)) == {
        check_sass.DOCUMENT,
        check_sass.RESOURCES,
    }
    assert check_sass.RESOURCES in check_sass.stale_files(kernels, check=True, compiled_for=BOTH)
    for kernel in (first[0], kernels[0]):
        kernel.registers += 8
        stale = set(check_sass.stale_files(kernels + first, check=True, compiled_for=BOTH))
        assert check_sass.RESOURCES in stale and (check_sass.DOCUMENT in stale) == (kernel in kernels)
        kernel.registers -= 8


def test_a_check_needs_a_file_only_for_the_architectures_that_it_was_compiled_for(pages):
    """What a file has for another architecture is not compared. Empty kernels are compared."""
    kernels = pages + compiled(TILED, "tiled<double>", 50)
    for arch in ("sm_90a", "sm_80"):
        some = [k for k in kernels if k.source == TILED or k.arch == arch]
        compiled_for = {**BOTH, str(NARROW): {arch}}
        assert not check_sass.stale_files(some, check=True, compiled_for=compiled_for)
        for choice in ({}, {"compiled_for": BOTH}):  # it was compiled for all, and is empty on others
            stale = set(check_sass.stale_files(some, check=True, **choice))
            assert stale == {check_sass.DOCUMENT, check_sass.RESOURCES}
        some[0].registers += 8
        stale = set(check_sass.stale_files(some, check=True, compiled_for=compiled_for))
        assert stale == {check_sass.DOCUMENT, check_sass.RESOURCES}
        some[0].registers -= 8


def test_what_is_not_compiled_is_not_taken_out(tmp_path):
    """A folder that holds only one kernel's object says nothing about the other kernels."""
    (tmp_path / NARROW.parent).mkdir(parents=True)
    (tmp_path / f"{NARROW}.o").touch()
    with pytest.raises(SystemExit, match=r"files have no object under .*; --kernel reads one kernel alone"):
        check_sass.read_kernels(tmp_path)
    with pytest.raises(
        SystemExit, match=r"no object of tiled under .*: KERNEL=tiled tools/compile_cuda\.sh builds"
    ):
        check_sass.read_kernels(tmp_path, "tiled")


def test_objects_for_other_architectures_are_refused(pages):
    with pytest.raises(SystemExit, match=r"not for the architectures of page\.md"):
        check_sass.stale_files(compiled(NEW, "new<float>", 60)[:2], only=True)


@pytest.mark.parametrize("op", ["gemm", "transpose", "add"])
def test_every_kernel_is_launched_by_one_file(op):
    sources = [path.relative_to(check_sass.CUDA) for path in sorted((check_sass.CUDA / op).rglob("*.cu"))]
    for row in fastgemm.kernels(op, "cuda"):
        if row.level != 7 and row.name not in (
            "symmetric",
            "invariant",
            "dequantized",
        ):  # these launch other rows
            assert sum(check_sass.launches(source, row.name) for source in sources) == 1, row.name


def test_a_missing_tool_is_named_and_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_tools, "tool_path", lambda: str(tmp_path))
    monkeypatch.setattr("sys.argv", ["check_sass.py"])
    with pytest.raises(
        SystemExit, match=r"no cuobjdump: `make \.venv/\.lint` installs .*nvidia-cuda-cuobjdump"
    ):
        check_sass.main()
    (tmp_path / "nvcc").touch(mode=0o755)
    assert cuda_tools.missing("nvcc") == "" and "no c++filt" in cuda_tools.missing("nvcc", "c++filt")


def test_what_nvcc_has_not_compiled_fails_or_is_skipped_with_the_reason(monkeypatch):
    how = r"KERNEL=new tools/compile_cuda\.sh && \.venv/bin/python tools/check_sass\.py --kernel new"
    monkeypatch.setattr(cuda_tools, "missing", lambda *_: "")
    with pytest.raises(pytest.fail.Exception, match=rf"new_kernel: run {how}$"):
        compiled_for("9.0", "new_kernel", "new")
    monkeypatch.setattr(cuda_tools, "missing", lambda *_: "there is no nvcc")
    with pytest.raises(pytest.skip.Exception, match=rf"{how}; there is no nvcc$"):
        compiled_for("9.0", "new_kernel", "new")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_kernel_that_is_not_there_is_not_compiled():
    done = subprocess.run(
        ["bash", ROOT / "tools/compile_cuda.sh"],
        env={**os.environ, "KERNEL": "tiled_wied"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "has a launcher gemm_tiled_wied, " in done.stderr
