"""``fastgemm.tune``: measures a GPU or the processor for two minutes, so that predictions fit it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch._C._functorch import peek_interpreter_stack

from .. import _errors, _introspect
from .._choice import autotuned, cpu_predictions, predictions
from .._choice.clocks import check_seconds
from .._choice.cpu_predictions import CpuPoint, FittedCpu
from .._choice.predictions import Fitted
from ..bench.devices import cuda_obstacle
from . import cpu
from .cpu import CpuTarget, cpu_at_hand
from .measuring import DeviceStopwatch, Point, Progress, Target, collect
from .problems import MOST_BYTES, SIZE_OF
from .quality import Quality, qualities
from .refit import fit_kernels, fit_library

__all__ = ["NoGpu", "Tuning", "cpu_at_hand", "forget", "gpu_at_hand", "tune"]

Device = Literal["cuda", "cpu"]

SECONDS = 110.0
MEMORY_SHARE = 8  # operands and result take no more than this part of the GPU's free memory


@dataclass(frozen=True)
class Tuning:
    """The measurements and fits of :func:`tune`.

    Attributes:
        gpu: the GPU, or the processor, as the tables name it.
        seconds: how long it took to measure.
        points: the problems, with the seconds of each kernel and of the library; on a CPU with their threads.
        fitted: the constants of kernels, and the model and points of the library; on a CPU, the points of all
            kernels.
        before: for each dtype (and tf32) the quality of choices, as geometric means of chosen / best time; on a
            CPU at every fifth product, after a fit to the others only.
        after: the same for choices from now on.
        saved: whether later processes will load it.
    """

    gpu: str
    seconds: float
    points: tuple[Point, ...] | tuple[CpuPoint, ...]
    fitted: Fitted | FittedCpu
    before: dict[str, Quality]
    after: dict[str, Quality]
    saved: bool

    def as_json(self) -> dict[str, Any]:
        """Numbers and names only, for a file."""

        def means(found: dict[str, Quality]) -> dict[str, Any]:
            values = {series: asdict(quality) for series, quality in found.items()}
            return {
                series: {name: None if x != x else x for name, x in fields.items()}  # JSON has no NaN
                for series, fields in values.items()
            }

        on_cpu = isinstance(self.fitted, FittedCpu)
        return {
            "gpu": self.gpu,
            "environment": cpu_predictions.environment() if on_cpu else predictions.environment(self.gpu),
            "seconds": self.seconds,
            "problem": ["dtype", "precision", "batch", "m", "n", "k", "a_transposed", "b_transposed"],
            "points": [
                [list(p.problem), *([p.threads] if isinstance(p, CpuPoint) else ()), p.seconds]
                for p in self.points
            ],
            "counts": list(_introspect.CPU_COUNTS if on_cpu else _introspect.COUNTS),
            "fitted": self.fitted.as_json(),
            "before": means(self.before),
            "after": means(self.after),
        }


class NoGpu(RuntimeError):
    """No GPU here can run the kernels."""


def gpu_at_hand() -> Target:
    """The current GPU. Raises NoGpu."""
    if obstacle := cuda_obstacle():
        raise NoGpu(f"fastgemm tune measures a GPU, and none can be used here: {obstacle}")
    free, _ = torch.cuda.mem_get_info()
    most = min(MOST_BYTES, free // MEMORY_SHARE)
    return Target(_introspect.gpu(), _introspect.gpu_properties(), DeviceStopwatch(), most)


def _check(seconds: float, dtypes: Sequence[str]) -> None:
    check_seconds("fastgemm.tune: seconds", seconds)
    if not 0 < seconds < math.inf:
        raise ValueError(f"fastgemm.tune: seconds must be a positive number, got {seconds}")
    if unknown := [name for name in dtypes if name not in SIZE_OF]:
        raise ValueError(f"fastgemm.tune: {unknown[0]!r} is none of {', '.join(SIZE_OF)}")
    if not dtypes:
        raise ValueError("fastgemm.tune: dtypes must name at least one type; None stands for all")
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("fastgemm.tune: cannot measure while a CUDA graph is being captured")
    if peek_interpreter_stack() is not None:
        raise RuntimeError("fastgemm.tune: does not work inside torch.func transforms (vmap, grad, jvp)")
    if _introspect.simulating():
        raise RuntimeError("fastgemm.tune: cannot measure inside fastgemm.simulate()")


def _names(dtypes: Sequence[torch.dtype | str] | None) -> tuple[str, ...]:
    if isinstance(dtypes, (str, torch.dtype)):  # a string is a sequence of strings
        raise TypeError(f"fastgemm.tune: dtypes must be a list of types or their names, got {dtypes!r} alone")
    wanted = SIZE_OF if dtypes is None else dtypes
    return tuple(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in wanted))


def tune(
    *,
    seconds: float = SECONDS,
    dtypes: Sequence[torch.dtype | str] | None = None,
    save: bool = True,
    progress: Progress | None = None,
    device: Device | None = None,
) -> Tuning:
    """Measures the current GPU, or the processor, so that ``level=None`` and each level choose fast kernels there.

    Kernels are chosen by predicted times, whose constants were measured on other GPUs and processors. ``tune``
    times the library and the kernels that may be the fastest on random products of all shapes and layouts (on a
    CPU with one thread and with torch's number of threads). It fits the constants to these times, and this process
    uses them at once. Nothing else should run on the device meanwhile.

    Args:
        seconds: how long to measure; fitting takes a few more.
        dtypes: of operands; the others stay as they are. Default: all.
        save: also keep it on disk, for later processes with these versions of torch and fastgemm.
        progress: is called with a text and the share of the work that is done, 0 to 1.
        device: ``"cuda"`` or ``"cpu"``. Default: the GPU where the kernels can use one, else the processor.

    Returns:
        The measurements, the fits, and how much better choices are for these products.

    Raises:
        RuntimeError: there is no GPU that the kernels can use, a CUDA graph is being captured, a transform of
            torch.func or a simulation is active, or ``torch.use_deterministic_algorithms(True)`` holds.
        ImportError: scipy is not installed (``pip install 'fastgemm[tune]'``).
        TypeError: ``seconds`` is no number; ``dtypes`` is a single type or name.
        ValueError: ``seconds`` is not positive, or not finite; unknown dtype, or none; unknown device.
    """
    _errors.alert_not_deterministic("tune")
    names = _names(dtypes)
    _check(seconds, names)
    with torch.no_grad():
        target = _target(device)
        if find_spec("scipy") is None:
            raise ImportError(
                "fastgemm tune fits constants with scipy, which is not installed: pip install 'fastgemm[tune]'"
            )
        progress = progress or (lambda text, share: None)
        if isinstance(target, CpuTarget):
            return _tune_cpu(target, seconds, names, save, progress)
        return _tune_gpu(target, seconds, names, save, progress)


def _target(device: Device | None) -> Target | CpuTarget:
    """Raises NoGpu, and ValueError."""
    if device not in ("cuda", "cpu", None):
        raise ValueError(f"fastgemm.tune: device must be 'cuda', 'cpu' or None, got {device!r}")
    if device == "cuda":
        return gpu_at_hand()
    try:
        return cpu_at_hand() if device else gpu_at_hand()
    except NoGpu:
        return cpu_at_hand()


def _none_measured(seconds: float) -> RuntimeError:
    return RuntimeError(f"fastgemm.tune: no product was measured within {seconds:g} s")


def _tune_gpu(
    target: Target, seconds: float, dtypes: Sequence[str], save: bool, progress: Progress
) -> Tuning:
    start, gpu = target.clock(), target.properties
    points = collect(target, seconds, dtypes, progress)
    spent = target.clock() - start
    if not points:
        raise _none_measured(seconds)

    def order_of(point: Point) -> list[str]:
        return [name for name, _ in _introspect.predictions(point.problem, gpu)]

    before = qualities(points, "cuda", order_of)
    kept = {name: gpu[name] for name in predictions.PROPERTIES}
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    fits = fit_kernels(points, gpu), fit_library(points, gpu)
    fitted = Fitted(target.name, kept, when, len(points), *fits)
    fitted.apply()
    saved = save and predictions.save(fitted.merged_into(predictions.known(target.name)))
    after = qualities(points, "cuda", order_of)
    return Tuning(target.name, spent, tuple(points), fitted, before, after, saved)


def _tune_cpu(
    target: CpuTarget, seconds: float, dtypes: Sequence[str], save: bool, progress: Progress
) -> Tuning:
    start = target.clock()
    points = cpu.collect(target, seconds, dtypes, progress)
    spent = target.clock() - start
    if not points:
        raise _none_measured(seconds)
    # A fit looks too good at its own points, so other points say how good choices are.
    held_out = points[:: cpu.HOLD_OUT]
    before = qualities(held_out, "cpu", cpu.order_of)
    without = cpu.fitted([point for i, point in enumerate(points) if i % cpu.HOLD_OUT])
    fitted = cpu.fitted(points)
    without.apply()
    after = qualities(held_out, "cpu", cpu.order_of)
    fitted.apply()
    autotuned.load()  # measurements of autotune correct the new constants, too
    saved = save and cpu_predictions.save(fitted.merged_into(cpu_predictions.known()))
    return Tuning(target.name, spent, tuple(points), fitted, before, after, saved)


def forget(device: Device | None = None) -> tuple[str, bool]:
    """Removes the tuning of the current GPU, or the processor, from disk and from this process. Returns its name,
    and whether the file had a set for it. Raises OSError, and NoGpu."""
    target = _target(device)
    if not isinstance(target, CpuTarget):
        return target.name, predictions.forget(target.name)
    there = cpu_predictions.forget()
    autotuned.load()  # measurements of autotune stay
    return target.name, there
