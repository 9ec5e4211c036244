"""The reason for level 7's choice if torch's own call was faster."""

from __future__ import annotations

import torch

from .. import _introspect
from .._choice import autotuned
from .devices import best_device
from .environment import TORCH_THREADS
from .problems import Gemm, Instance, dtype_name
from .records import Measurement


def why_below_torch(row: Measurement, instance: Instance, busy: str = "") -> str | None:
    """The reason for level 7's choice; None if level 7 is not slower than torch.

    Args:
        busy: how busy the machine was meanwhile; empty where it was not.
    """
    if row.speedup is None or round(row.speedup.median, 2) >= 1:
        return None
    took = f"level 7 took {row.kernel}, at {row.speedup.median:.2f} of {row.baseline}"
    if row.speedup.q3 >= 1:
        return (
            f"{took}: within the spread of this run, quartiles {row.speedup.q1:.2f} to {row.speedup.q3:.2f}"
        )
    return f"{took}: {'the machine was busy, and ' if busy else ''}{_chosen_by(instance)}"


def _chosen_by(instance: Instance) -> str:
    """How level 7 chose its kernel, and the command that measures the problem."""
    kernel, measures = instance.chosen(), f"{measuring(instance)} measures it"
    if kernel == "torch":
        return "that is torch's own kernel, called through fastgemm"
    if autotuned.kept_kernel(instance.key, instance.device) == kernel:
        return f"it was the fastest when this problem was measured here; {measures} again"
    cpu = instance.device == "cpu"
    if kernel in _introspect.ranked(
        instance.key, _introspect.build_info()["cpu_model"] if cpu else _introspect.gpu()
    ):
        by = f"the table of this type of {'processor' if cpu else 'GPU'} names it"
    else:
        by = (
            "it was predicted to be the fastest"
            if instance.problem.op == "gemm"
            else "it is the highest level"
        )
    return f"{by}, and this problem was not measured here: {measures}"


def measuring(instance: Instance) -> str:
    """The command that measures a product or transposition, and stores its fastest kernel."""
    problem = instance.problem
    words = ["fastgemm bench"]
    if not isinstance(problem, Gemm):
        words.append(f"--op {problem.op}")
    words.append("--shape " + "x".join(map(str, problem.shape)))
    if problem.dtype != torch.float32:
        words.append(f"--dtype {dtype_name(problem.dtype)}")
    if instance.problem.precision:
        words.append(f"--precision {instance.problem.precision}")
    if instance.threads not in (0, TORCH_THREADS):
        words.append(f"--threads {instance.threads}")
    if instance.device != best_device():
        words.append(f"--device {instance.device}")
    return " ".join([*words, "--tune"])
