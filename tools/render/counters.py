"""The simulator's counters beside those of a GPU, from tools/ncu_check.py."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counter_check import Record, differences

from .spec import Column, Table, versions

REQUESTS = ("load requests", "store requests", "bulk copies")
SECTORS = ("load sectors", "store sectors")
WAVEFRONTS = ("shared load wavefronts", "shared store wavefronts")


def equal(record: Record, counters: Sequence[str]) -> bool:
    return not differences(record).keys() & set(counters)


def _sums(head: str, counters: Sequence[str]) -> Column:
    """A column with both sums, or with one if the counters are equal in every launch."""

    def value(records: list[Record]) -> str:
        counts = [record["counts"].get(name, (0, 0)) for record in records for name in counters]
        ours, theirs = map(sum, zip(*counts, strict=True))
        same = all(equal(record, counters) for record in records)
        return "-" if ours == theirs == 0 else f"{ours:,}" if same else f"**{ours:,} / {theirs:,}**"

    return Column(head, value)


def _reasons(records: list[Record]) -> str:
    whys = dict.fromkeys(why for record in records for why in differences(record).values())
    return "; ".join(why or "not explained" for why in whys)


def kernel_of(record: Record) -> str:
    """The kernel's name without template arguments."""
    return re.sub(r"_kernel$", "", re.match(r"\w+", record["kernel"])[0])


TABLE = Table(
    [
        Column("op", lambda records: records[0]["op"]),
        Column("row", lambda records: records[0]["row"], "`{}`"),
        Column("kernel", lambda records: kernel_of(records[0]), "`{}`"),
        Column("why they differ", _reasons),
        Column("launches", len),
        _sums("requests", REQUESTS),
        _sums("sectors", SECTORS),
        _sums("shared wavefronts", WAVEFRONTS),
    ],
    words=4,
)


def _count(records: list[Record], counters: Sequence[str]) -> str:
    rows, bad = (
        {(record["op"], record["row"]) for record in some}
        for some in (records, [record for record in records if not equal(record, counters)])
    )
    good = sum(equal(record, counters) for record in records)
    whole = f"in all launches of {len(rows - bad)} of the {len(rows)} kernels"
    return f"{good} of {len(records)} launches, {whole}"


def section(data: dict[str, Any]) -> str:
    """One line for each row of the kernel table and each kernel that it launches, over all problems."""
    env, records = data["environment"], data["launches"]
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault((record["op"], record["row"], kernel_of(record)), []).append(record)
    return (
        f"Requests and sectors in global memory are equal in {_count(records, REQUESTS + SECTORS)}; shared "
        f"wavefronts in {_count(records, WAVEFRONTS)}. Where they differ: simulator / hardware.\n\n"
        f"{TABLE.text(groups.values())}\n\nCounted on {versions(env)}, Nsight Compute {env['ncu']}, by "
        "`tools/ncu_check.py`."
    )


def sections(results: Path) -> str:
    files = sorted(results.glob("*/counters.json"))
    return "\n\n".join(section(json.loads(path.read_text(encoding="utf-8"))) for path in files)
