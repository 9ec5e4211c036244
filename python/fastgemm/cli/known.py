"""How ``level=None`` chooses on each device of this machine, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .. import _introspect
from .._choice import predictions

GIGA, MIB = 1e9, 1 << 20
ON_A_CPU = "fastgemm bench --shape 1024 --tune"
"""The command that measures on a CPU, as ``fastgemm tune`` does on a GPU: one product, here of 1024 x 1024
matrices."""


@dataclass(frozen=True)
class Known:
    """A device in words: what was measured of it, how ``level=None`` chooses on it, and what to do next."""

    device: str
    measured: str
    choice: str
    next: str


# By the state of a GPU (docs/install.md has the three).
BY_KNOWLEDGE = {
    "measured": (
        "measured: constants and library measured on an H200, scaled to this GPU",
        "the kernel, or the library, that is predicted to take least time",
        "fastgemm tune measures this very GPU, in two minutes",
    ),
    "predicted": (
        "predicted: nothing was measured of this GPU",
        "own kernels where they beat what the library cannot; else torch",
        "fastgemm tune measures this GPU, in two minutes",
    ),
    "tuned": (
        "tuned: {tuned}",
        "the kernel, or the library, that is predicted to take least time, by what was measured here",
        "fastgemm ladder times every level here beside torch",
    ),
}


def _fitted() -> dict[str, predictions.Fitted]:
    try:
        return {fitted.gpu: fitted for fitted in predictions.read()}
    except (OSError, ValueError):
        return {}  # the import has warned


def gpus() -> list[dict[str, Any]]:
    """Name, properties and state of each GPU that torch sees; without CUDA kernels its name alone."""
    found: list[dict[str, Any]] = []
    fitted = _fitted()
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
            if name in fitted:
                entry["tuned"] = {"when": fitted[name].when, "points": fitted[name].points}
            found.append(entry)
    return found


def gpu_in_words(gpu: dict[str, Any]) -> Known:
    """The text for an entry of :func:`gpus`."""
    if gpu["knowledge"] is None:
        nothing = "no kernel of this build runs on it"
        return Known(gpu["name"], nothing, "raises on this GPU", "what stands in the way is listed above")
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


def processor_measured() -> bool:
    """Whether the static tables have this type of processor."""
    key = ("gemm", "cpu", "float32", "float32", "ieee", False, False, False, 1, 1, 512, 512, 512)
    return bool(_introspect.ranked(key, _introspect.build_info()["cpu_model"]))


def processor_in_words(name: str, threads: int, measured: bool, beside_gpu: bool) -> Known:
    """``measured``: see :func:`processor_measured`; ``beside_gpu``: commands take that by default."""
    device = " --device cpu" if beside_gpu else ""
    return Known(
        f"{name}, {threads} thread{'s' if threads > 1 else ''}",
        "this type of processor" if measured else "nothing of this type of processor",
        "the fastest kernel of that measured problem which is nearest"
        if measured
        else "products: the kernel that is predicted to take least time, torch's where no other is predicted to "
        "be 5 % faster; transposes and sums: the highest level",
        f"fastgemm ladder{device} times every level beside torch; {ON_A_CPU}{device} measures a product of these "
        "sizes here, and keeps its fastest kernel",
    )
