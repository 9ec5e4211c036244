"""How ``level=None`` chooses on each device of this machine, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .. import _introspect
from .._choice import autotuned, cpu_predictions, predictions

GIGA, MIB = 1e9, 1 << 20
ON_A_CPU = "fastgemm bench --shape 1024 --tune"
"""The command that measures one product on a CPU, here of 1024 x 1024 matrices."""


@dataclass(frozen=True)
class Known:
    """A device in words: what was measured on it, how ``level=None`` chooses, and what to do next."""

    device: str
    measured: str
    choice: str
    next: str


# By the state of a GPU (docs/install.md has the three).
BY_KNOWLEDGE = {
    "measured": (
        "measured: constants and library measured on an H200, scaled to this GPU",
        "the kernel, or the library, that is predicted to be the fastest",
        "fastgemm tune measures exactly this GPU, in two minutes",
    ),
    "predicted": (
        "predicted: this GPU was not measured",
        "kernels of fastgemm where they are predicted to beat the library for certain; else torch",
        "fastgemm tune measures this GPU, in two minutes",
    ),
    "tuned": (
        "tuned: {tuned}",
        "the kernel, or the library, that is predicted to be the fastest, from measurements here",
        "fastgemm ladder times every level here beside torch",
    ),
}


# What is known of a processor, for each of its states (docs/choosing.md).
CPU_BY_KNOWLEDGE = {
    "measured": (
        "measured: constants and products measured on a processor of this family ({family})",
        "the kernel, or torch, that is predicted to be the fastest",
        "fastgemm ladder{device} times every level beside torch; fastgemm tune{device} measures exactly "
        "this processor, in two minutes",
    ),
    "predicted": (
        "predicted: this family of processors was not measured; constants of the nearest one ({family})",
        "kernels of fastgemm where they are predicted to be 24 % faster than torch; else torch",
        "fastgemm ladder{device} times every level beside torch; fastgemm tune{device} measures this processor, "
        "in two minutes",
    ),
    "tuned": (
        "tuned: {tuned}",
        "the kernel, or torch, that is predicted to be the fastest, from measurements here",
        "fastgemm ladder{device} times every level here beside torch",
    ),
}


def gpus() -> list[dict[str, Any]]:
    """Name, properties and state of each GPU that torch sees; without CUDA kernels, only its name."""
    found: list[dict[str, Any]] = []
    for i in range(torch.cuda.device_count()):
        with torch.cuda.device(i):
            properties = _introspect.gpu_properties()
            if not properties["capability"]:
                found.append({"name": torch.cuda.get_device_name(i), "knowledge": None})
                continue
            name = _introspect.gpu()
            entry: dict[str, Any] = {
                "name": name,
                "properties": properties,
                "knowledge": _introspect.knowledge(),
            }
            if fitted := predictions.known(name):
                entry["tuned"] = {"when": fitted.when, "points": fitted.points}
            found.append(entry)
    return found


def gpu_in_words(gpu: dict[str, Any]) -> Known:
    """The text for an entry of :func:`gpus`."""
    if gpu["knowledge"] is None:
        nothing = "no kernel of this build runs on it"
        return Known(gpu["name"], nothing, "raises on this GPU", "the obstacles are listed above")
    p = gpu["properties"]
    path = "wgmma" if p["wgmma"] else "portable path (mma.sync)"
    sees = (
        f"{gpu['name']}: compute capability {p['capability'] // 10}.{p['capability'] % 10}, "
        f"{p['clock'] / GIGA:.2f} GHz, {p['l2_bytes'] / MIB:.0f} MiB of L2, {p['bandwidth'] / GIGA:.0f} GB/s, "
        f"{path}"
    )
    measured, choice, then = BY_KNOWLEDGE[gpu["knowledge"]]
    of = gpu.get("tuned")
    tuned = f"{of['when']}, {of['points']} problems" if of else "in this process"
    return Known(sees, measured.format(tuned=tuned), choice, then)


def processor() -> dict[str, Any]:
    """The processor's state, the family whose constants are used, and what was measured here."""
    fitted = cpu_predictions.known()
    found = {"knowledge": _introspect.cpu_knowledge(), "family": _introspect.cpu_family()}
    return found | ({"tuned": {"when": fitted.when, "points": len(fitted.points)}} if fitted else {})


# Properties of a product in the key of a first call, one for each bit (csrc/python/module.cpp). The first two
# have the property if the bit is 0.
DETAILS = ("rows of operands unaligned", "rows of the result unaligned", "a row added", "an epilogue")


def _problem_in_words(key: cpu_predictions.Key) -> str:
    op, _, dtype, out, precision, a, b, accumulates, _, *sizes = key[: autotuned.OF_AUTOTUNE]
    types = dtype if out == dtype else f"{dtype} to {out}"
    if op == "transpose":
        return f"transpose {types} {' x '.join(map(str, sizes[:3]))}"
    bits = key[autotuned.OF_AUTOTUNE] ^ 3 if len(key) > autotuned.OF_AUTOTUNE else 0
    more = [name for bit, name in enumerate(DETAILS) if bits >> bit & 1]
    more += ["scaled or added to"] if accumulates and "a row added" not in more else []
    text = f"{types} {'NT'[a]}{'NT'[b]} {' x '.join(map(str, sizes))}"
    return ", ".join([text, *([] if precision == "ieee" else [precision]), *more])


def tuned() -> list[dict[str, Any]]:
    """The entries of autotune's file for the devices of this machine. An entry of a first call lists the predicted
    kernel first."""
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    names = {autotuned.environment(device): device for device in reversed(devices)}
    rows: list[dict[str, Any]] = []
    for where, device in reversed(names.items()):
        of, _, _ = where.removeprefix("gpu ").partition("|")
        for key, (kernel, seconds) in autotuned.kept(device).items():
            before = next(iter(seconds), None) if len(key) > autotuned.OF_AUTOTUNE else None
            row = {
                "device": of if key[1] == "cuda" else f"cpu, {key[8]} threads",
                "problem": _problem_in_words(key),
                "kernel": kernel,
                "microseconds": 1e6 * seconds[kernel] if kernel in seconds else None,
                "predicted": before,
                "gain": seconds[before] / seconds[kernel] if before and kernel in seconds else None,
            }
            rows.append(row)
    return rows


def has_tables() -> bool:
    """Whether the static tables of transposes and sums have this type of processor."""
    key = ("transpose", "cpu", "bits32", "bits32", "ieee", False, False, False, 1, 1, 512, 512, 0)
    return bool(_introspect.ranked(key, _introspect.build_info()["cpu_model"]))


def processor_in_words(name: str, threads: int, state: dict[str, Any], beside_gpu: bool) -> Known:
    """Describes the processor. ``state``: the result of :func:`processor`. ``beside_gpu``: whether there is a
    GPU, which commands take by default."""
    device = " --device cpu" if beside_gpu else ""
    measured, choice, then = CPU_BY_KNOWLEDGE[state["knowledge"]]
    of = state.get("tuned")
    tuned = f"{of['when']}, {of['points']} problems" if of else "in this process"
    tables = "the fastest kernel of the nearest measured problem" if has_tables() else "the highest level"
    return Known(
        f"{name}, {threads} thread{'s' if threads > 1 else ''}",
        measured.format(family=state["family"].replace("_", " "), tuned=tuned),
        f"products: {choice}; transposes and sums: {tables}",
        f"{then.format(device=device)}; {ON_A_CPU}{device} measures a product of these sizes here, and keeps its "
        "fastest kernel",
    )
