"""setuptools' build backend, with the torch of the environment that is being installed into.

pip builds in an isolated environment that hides the target's packages. fastgemm is built against torch's
headers, and fetching a second torch for that alone would cost gigabytes, so this backend looks for torch where
the result will be installed and adds that folder to the search path; only where there is none does it ask for
torch as a build requirement.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403


def _use_torch_of_target() -> bool:
    """Makes the target environment's torch importable; False when it has none."""
    target = Path(sysconfig.get_paths()["purelib"])
    for folder in (target, Path(sysconfig.get_paths()["platlib"])):
        if (folder / "torch" / "version.py").is_file():
            if str(folder) not in sys.path:
                sys.path.append(str(folder))
            return True
    return any((Path(p) / "torch" / "version.py").is_file() for p in sys.path if p)


def _with_torch(requirements: list[str]) -> list[str]:
    return requirements if _use_torch_of_target() else [*requirements, "torch>=2.11"]


def get_requires_for_build_wheel(config_settings=None):
    return _with_torch(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings=None):
    return _with_torch(build_meta.get_requires_for_build_editable(config_settings))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _use_torch_of_target()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _use_torch_of_target()
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
