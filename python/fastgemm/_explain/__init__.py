"""The memory accesses of a CUDA kernel, counted on the simulator: ``fastgemm.explain``.

run.py runs an operation on the simulator (csrc/simt); symbols.py and build.py turn its program counters into
source lines, whose counters are in counts.py; occupancy.py and roofline.py hold these against a GPU of _gpus.py.
findings.py is all of that together, text.py, html.py and plots.py show it, and a report knows both.
"""

from .report import Report
from .run import explain, simulate

__all__ = ["Report", "explain", "simulate"]
