"""What the pages show, as data: modules with the blocks of results files; spec.py, which makes Markdown of them;
and pages.py, which knows where they stand."""

import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fits")
)  # choosing reads these points
