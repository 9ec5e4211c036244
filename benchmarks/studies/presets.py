"""The sets of problems that the pages show, by name."""

from __future__ import annotations

from collections.abc import Callable

from fastgemm.bench.presets import Case

from . import cpu_presets, gpu_presets, weak_spots

STEP = 2048  # the step of the preset sweep

OF_GPU: dict[str, Callable[[int], list[Case]]] = {
    "reference": lambda seed: gpu_presets.reference(),
    "tensor_cores": lambda seed: gpu_presets.tensor_cores(),
    "ladder_steps": lambda seed: gpu_presets.ladder_steps(),
    "weak_spots": lambda seed: weak_spots.cases(),
    "random60": lambda seed: gpu_presets.random_shapes(60, seed),
    "sizes": lambda seed: gpu_presets.sizes(),
    "sweep": lambda seed: gpu_presets.sweep(STEP),
}


def cases_of(preset: str, device: str, seed: int) -> list[Case]:
    """The cases of a preset. On a CPU only ``reference`` has cases."""
    return OF_GPU[preset](seed) if device == "cuda" else cpu_presets.reference()
