"""Runs code when a slow module of torch is imported by other code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from typing import Any


def call_after_import(module: str, function: Callable[[], None]) -> None:
    """Calls ``function`` now if ``module`` is imported, otherwise after its import."""
    if module in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, _CallAfterImport(module, function))


class _CallAfterImport:
    """A finder that waits for one import, calls a function at its end, and then removes itself."""

    def __init__(self, module: str, function: Callable[[], None]) -> None:
        self.module = module
        self.function = function

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name != self.module:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_call(module: Any) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                self.function()

            spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]  # of this one loader
        return spec
