"""Packages of the extras of pyproject.toml. A product needs only torch. Tables and pictures need more packages,
and say which ones to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

OF_CLI = ("click", "matplotlib", "rich")


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """A context for imports: if a package is missing, the ModuleNotFoundError names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OF_CLI:
            raise
        message = f"fastgemm: {what} needs {package}; pip install 'fastgemm[cli]'"
        raise ModuleNotFoundError(message, name=package) from error
