"""What is known of the devices here: how choices are made on each of them, in words."""

from __future__ import annotations

from typing import Any

import torch

from .. import _introspect, _predictions

GIGA, MIB = 1e9, 1 << 20
BY_KNOWLEDGE = {
    "measured": "measured: constants and library measured on an H200, scaled to this GPU; "
    "fastgemm tune measures it",
    "predicted": "predicted: own kernels where they beat what the library cannot; else torch; "
    "fastgemm tune measures it",
}


def _fitted() -> dict[str, _predictions.Fitted]:
    try:
        return {fitted.gpu: fitted for fitted in _predictions.read()}
    except (OSError, ValueError):
        return {}  # the import has warned


def gpus() -> list[dict[str, Any]]:
    """Name, properties and state of each GPU that torch sees; without CUDA kernels its name alone."""
    found, fitted = [], _fitted()
    for i in range(torch.cuda.device_count()):
        with torch.cuda.device(i):
            properties = _introspect.gpu_properties()
            if not properties["capability"]:
                found.append({"name": torch.cuda.get_device_name(i), "knowledge": None})
                continue
            name = _introspect.gpu()
            entry = {"name": name, "properties": properties, "knowledge": _introspect.knowledge()}
            if name in fitted:
                entry["tuned"] = {"when": fitted[name].when, "points": fitted[name].points}
            found.append(entry)
    return found


def in_words(gpu: dict[str, Any]) -> list[str]:
    """What predictions see of a GPU, and how kernels are chosen on it."""
    if gpu["knowledge"] is None:
        return [gpu["name"], "no kernel of this build runs on it"]
    p = gpu["properties"]
    path = "wgmma" if p["wgmma"] else "portable path (mma.sync)"
    sees = (
        f"{gpu['name']}: compute capability {p['capability'] // 10}.{p['capability'] % 10}, "
        f"{p['clock'] / GIGA:.2f} GHz, {p['l2_bytes'] / MIB:.0f} MiB of L2, {p['bandwidth'] / GIGA:.0f} GB/s, "
        f"{path}"
    )
    if gpu["knowledge"] != "tuned":
        return [sees, BY_KNOWLEDGE[gpu["knowledge"]]]
    tuned = gpu.get("tuned")
    return [
        sees,
        f"tuned: {tuned['when']}, {tuned['points']} problems" if tuned else "tuned: in this process",
    ]


def processor_measured() -> bool:
    """Whether the static tables have this type of processor."""
    key = ("gemm", "cpu", "float32", "float32", "ieee", False, False, False, 1, 1, 512, 512, 512)
    return bool(_introspect.ranked(key, _introspect.build_info()["cpu_model"]))


def processor_in_words(measured: bool) -> str:
    if measured:
        return "measured: kernels by the table of this type"
    return "not measured: level=None goes by predictions, and transposes by the highest level"
