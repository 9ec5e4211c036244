"""``fastgemm info``: the build, the devices of this machine, and the kernel table."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click
import torch
from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .. import _introspect, tuning
from .._choice import predictions
from .._compatibility import cuda_obstacles
from .._explain.rich_tables import ByWidth, stacked, whole
from ..bench.environment import usable_cores
from ..table import build_info, kernels
from . import bug_report as report
from . import known
from .console import console

WIDE = 100  # columns from which on the kernel table has all its columns
NARROW = 70  # columns from which on it is a table
ALL_DTYPES = {"gemm": 6, "transpose": 5, "add": 6}


def gather() -> dict[str, Any]:
    return {
        "build": build_info(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "cuda_devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "gpus": known.gpus(),
        "processor": known.processor(),
        "cuda_obstacles": cuda_obstacles(),
        "autotune_cache": str(tuning.cache_file()),
        "tuned_problems": _introspect.remembered_count(),
        "tuned": known.tuned(),
        "predictions": str(predictions.file()),
        "kernels": [asdict(row) for row in kernels()],
    }


def _facts(found: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None)
    for name, value in found["build"].items():
        table.add_row(name.replace("_", " "), str(value) or "-")
    table.add_row("cores, torch threads", f"{found['cores']}, {found['threads']}")
    table.add_row("GPUs that torch sees", ", ".join(found["cuda_devices"]) or "none")
    return whole(table)


def _devices(found: dict[str, Any]) -> Iterator[RenderableType]:
    """For each device: what was measured on it, how ``level=None`` chooses, and what to do next."""
    name, gpus = found["build"]["cpu"], found["gpus"]
    processor = known.processor_in_words(name, found["threads"], found["processor"], bool(gpus))
    for device in (processor, *map(known.gpu_in_words, gpus)):
        yield Text(f"\n{device.device}", style="bold")
        table = Table(show_header=False, box=None)
        for name, text in (
            ("measured", device.measured),
            ("level=None", device.choice),
            ("next", device.next),
        ):
            table.add_row(name, escape(text))
        yield whole(table)
    tuned = (
        f"tuned problems, which take precedence: {found['tuned_problems']}; fastgemm info --tuned lists them"
    )
    yield Text(f"\nautotune cache: {found['autotune_cache']} ({tuned})", overflow="fold")
    here = sum(row["unavailable"] is None for row in found["kernels"])
    yield Text(f"fastgemm info --kernels: all {len(found['kernels'])} kernels, of which {here} can run here")


def _kernel_table(rows: list[dict[str, Any]], reasons: list[str]) -> ByWidth:
    """If a kernel cannot run, ``here`` has the number of one of the ``reasons``. In a narrow terminal, op and
    device are above their kernels, and one column has types and needs; in a narrower one, there are no columns."""
    title: dict[str, Any] = {"title": "kernel table", "title_justify": "left", "title_style": "bold"}
    wide, narrow = Table(**title), Table(**title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("op", "device", "level", "kernel", "role", "dtypes", "needs", "here"):
        wide.add_column(name, no_wrap=name in ("kernel", "here"))
    for name in ("level", "kernel", "role", "here", "dtypes; needs"):
        narrow.add_column(name)
    section, narrowest = None, [Text("kernel table", style="bold")]
    for row in rows:
        if section != (row["op"], row["device"]):
            wide.add_section()
            narrow.add_section()
            narrow.add_row("", f"[bold]{row['op']} on {row['device']}[/]")
            narrowest.append(Text(f"\n{row['op']} on {row['device']}", style="bold"))
        section = row["op"], row["device"]
        here = "yes" if row["unavailable"] is None else f"no ({reasons.index(row['unavailable']) + 1})"
        dtypes = "all" if len(row["dtypes"]) == ALL_DTYPES[row["op"]] else ", ".join(row["dtypes"])
        level, name, role, needs = str(row["level"]), row["name"], row["role"], row["needs"]
        style = "dim" if row["unavailable"] else None
        wide.add_row(*section, level, name, role, dtypes, needs, here, style=style)
        narrow.add_row(level, name, role, here, f"{dtypes}; {needs}", style=style)
        told = f"{level} {name}, {role}, here: {here}; {dtypes}; {needs}"
        narrowest.append(Text(told, style=style or "", overflow="fold"))
    return ByWidth(whole(wide), ByWidth(whole(narrow), Group(*narrowest), NARROW), WIDE)


def _tuned_table(rows: list[dict[str, Any]]) -> RenderableType:
    """``gain``: the time of the kernel that would run without tuning, divided by the time of the tuned
    one."""
    if not rows:
        return Text(
            f"nothing in {tuning.cache_file()} of the devices here, with these versions", overflow="fold"
        )
    title, stack = str(tuning.cache_file()), []
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("device", "problem", "kernel", "us", "instead of", "gain"):
        table.add_column(name, justify="right" if name in ("us", "gain") else "left", overflow="fold")
    for row in rows:
        us, gain = ("" if row[name] is None else f"{row[name]:.4g}" for name in ("microseconds", "gain"))
        told = (row["device"], row["problem"], row["kernel"], us, row["predicted"] or "", gain)
        table.add_row(*map(escape, told))
        above = f"{row['device']}: {row['problem']}, {row['kernel']}"
        above += f" instead of {row['predicted']}" if row["predicted"] else ""
        stack.append((Text(above), [[Text(us), Text(gain)]]))
    narrow = Group(Text(title, style="bold", overflow="fold"), stacked(("us", "gain"), stack))
    return ByWidth(whole(table), narrow)


def _print_kernels(rows: list[dict[str, Any]]) -> None:
    out = console()
    reasons = list(dict.fromkeys(row["unavailable"] for row in rows if row["unavailable"]))
    out.print(_kernel_table(rows, reasons))
    for number, reason in enumerate(reasons, 1):
        out.print(f"({number}) {reason}", style="dim", markup=False)


@click.command(short_help="Show this build, the devices here, and what to do next.")
@click.option("--kernels", "all_kernels", is_flag=True, help="Show the kernel table instead.")
@click.option(
    "--tuned", is_flag=True, help="Show the products that were measured, and their kernels, instead."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the kernel table.")
@click.option("--bug-report", is_flag=True, help="Print what a report of a bug needs, as text to paste.")
def info(all_kernels: bool, tuned: bool, as_json: bool, bug_report: bool) -> None:
    """Show the build, and the reasons why CUDA cannot be used; then for each device what was measured on it, how
    level=None chooses a kernel, and what to do next.

    In the kernel table a kernel that cannot run here has the number of its reason.
    """
    if all_kernels + tuned + as_json + bug_report > 1:
        raise click.UsageError("--kernels, --tuned, --json and --bug-report exclude each other")
    if tuned:
        console().print(_tuned_table(known.tuned()))
        return
    found = gather()
    if bug_report:
        click.echo("\n".join(report.lines(found)))
        return
    if as_json:
        click.echo(json_module.dumps(found, indent=1))
        return
    if all_kernels:
        _print_kernels(found["kernels"])
        return
    out = console()
    out.print(_facts(found))
    if found["cuda_obstacles"]:
        out.print("Why CUDA cannot be used here:", style="bold")
    for obstacle in found["cuda_obstacles"]:
        out.print(f"- {obstacle}", markup=False)
    for part in _devices(found):
        out.print(part)
