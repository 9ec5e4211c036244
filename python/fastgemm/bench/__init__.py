"""The measuring code, shared by ``fastgemm ladder``, ``fastgemm bench`` and ``fastgemm tune``.

problems      problems to run: operands, the call, torch's call for the same result
checking      the result against float64 (exact for integers), before anything is timed
timing        interleaved samples and their summaries; cuda_timing: those of a GPU
devices       the device on which a command measures
session       the device and timer of one run, and sensors where there are any
environment   the machine and the versions of a run; load: other load during the run
records       the rows of a report, as JSON and CSV
ladder        every level of an operation; choice: why level 7 took a kernel that is slower than torch
sweep         many problems; presets name sets of them
plots         pictures of both; drawing: their style; formatting: numbers
"""

from .checking import Check, check
from .environment import describe, using_threads
from .problems import Add, Gemm, Instance, Problem, Transpose, instantiate
from .timing import CpuTimer, Interleaved, Summary, Timer, interleave

__all__ = [
    "Add",
    "Check",
    "CpuTimer",
    "Gemm",
    "Instance",
    "Interleaved",
    "Problem",
    "Summary",
    "Timer",
    "Transpose",
    "check",
    "describe",
    "instantiate",
    "interleave",
    "using_threads",
]
