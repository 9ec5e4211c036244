"""What the pages show, as data: modules with the blocks of results files; spec.py, which makes Markdown of them;
and pages.py, which knows where they stand.

A new table is an entry in the BLOCKS of a module, and the two markers of its name on a page.
"""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "fits")]  # studies, and the points that choosing reads
