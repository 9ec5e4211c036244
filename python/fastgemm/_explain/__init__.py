"""The memory accesses of a CUDA kernel, counted on the simulator: ``fastgemm.explain``.

run.py runs an operation on the simulator (csrc/simt); symbols.py and build.py turn its program counters into
source lines, whose counters are in counts.py; occupancy.py and roofline.py compare them with a GPU of _gpus.py.
findings.py combines these data; text.py and plots.py show them; report.py joins data and views."""

from .report import Report
from .run import explain, simulate

__all__ = ["Report", "explain", "simulate"]
