"""The environment of a measurement, as far as the package cannot know it: the commit and the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from fastgemm.bench import environment

from .telemetry import driver_version


def commit() -> str | None:
    """The commit of this checkout, with ``+`` after it if files differ; None outside a checkout.

    FASTGEMM_COMMIT names the commit if the files were copied without the git history.
    """
    if os.environ.get("FASTGEMM_COMMIT"):
        return os.environ["FASTGEMM_COMMIT"]
    here = Path(__file__)

    def git(*arguments: str) -> str | None:
        done = subprocess.run(
            ["git", *arguments], cwd=here.parent, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    if shutil.which("git") is None or git("ls-files", "--error-unmatch", here.name) is None:
        return None
    head = git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "") if head else None


def beyond_package(device: str) -> dict[str, Any]:
    return {"commit": commit(), **({"driver": driver_version()} if device == "cuda" else {})}


def describe(device: str = "cpu") -> dict[str, Any]:
    """The device, versions and date that the package reports, with the commit and the driver."""
    return {**environment.describe(device), **beyond_package(device)}


VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}


def folder_of(environment: dict[str, Any]) -> str:
    """The name of the results' folder: ``h100`` for an NVIDIA H100 80GB HBM3; a CPU's vendor, family and model."""
    if environment["device_type"] == "cpu":
        vendor, *numbers = environment["cpu_model"].split("-")[:3]
        return "-".join([VENDORS.get(vendor, vendor.lower()), *numbers])
    words = environment["device"].removeprefix("NVIDIA ").lower().split()
    return words[0] if any(map(str.isdigit, words[0])) else "-".join(words)
