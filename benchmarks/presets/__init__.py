"""The presets of benchmarks/run.py. Each module says what it measures and what it checks."""

from __future__ import annotations

from importlib import import_module

from contests import Preset

# The order matters: `host` compares torch's calls before and after the first patch of a process, so it goes first.
# Presets that README shows come before long ones.
MODULES = (
    "package complex symmetric invariant residues linear portable newton_schulz first_product examples "
    "grid packed grouped fp8"
)
PRESETS: dict[str, Preset] = {}
for module in MODULES.split():
    PRESETS |= import_module(f"presets.{module}").PRESETS
PRESETS["peers"] = PRESETS.pop("peers")  # the other projects' compilers need all of the remaining time
