"""What the pages show, as data: modules that define blocks for the results files; spec.py, which makes
Markdown of blocks; and pages.py, which knows on which pages they are.

A new table needs an entry in the BLOCKS of a module, and the two markers with its name on a page.
"""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "fits")]  # for studies and choosing.py
