"""Tests tools/torch_headers.py with a pip that only pretends to download."""

import zipfile
from pathlib import Path

import pytest
import torch_headers


@pytest.fixture
def asked(monkeypatch) -> list[list[str]]:
    """Records the commands that run. Each creates a wheel of torch 2.13.0."""
    commands = []

    def run(command, **_):
        commands.append(command)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "torch-2.13.0-cp311-cp311-linux.whl", "w") as wheel:
            wheel.writestr("torch/version.py", "__version__ = '2.13.0+cu130'\n")
            for name in ("include/a.h", "lib/libtorch_cpu.so", "lib/libtorch_cuda.so", "__init__.py"):
                wheel.writestr(f"torch/{name}", "")
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr(torch_headers.subprocess, "run", run)
    return commands


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_headers_alone_are_kept_of_this_architecture(asked, tmp_path):
    folder = torch_headers.fetch("2.13.0", tmp_path)
    assert folder == tmp_path / "2.13.0"
    assert files(folder) == {"version.py", "include/a.h"}
    assert "--platform" not in asked[0]


def test_what_is_linked_is_kept_of_another_one_and_fetched_once(asked, tmp_path):
    folder = torch_headers.fetch("2.13.0", tmp_path, "aarch64")
    assert folder == tmp_path / "aarch64" / "2.13.0"
    assert files(folder) == {"version.py", "include/a.h", "lib/libtorch_cpu.so"}
    assert asked[0][asked[0].index("--platform") + 1] == "manylinux_2_28_aarch64"
    assert torch_headers.fetch("2.13.0", tmp_path, "aarch64") == folder
    assert len(asked) == 1


def test_a_version_of_two_parts_is_the_first_release_of_its_minor_version(
    asked, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(torch_headers, "installed", lambda: None)
    for given in ("2.13", "2.13.0"):
        monkeypatch.setattr("sys.argv", ["torch_headers.py", given, "--folder", str(tmp_path)])
        torch_headers.main()
        assert capsys.readouterr().out == f"{tmp_path / '2.13.0'}\n"
    assert len(asked) == 1


@pytest.mark.parametrize("given", ["2", "latest", "2.11+cpu"])
def test_what_is_no_version_is_refused(given, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["torch_headers.py", given])
    with pytest.raises(SystemExit, match="2"):
        torch_headers.main()
    assert f"{given!r} is no version of torch such as 2.11.0" in capsys.readouterr().err
