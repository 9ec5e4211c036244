"""setuptools' build backend, with the torch of the environment into which fastgemm is installed.

pip builds in an isolated environment, without the packages of the target environment. fastgemm needs torch's
headers, and downloading a second torch for them would cost gigabytes. This backend therefore looks for torch
in the target environment and adds that folder to the search path. Only if there is no torch, it names torch
as a build requirement.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403


def _use_torch_of_target() -> bool:
    """Makes the target environment's torch importable. Returns False if it has none."""
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
