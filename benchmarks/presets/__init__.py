"""The presets of benchmarks/run.py: a module for each idea, which says what is measured and what is checked."""

from __future__ import annotations

from importlib import import_module

from contests import Preset

# In this order: `host` compares torch's calls before and after the first patch of a process, and what the README
# shows comes before what takes a while.
MODULES = (
    "package complex symmetric invariant residues linear portable newton_schulz first_product examples grid"
)
PRESETS: dict[str, Preset] = {}
for module in MODULES.split():
    PRESETS |= import_module(f"presets.{module}").PRESETS
PRESETS["peers"] = PRESETS.pop("peers")  # others' compilers need all the time that is left
