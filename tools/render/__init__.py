"""Describes as data what the pages show. Modules define blocks for the results files, spec.py turns blocks into
Markdown, and pages.py knows on which pages they are.

A new table needs an entry in the BLOCKS of a module, and the two markers with its name on a page.
"""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "fits")]  # for studies and choosing.py
