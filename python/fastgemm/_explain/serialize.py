"""A report as JSON and CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any, TextIO

from .. import _introspect
from .counts import Launch, Site
from .findings import Findings

COLUMNS = (
    "op", "level", "kernel", "shape", "dtype", "layout", "launch", "file", "line", "function", "space", "kind",
    "instruction", "buffer", "bytes", "requests", "lanes_per_request", "sectors", "sectors_per_request",
    "bytes_used", "bytes_moved", "wavefronts", "ideal_wavefronts", "conflict", "flops",
)  # fmt: skip


def site_as_dict(site: Site) -> dict[str, Any]:
    found = {**asdict(site), "file": site.file, "line": site.line, "function": site.function}
    found["frames"] = [{"function": f.function, "file": f.file, "line": f.line} for f in site.frames]
    for name in ("lanes_per_request", "sectors_per_request", "bytes_moved", "used", "conflict"):
        found[name] = getattr(site, name)
    return found


def _launch_as_dict(launch: Launch) -> dict[str, Any]:
    return {
        **asdict(launch),
        "sampled": launch.sampled,
        "sites": [site_as_dict(site) for site in launch.sites],
    }


def as_dict(report: Findings) -> dict[str, Any]:
    found = {"fastgemm": _introspect.build_info()["version"]}
    found |= {each.name: getattr(report, each.name) for each in fields(report)}
    found["launches"] = [_launch_as_dict(launch) for launch in report.launches]
    found["totals"] = _with_properties(report.totals)
    found["roofline"] = _with_properties(report.roofline) if report.roofline else None
    return found


def _with_properties(values: Any) -> dict[str, Any]:
    """The fields of a dataclass, and what its properties derive from them."""
    derived = [name for name, each in vars(type(values)).items() if isinstance(each, property)]
    return {**asdict(values), **{name: getattr(values, name) for name in derived}}


def write_csv(reports: Iterable[Findings], file: TextIO) -> None:
    """A row for each site."""
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for report in reports:
        shape = "x".join(map(str, report.shape))
        common = {name: getattr(report, name) for name in ("op", "level", "kernel", "dtype", "layout")}
        for launch in report.launches:
            for site in launch.sites:
                row = {**common, "shape": shape, "launch": launch.kernel, **site_as_dict(site)}
                writer.writerow({name: row[name] for name in COLUMNS})
