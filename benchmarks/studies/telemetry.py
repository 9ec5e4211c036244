"""Records the GPU's clocks, power, temperature and reasons for throttling during a measurement.

It uses NVML if the Python package nvidia-ml-py is installed, else nvidia-smi. Without both, it records nothing and
does not fail.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from fastgemm.bench.session import Sensors

INTERVAL = 0.02  # seconds between readings; an H200 updates its power sensor every 25 to 100 ms

# Bits of nvmlDeviceGetCurrentClocksEventReasons.
REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True)
class Reading:
    time: float  # time.perf_counter()
    sm_clock: float  # MHz
    memory_clock: float  # MHz
    power: float  # W
    temperature: float  # degrees Celsius
    reasons: int


def _uuid(index: int) -> str:
    """The GPU's UUID. Indices differ: NVML counts all GPUs, torch only those in CUDA_VISIBLE_DEVICES."""
    found = str(torch.cuda.get_device_properties(index).uuid)
    return found if found.startswith("GPU-") else f"GPU-{found}"


class _Nvml:
    source = "NVML"

    def __init__(self, index: int):
        import pynvml

        pynvml.nvmlInit()
        self._nvml = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(_uuid(index))
        newer = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        self._reasons = newer or pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
        self.read()  # fails here if a sensor is not supported

    def read(self) -> Reading:
        n, handle = self._nvml, self._handle
        return Reading(
            time.perf_counter(),
            n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM),
            n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM),
            n.nvmlDeviceGetPowerUsage(handle) / 1e3,
            n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU),
            self._reasons(handle),
        )

    def joules(self) -> float | None:
        """The energy counter."""
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3
        except self._nvml.NVMLError:
            return None

    def driver(self) -> str:
        return str(self._nvml.nvmlSystemGetDriverVersion())


class _Smi:
    source = "nvidia-smi"
    FIELDS = "clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active"

    def __init__(self, index: int):
        program = shutil.which("nvidia-smi")
        if program is None:
            raise FileNotFoundError("nvidia-smi")
        self._command = [program, "-i", _uuid(index), "--format=csv,noheader,nounits"]
        self.read()

    def _query(self, fields: str) -> list[str]:
        command = [*self._command, f"--query-gpu={fields}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return [part.strip() for part in done.stdout.splitlines()[0].split(",")]

    def read(self) -> Reading:
        *numbers, reasons = self._query(self.FIELDS)
        return Reading(time.perf_counter(), *map(float, numbers), int(reasons, 16))

    def joules(self) -> float | None:
        return None

    def driver(self) -> str:
        return self._query("driver_version")[0]


def _open(index: int) -> _Nvml | _Smi | None:
    for make in (_Nvml, _Smi):
        try:
            return make(index)
        except Exception:  # a missing package, driver or sensor raises different types
            continue
    return None


def driver_version() -> str | None:
    gpu = _open(torch.cuda.current_device()) if torch.cuda.is_available() else None
    return gpu.driver() if gpu else None


class Telemetry(Sensors):
    """Reads the GPU's sensors in a thread while its ``with`` block runs."""

    def __init__(self, index: int):
        """``index``: the torch device."""
        self._gpu = _open(index)
        self._readings: list[Reading] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def source(self) -> str | None:
        return self._gpu.source if self._gpu else None

    def _run(self) -> None:
        assert self._gpu is not None
        while not self._stop.wait(INTERVAL):
            try:
                self._readings.append(self._gpu.read())
            except Exception:  # a failed reading is left out
                continue

    def __enter__(self) -> Telemetry:
        if self._gpu:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def joules(self) -> float | None:
        return self._gpu.joules() if self._gpu else None

    def since(self, start: float) -> dict[str, Any] | None:
        """A summary of the readings since ``start`` (time.perf_counter()); None if there are no sensors."""
        if self._gpu is None:
            return None
        found = [r for r in self._readings if r.time >= start] or self._readings[-1:]
        if not found:
            return None

        def middle(value: Callable[[Reading], float]) -> float:
            return statistics.median(map(value, found))

        bits = 0
        for reading in found:
            bits |= reading.reasons
        return {
            "sm_clock_mhz": middle(lambda r: r.sm_clock),
            "sm_clock_least_mhz": min(r.sm_clock for r in found),
            "memory_clock_mhz": middle(lambda r: r.memory_clock),
            "power_w": round(statistics.fmean(r.power for r in found), 1),
            "power_most_w": round(max(r.power for r in found), 1),
            "temperature_c": max(r.temperature for r in found),
            "throttled_by": [name for bit, name in REASONS.items() if bits & bit and name != "idle"],
            "readings": len(found),
        }


def sensors_of(device: str) -> Telemetry | None:
    """The sensors of the GPU in use. A CPU has none."""
    return Telemetry(torch.cuda.current_device()) if device == "cuda" else None
