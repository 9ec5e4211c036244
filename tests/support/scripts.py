"""Imports the scripts of tools/ and benchmarks/fits/ as modules."""

import importlib.util
import sys

from pages import ROOT


def tool(name: str):
    folders = (ROOT / "tools", ROOT / "benchmarks" / "fits")
    (path,) = (path for folder in folders if (path := folder / f"{name}.py").exists())
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module
