"""Tables of reports in Markdown, for README and docs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastgemm.bench import turns
from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.records import Measurement, Report, select
from fastgemm.table import KernelInfo


def table(header: list[str], rows: Iterable[list[str]], numbers_from: int = 1) -> str:
    """A Markdown table; columns from ``numbers_from`` on are set flush right."""
    marks = ["---" if i < numbers_from else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, marks, *rows])


def place(report: Report) -> str:
    """Where, when and with what a report was made, in a sentence."""
    env = report.environment
    commit = f", commit {env['commit']}" if env["commit"] else ""
    commands = {name: f"bench --{name}" for name in ("host-time", "overhead", "accuracy")}
    command = commands.get(report.command, report.command)
    command += "".join(f" --preset {name}" for name in report.method.get("presets", ()))
    examples = ("transformer", "models")
    program = f"python examples/{command}.py" if command in examples else f"fastgemm {command}"
    program += " --invariant" if report.summary.get("invariant") else ""
    library = f", transformers {env['transformers']}" if env.get("transformers") else ""
    by = f"torch {env['torch']}{library}, {env['date'][:10]}{commit}, by `{program}`."
    if env["device_type"] == "cuda":
        versions = f"driver {env['driver']}, CUDA {env['cuda']}, cuBLAS {env['cublas']}"
        return f"Measured on {env['device']} ({versions}), {by}"
    threads = sorted({row.threads for row in report.results})
    counts = " and ".join(map(str, threads)) + (" thread" if threads == [1] else " threads")
    return f"Measured on {env['device']} ({env['cpu_model']}), {counts}, {by}"


def source(data: dict[str, Any]) -> str:
    """The same of what a program wrote that is no report."""
    env = data["environment"]
    return (
        f"Measured on {env['device']}, torch {env['torch']}, {env['date'][:10]}, commit {env['commit']}, "
        f"by `{data['command']}`."
    )


def overhead_section(report: Report) -> str:
    """Host time of a small product in each way of calling it; groups are numbers of products in a call."""
    repeated = turns.without(report.results)
    groups = list(dict.fromkeys(row.group for row in repeated))
    by = {(row.kernel, row.group): row for row in repeated}
    lines = []
    for name in dict.fromkeys(row.kernel for row in repeated):
        cells = []
        for group in groups:
            row = by[name, group]
            cells += [f"{row.seconds.median * 1e9:.0f}", ratio(row.speedup.median if row.speedup else 1.0)]
        lines.append([f"`{name}`", *cells])
    first = report.results[0]
    header = [f"{first.dtype} {first.label}"]
    for group in groups:
        header += [f"ns a product, {group}", f"times as fast as `{first.baseline}`"]
    return "\n\n".join([table(header, lines), *turns_table(report), place(report)])


def turns_table(report: Report) -> list[str]:
    """Host time of layers in turn and of each alone; nothing where a report holds none."""
    found = turns.lines(report.results)
    header = [
        "layers in turn",
        "call",
        "ns a product, in turn",
        "times as fast as `torch.matmul`",
        "ns, each alone",
    ]
    header.append("in turn, of the mean alone")
    cells = [
        [
            *(f"{line.dtype}, {line.rows}", f"`{line.way}`", f"{line.in_turn:.0f}", ratio(line.speedup)),
            *(f"{min(line.alone):.0f} to {max(line.alone):.0f}", ratio(line.dearer)),
        ]
        for line in found
    ]
    if not found:
        return []
    sizes = dict.fromkeys(row.shape[1:] for row in select(report.results, choice=turns.ALONE))
    layers = ", ".join(f"{n}x{k}" for n, k in sizes)
    return [f"Layers with weights of {layers}, in turn and each alone:", table(header, cells, numbers_from=2)]


def ladder_table(rows: list[Measurement]) -> str:
    first = rows[0]
    limit = next((row.limit_name for row in rows if row.limit_name), "limit")
    header = [
        "level",
        "kernel",
        first.unit,
        f"of {limit}",
        f"of `{first.baseline or 'torch'}`",
        "over the level below",
    ]
    lines = [
        [
            str(row.level),
            f"`{row.kernel}`",
            rate(row.rate),
            percent(row.share_of_limit),
            ratio(row.speedup.median if row.speedup else None),
            f"{row.gain:.2f}x" if row.gain else "-",
        ]
        for row in select(rows, role="rung")
    ]
    for row in select(rows, role="baseline") + select(rows, role="library"):
        faster = "1.00" if row.role == "baseline" else ratio(row.speedup.median if row.speedup else None)
        lines.append(["", f"`{row.kernel}`", rate(row.rate), percent(row.share_of_limit), faster, ""])
    title = f"**{first.op}, {first.type_name} {first.label}**\n\n"
    return title + table(header, lines, numbers_from=2)


def ladder_section(report: Report) -> str:
    ops = dict.fromkeys(row.op for row in report.results)
    tables = [ladder_table(select(report.results, op=op)) for op in ops]
    return "\n\n".join([*tables, place(report)])


def means_section(report: Report) -> str:
    """A row for each group of a ``bench`` report."""
    means = report.summary["geometric_means"]
    timed = [row for row in report.results if row.role not in ("baseline", "limit")]

    def kernels(group: str) -> str:
        return ", ".join(dict.fromkeys(f"`{row.kernel}`" for row in select(timed, group=group))) or "-"

    lines = [
        [name, ratio(mean["speedup"]), ratio(mean["least"]), kernels(name)] for name, mean in means.items()
    ]
    header = ["problems", "times as fast as torch, geometric mean", "least", "kernels"]
    return table(header, lines) + "\n\n" + place(report)


# Level 6 of GEMM on CUDA in the order in which it is read: the plain rungs, then what they are put to, then
# special shapes. What is not named here comes behind these, in the table's order.
READING = (
    *("wmma", "mma_sync", "dmma", "dmma_m8n8k4", "wgmma", "wgmma_ring", "wgmma_persistent"),
    *("wgmma_overlapped", "wgmma_specialized"),
    *("bf16x6", "bf16x6_fused", "bf16x3", "fp16x3", "int8x10", "int16x4", "crt"),
    *("skinny", "narrow", "split_k", "small_tile", "batched", "direct", "symmetric"),
)


def kernel_section(rows: list[KernelInfo]) -> str:
    """The kernel table, in the order in which it is read; it does not depend on the machine."""

    def idea(row: KernelInfo) -> str:
        return row.summary.rstrip(".").replace("[", r"\[")  # or [i][j] is a link to i

    def place_of(row: KernelInfo) -> tuple[int, int]:
        return row.level, READING.index(row.name) if row.level == 6 and row.name in READING else len(READING)

    tables = []
    for device, op in ((device, op) for device in ("cuda", "cpu") for op in ("gemm", "transpose", "add")):
        found = sorted((row for row in rows if (row.device, row.op) == (device, op)), key=place_of)
        lines = [[str(row.level), f"`{row.name}`", row.role, row.needs, idea(row)] for row in found]
        if lines:
            shown = table(["level", "kernel", "role", "needs", "idea"], lines, numbers_from=9)
            tables.append(f"**{op}, {device}**\n\n{shown}")
    return "\n\n".join(tables)
