"""Executes the notebooks and rewrites their outputs: `make notebooks`.

    python tools/make_notebooks.py [NAME ...]   all of notebooks/*.ipynb, or those that begin with a name

Cells run in order in a fresh kernel. A notebook is written only if all of them ran. Data that depend on when
and where it ran (times, versions of the kernel, identifiers of cells) are removed, so that a diff shows only
real changes. CI also executes the notebooks, without writing them (`make test-notebooks`).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
CELL_SECONDS = 300  # as in `make test-notebooks`
MOST_BYTES = 500_000
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def without_state(notebook: NotebookNode) -> NotebookNode:
    """Keeps sources and outputs, numbers cells in order, and removes everything else."""
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(KERNEL), language_info=NotebookNode(name="python")
    )
    executed = 0
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number:02}", NotebookNode()
        if cell.cell_type != "code":
            continue
        executed += 1
        cell.execution_count = executed
        # Progress bars and warnings of libraries are not kept.
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            output.pop("metadata", None)
            if output.output_type in ("execute_result", "display_data"):
                output.metadata = NotebookNode()
            if output.output_type == "execute_result":
                output.execution_count = executed
    return notebook


def execute(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    start = time.perf_counter()
    NotebookClient(
        notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    seconds = time.perf_counter() - start
    text = nbformat.writes(without_state(notebook)) + "\n"
    size = len(text.encode())
    if size > MOST_BYTES:
        raise SystemExit(f"{path.name}: {size} bytes of source and outputs, more than {MOST_BYTES}")
    path.write_text(text, encoding="utf-8")
    print(f"{path.name}: {seconds:.0f} s, {size / 1000:.0f} kB", flush=True)


def main(names: list[str]) -> None:
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.name.startswith(tuple(names)):
            execute(path)


if __name__ == "__main__":
    main(sys.argv[1:])
