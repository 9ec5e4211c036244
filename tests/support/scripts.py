"""The scripts of tools/, as modules."""

from __future__ import annotations

import importlib.util
import sys

from pages import ROOT


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
