"""Measuring a product where it first runs: ``tune=True`` of fastgemm.patch and enable, and ``FASTGEMM_TUNE=1``.

The op library calls :func:`measure` for a product whose call names no level or kernel, and for which no
choice is remembered yet (csrc/torch/first_calls.h). The result holds for exactly the key of the product. It
is used in this process and, through the file of autotune, in later ones. Measuring waits for the GPU, which
nothing else in this package does.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

import torch
from torch._guards import TracingContext

from .. import _errors, _introspect
from .._choice import autotuned
from .._choice.autotuned import Seconds, environment, kept_kernel
from .._choice.clocks import HOPELESS, LATE, NEAR, PATIENCE, REFUSAL, Call, gpu_clock, time_limit, wall_clock
from .._choice.cpu_predictions import Key

BUDGET, LEAST_ROUNDS, MOST_ROUNDS = 0.03, 4, 25  # seconds; runs of each kernel, besides the first
LIMIT = 1.0  # seconds after which no further run begins
WORTH_LEAVING = 1.02  # a kernel must be this many times as fast as the predicted one; less is noise
# Calls that follow each other without a pause, and their seconds together. What takes longer is measured alone,
# because the start of a kernel does not matter then.
IN_A_ROW, LONGEST_ROW = 8, 1e-3
# Seconds that a rank waits for rank 0's result: for one product, and for all products together.
WAIT, WAIT_IN_ALL = 1.0, 5.0

_locks: defaultdict[torch.device, threading.Lock] = defaultdict(
    threading.Lock
)  # one for each device, so that another device can measure at the same time
_here = threading.local()  # .measuring: whether this thread measures now
_saves = True  # until the file cannot be written
_waited = 0.0


def _after_fork() -> None:
    """The thread that measured does not exist in a forked process."""
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)


def _in_jit_trace() -> bool:
    """Whether torch.jit.trace is active. It is suspended while an op runs, so only Python's frames show it."""
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_globals.get("__name__") != "torch.jit._trace":
        frame = frame.f_back
    return frame is not None


def _not_now(device: torch.device) -> bool:
    """Whether the product cannot be measured now: during the capture of a graph, during a trace, or inside a
    __torch_dispatch__ (of DTensor, of another class of tensors, or of a mode such as make_fx). torch excludes
    the key PythonTLSSnapshot while a __torch_dispatch__ runs."""
    return bool(
        (device.type == "cuda" and torch.cuda.is_current_stream_capturing())
        or torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.PythonTLSSnapshot)
        or TracingContext.try_get() is not None
        or torch.compiler.is_compiling()
        or _in_jit_trace()
    )


def _fits(size: int, device: torch.device) -> bool:
    """Whether there is free memory for a result, and as much again for the kernels' scratch memory."""
    if device.type == "cpu":
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return 2 * size <= next(1024 * int(line.split()[1]) for line in lines if "MemAvailable" in line)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    flushed = 4 * torch.cuda.get_device_properties(device).L2_cache_size  # by the clock
    return 2 * size + flushed <= torch.cuda.mem_get_info(device)[0] + cached


def _time(calls: dict[str, Call], clock: Callable[[Call], float], on_cpu: bool) -> Seconds:
    """The median seconds of each call that can run. First runs load code and map memory, so they are counted
    only if there is no time for a second run."""
    times: dict[str, list[float]] = {}
    start, names = time.perf_counter(), list(calls)
    for number in range(1 + MOST_ROUNDS):
        for name in list(names) if number % 2 or not number else names[::-1]:
            best = min((min(t) for t in times.values()), default=math.inf)
            left = LIMIT - (time.perf_counter() - start)
            if times and (left <= 0 or (number > LEAST_ROUNDS and LIMIT - left >= BUDGET)):
                return {name: statistics.median(t) for name, t in times.items()}
            late = min(max(HOPELESS * best, PATIENCE), left) if on_cpu and times else math.inf
            try:
                with time_limit(late):
                    seconds = clock(calls[name])
            except RuntimeError as refusal:
                if LATE not in str(refusal) and REFUSAL not in str(refusal):
                    raise
                names.remove(name)
                times.pop(name, None)
                continue
            times[name] = [seconds] if number < 2 else [*times[name], seconds]
        if number:  # a first run may load code for longer than the slowest kernel takes
            names = [name for name in names if min(times[name]) < NEAR * min(map(min, times.values()))]
    return {name: statistics.median(t) for name, t in times.items()}


def _measure(
    kernels: Sequence[str], device: torch.device, run: Callable[[str], None], in_a_row: int = 1
) -> Seconds:
    """The seconds of the kernels that can run; empty if memory runs out."""
    on_cpu = device.type == "cpu"
    try:
        clock = wall_clock if on_cpu else gpu_clock(device, in_a_row)
        times = _time({name: partial(run, name) for name in kernels}, clock, on_cpu)
    except torch.OutOfMemoryError:
        return {}
    return {name: float(f"{times[name]:.4g}") for name in kernels if name in times}


def _fastest(seconds: Seconds, predicted: str) -> str:
    best = min(seconds, key=seconds.__getitem__, default=predicted)
    near = predicted in seconds and seconds[predicted] <= WORTH_LEAVING * seconds[best]
    return predicted if near else best


def _chosen(kernels: Sequence[str], device: torch.device, run: Callable[[str], None]) -> tuple[str, Seconds]:
    """The kernel for the product, and the seconds of the candidates, with a cold L2 cache.

    A kernel replaces the predicted one only if it is also faster in a row of calls. There a kernel may begin while
    the one before it ends, as in a program, but weights that fit into the cache are warm, as they seldom are.
    """
    seconds, predicted = _measure(kernels, device, run), kernels[0]
    best = _fastest(seconds, predicted)
    alone = device.type != "cuda" or best == predicted or seconds.get(predicted, math.inf) > LONGEST_ROW
    if alone:
        return best, seconds
    rivals = [name for name in seconds if WORTH_LEAVING * seconds[name] < seconds[predicted]]
    calls = max(1, min(IN_A_ROW, int(LONGEST_ROW / seconds[best])))
    return _fastest(_measure((predicted, *rivals), device, run, calls), predicted), seconds


def _follows_rank_0() -> bool:
    """Ranks that measured by themselves would choose differently."""
    of = torch.distributed
    return of.is_available() and of.is_initialized() and of.get_rank() != 0


def _of_rank_0(key: Key, device: torch.device) -> str | None:
    """The kernel that rank 0 has written to the file; waits for it, because all ranks compute a product at
    about the same time."""
    global _waited
    start, found = time.perf_counter(), None
    while found is None and (spent := time.perf_counter() - start) < min(WAIT, WAIT_IN_ALL - _waited):
        time.sleep(0.005 + spent / 20)
        found = kept_kernel(key, device)
    if found is None:
        _waited += time.perf_counter() - start
    return found


def _settle(
    key: Key, kernels: Sequence[str], size: int, device: torch.device, run: Callable[[str], None]
) -> None:
    """Remembers a kernel for this call and all later ones: the kernel that another process has meanwhile
    written to the file; or the fastest one, measured now; or the predicted one."""
    global _saves
    where, seconds = environment(device), Seconds()
    kernel = kept_kernel(key, device)
    if kernel is None and _follows_rank_0():
        kernel = _of_rank_0(key, device)
    elif kernel is None and _fits(size, device):
        kernel, seconds = _chosen(kernels, device, run)
    autotuned.remember(key, kernel or kernels[0], where)
    if seconds and _saves:
        _saves = autotuned.save({key: kernel or kernels[0]}, where, seconds)


def measure(
    key: Key, details: int, kernels: Sequence[str], size: int, index: int, run: Callable[[str], None]
) -> bool:
    """Whether the kernel of a product is known now.

    ``kernels``: the candidates, the predicted one first; ``size``: bytes of the result; ``run``: computes the
    product with one of them in scratch memory. Raises RuntimeError as autotune does.
    """
    device = torch.device("cpu") if key[1] == "cpu" else torch.device(key[1], index)
    if getattr(_here, "measuring", False) or _not_now(device):
        return False
    _errors.alert_not_deterministic("enable or patch with tune=True")
    gpu = "" if device.type == "cpu" else _introspect.gpu()
    _here.measuring = True  # a handler of signals, or a finalizer, may multiply meanwhile
    try:
        with _locks[device], torch._C.DisableTorchFunction():
            if _introspect.remembered(key, gpu, details) is None:
                _settle((*key, details), kernels, size, device, run)
    finally:
        _here.measuring = False
    return True
