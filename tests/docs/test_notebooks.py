"""Tests the committed notebooks: cells ran from top to bottom, and outputs are complete, small and free of paths.

`make test-notebooks` checks that they still run.
"""

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastgemm._explain import run
from pages import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 500_000
# Local paths and addresses of objects.
TRACES = re.compile(
    r"(/tmp/|/home/|/root/|/work/|/Users/|site-packages|\bat 0x[0-9a-f]{6,}|0x7f[0-9a-f]{8,})"
)


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [
        cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
    ]


def texts(output: dict[str, Any]) -> list[str]:
    """The text of an output, without pictures."""
    found = [part for kind, part in output.get("data", {}).items() if not kind.startswith("image/")]
    return ["".join(part) for part in [*found, output.get("text", "")]]


def test_there_are_notebooks():
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_ran_from_top_to_bottom(path: Path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert "error" not in kinds
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_small(path: Path):
    assert path.stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_has_no_traces_of_a_machine(path: Path):
    found = [TRACES.search(text) for cell in code_cells(path) for o in cell["outputs"] for text in texts(o)]
    assert not [match[0] for match in found if match]


class Recorder(ModuleType):
    """A simulator that records when its kernels are installed."""

    def __init__(self, name: str, log: list[str]):
        super().__init__(name)
        self.install = lambda: log.append(name)


def test_kernels_of_another_module_are_put_back(monkeypatch):
    log: list[str] = []
    own, first, second = (Recorder(name, log) for name in ("own", "first", "second"))
    monkeypatch.setattr(run.importlib, "import_module", lambda name: own)
    with pytest.raises(ZeroDivisionError), run.kernels_of(first):
        assert run.load_simulator() is first
        with run.kernels_of(second):
            assert run.load_simulator() is second
        assert run.load_simulator() is first
        raise ZeroDivisionError
    assert run.load_simulator() is own
    assert log == ["first", "second", "first", "own"]


def test_the_simulator_installs_its_kernels_again():
    simulator = run.load_simulator()
    with run.kernels_of(simulator):
        pass
    report = run.explain("transpose", level=1, shape=(32, 32))
    assert report.kernel == "naive"
