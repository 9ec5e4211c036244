"""What a CUDA kernel does to memory, counted on the simulator: ``fastgemm.explain``.

run.py runs an operation on the simulator (csrc/simt); symbols.py and build.py turn its program counters into
source lines; occupancy.py and roofline.py hold the result against a GPU of _gpus.py; text.py, html.py and plots.py
show the report.
"""

from .report import Report
from .run import explain, simulate

__all__ = ["Report", "explain", "simulate"]
