"""The means of a measurement: device, timer, sensors, and the limits that results are compared with."""

from __future__ import annotations

import time
from typing import Any

import torch

from .. import _introspect
from .._gpus import HOPPER, computed_in, find_gpu
from .checking import Check, Reference, check, raised
from .cuda_timing import CudaTimer
from .load import LoadMeter
from .problems import Call, Instance, Problem, dtype_name
from .timing import CpuTimer, Timer

BASELINE, COPY, LIMIT = "torch", "copy", "limit"
REFUSAL = "cannot run"  # in the error if a kernel or level does not take a problem
LONG = 0.01  # seconds; an estimate above this is checked by a second one

# On a GPU a kernel of a sweep is timed up to this many seconds a run, or for as long as torch takes; the ladder
# of one problem has more patience.
LONGEST_IN_SWEEP, LONGEST_IN_LADDER = 0.05, 0.5


class Sensors:
    """The sensors of a device that has none. Classes that read sensors derive from it."""

    source: str | None = None

    def __enter__(self) -> Sensors:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def since(self, start: float) -> dict[str, Any] | None:
        """The values read since ``start`` (time.perf_counter())."""
        return None

    def joules(self) -> float | None:
        """An energy counter."""
        return None


def fma_peak(dtype: torch.dtype, threads: int) -> float | None:
    """Operations a second of independent multiply-adds on a CPU's registers, measured; None without a probe.

    float16 is computed in float32 on a CPU, so its peak is that of float32.
    """
    return _introspect.measure_peak(dtype_name(dtype), threads, 0.2) or None


def gpu_fma_peak(dtype: torch.dtype, sm_clock_mhz: float | None) -> float | None:
    """Operations a second of the GPU's multiply-add units, at the highest clock if none was read; None if the
    units are unknown."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if properties.major != 9:
        return None
    clock = _introspect.gpu_properties()["clock"] if sm_clock_mhz is None else sm_clock_mhz * 1e6
    cycles = properties.multi_processor_count * clock
    return 2 * HOPPER.results_per_cycle[computed_in(dtype_name(dtype))] * cycles


def gpu_tensor_peak(problem: Problem) -> float | None:
    """Operations a second of the tensor cores by the GPU's data sheet; None if no known tensor core computes the
    product in this precision: for float32 and int32 the multiply-add units are the limit."""
    kind = problem.precision if problem.precision == "tf32" else dtype_name(problem.dtype)
    try:
        return find_gpu(torch.cuda.get_device_name()).tensor_peaks.get(kind)
    except ValueError:
        return None


class Session:
    """Opens the sensors for as long as its ``with`` block lasts."""

    def __init__(self, device: str = "cpu", timer: Timer | None = None, sensors: Sensors | None = None):
        self.device = device
        self.timer: Timer = timer or (CudaTimer() if device == "cuda" else CpuTimer())
        self.sensors: Sensors = sensors or Sensors()
        self.load: LoadMeter = LoadMeter()
        self._peaks: dict[tuple[torch.dtype, int], float | None] = {}

    def __enter__(self) -> Session:
        self.sensors.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.sensors.__exit__(*error)

    def describe(self) -> dict[str, Any]:
        """The method, for a report."""
        return {"timer": self.timer.name, "text": self.timer.method, "sensors": self.sensors.source}

    def run_checked(self, call: Call, reference: Reference) -> Check:
        """Checks a call. An error of the call becomes an outcome, too; but a refusal of the problem is raised."""
        try:
            return check(call, reference)
        except (RuntimeError, ValueError, MemoryError) as error:
            if REFUSAL in str(error):
                raise
            return Check(False, 0.0, 0, reference.rows, 0.0, raised(error))

    def estimate(self, call: Call, checked: Check | None) -> float | None:
        """Seconds of a call, known before it is timed; None: unknown. On a GPU, the first call also loads its
        code, and a call may seem long because the host was busy."""
        if self.device == "cuda":
            first = self.timer.sample(call, 1)
            return first if first < LONG else min(first, self.timer.sample(call, 1))
        return checked.seconds if checked else None

    def baseline_seconds(self, instance: Instance) -> float:
        """torch's time on a GPU, 0 if it has no such call; not needed on a CPU."""
        call = instance.torch() if self.device == "cuda" else None
        if call is None:
            return 0.0
        call()
        return self.timer.sample(call, 1)

    def too_long(self, seconds: float | None, baseline: float, longest: float) -> str:
        """The reason why a call is not timed; empty if it is timed."""
        if self.device != "cuda" or seconds is None or seconds <= max(longest, 1.25 * baseline):
            return ""
        return f"not timed: one run takes {seconds * 1e3:.0f} ms, more than {longest * 1e3:.0f}"

    def arithmetic_peak(self, instance: Instance, reading: dict[str, Any] | None) -> tuple[float | None, str]:
        """The highest rate of products on the device, in the unit of the instance, and its name: the rate
        of the tensor cores where they compute the product, else of the multiply-add units."""
        unit, dtype = instance.unit[1], instance.problem.dtype
        if self.device == "cuda":
            if tensor_peak := gpu_tensor_peak(instance.problem):
                return tensor_peak / unit, "tensor-core peak"
            peak = gpu_fma_peak(dtype, reading["sm_clock_mhz"] if reading else None)
        else:
            key = dtype, instance.threads
            if key not in self._peaks:
                self._peaks[key] = fma_peak(dtype, instance.threads)
            peak = self._peaks[key]
        return (peak / unit if peak else None), "FMA peak"

    @staticmethod
    def now() -> float:
        return time.perf_counter()
