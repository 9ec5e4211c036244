"""Measures the figures that the pages show for this device, checks the results, and writes a file for each
preset.

    python benchmarks/run.py                          # everything for this device, in less than ten minutes
    python benchmarks/run.py complex linear           # some presets, each for its usual time
    python benchmarks/run.py --device cpu --minutes 3
    python benchmarks/run.py peers --minutes 4        # named presets use all of these minutes
    python benchmarks/run.py weak_spots --out build/results --raw
    python benchmarks/run.py grid --type bf16 --budget 420 --limit 20  # grid, packed, grouped, fp8: only if named

Each preset gets its share of the minutes and writes its file at its end, so an interrupted run keeps the files of
finished presets. A preset is skipped if too little time is left; the last line names skipped presets.

Exit codes: 0 success, 1 a result is wrong or a preset could not be measured, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import click
import torch
from contests import Settings
from fastgemm.bench.records import PROBLEM, Measurement
from fastgemm.cli import options
from fastgemm.cli.console import progress_bar
from presets import PRESETS
from studies.environment import beyond_package, folder_of
from studies.tables import show

RESULTS = Path(__file__).resolve().parent / "results"
MINUTES = 9.0
LEAST_SHARE = 0.4  # a preset starts only if this share of its usual time is left


def line_of(rows: list[Measurement]) -> str:
    """The line that is printed for a problem and its contenders."""
    by_choice = rows[0].choice and len({row.choice for row in rows}) == len(rows)
    cells, wrong = [], ""
    for row in rows:
        name = row.choice if by_choice else row.kernel
        time = f"{row.seconds.median * 1e6:.1f} us" if row.seconds else row.more.get("errors", "")
        cells.append(f"{name} {f'{row.speedup.median:.3f}' if row.speedup else time}")
        wrong += "" if row.right else f"  WRONG: {name} {row.message}"
    what = " ".join(filter(None, (rows[0].type_name, rows[0].label, rows[0].group)))
    return f"  {what}: {', '.join(cells)}{wrong}"


def say(rows: list[Measurement]) -> None:
    problems: dict[tuple[object, ...], list[Measurement]] = {}
    for row in rows:
        problems.setdefault(tuple(getattr(row, name) for name in PROBLEM), []).append(row)
    click.echo("\n".join(map(line_of, problems.values())))


def measure(name: str, settings: Settings, raw: bool) -> str:
    """Measures a preset and writes its file. Returns the error, or an empty text, so that the other presets can
    still run."""
    torch.manual_seed(0)
    try:
        report = PRESETS[name].measure(settings)
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"
    report.method["preset"] = name
    report.environment |= beyond_package(report.environment["device_type"])
    path = settings.out / folder_of(report.environment) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.to_json(raw=raw), encoding="utf-8")
    show(report)
    click.echo(f"written: {path}")
    return "" if report.right else f"{name}: some results are wrong"


def measure_all(
    names: list[str], settings: Settings, minutes: float | None, raw: bool, longest: float = 1.0
) -> list[str]:
    """Measures one preset after the other and returns their errors. Each gets its share of the remaining minutes,
    and at most ``longest`` times its usual time."""
    usual = {name: PRESETS[name].seconds[settings.device] for name in names}
    start, took, wrong = time.perf_counter(), {}, []
    try:
        for i, name in enumerate(names):
            begin, seconds = time.perf_counter(), usual[name]
            if minutes:
                left = start + 60 * minutes - begin
                if left < LEAST_SHARE * seconds:
                    continue
                seconds *= min(longest, left / sum(usual[n] for n in names[i:]))
            click.echo(f"== {name}, {seconds:.0f} s")
            wrong.append(measure(name, replace(settings, seconds=seconds), raw))
            took[name] = time.perf_counter() - begin
            if settings.device == "cuda":
                torch.cuda.empty_cache()
    except KeyboardInterrupt:
        click.echo(f"interrupted in {name}")
        raise SystemExit(130) from None
    finally:
        click.echo("seconds: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in took.items()))
        click.echo(f"not measured: {' '.join(n for n in names if n not in took) or 'nothing'}")
    return [each for each in wrong if each]


def chosen(names: tuple[str, ...], device: str) -> list[str]:
    """The presets to run, in their order. Raises click.UsageError if one cannot run on the device."""
    why = {
        n: "" if device in each.seconds else f"is not for --device {device}" for n, each in PRESETS.items()
    }
    why = {n: reason or PRESETS[n].obstacle(device) for n, reason in why.items()}
    for name in names:
        if why[name]:
            raise click.UsageError(f"{name} {why[name]}")
    return [n for n, each in PRESETS.items() if (n in names if names else not (why[n] or each.by_name))]


@click.command()
@click.argument("names", metavar="[PRESET]...", nargs=-1, type=click.Choice(list(PRESETS)))
@options.device
@click.option("--minutes", type=options.Seconds(), help=f"Total time. Default without a preset: {MINUTES:g}.")
@click.option(
    "--budget", type=options.Seconds(), help="Seconds for each call (grid: in all), instead of --minutes."
)
@click.option(
    "--first", "--limit", type=options.Count(), help="Number of problems of each preset; models become tiny."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="For random60 and accuracy (default: a fresh one) and for grid (default: 1).",
)
@click.option(
    "--type", "types", type=click.Choice(["bf16", "fp16"]), multiple=True, help="For grid. Default: both."
)
@click.option("--all", "all_of_grid", is_flag=True, help="All problems of grid, not a selection.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the results.")
@click.option("--raw", is_flag=True, help="Write all digits, all samples and the GPU's sensor readings.")
def main(
    names: tuple[str, ...],
    device: str | None,
    minutes: float | None,
    budget: float | None,
    first: int | None,
    seed: int | None,
    types: tuple[str, ...],
    all_of_grid: bool,
    out: Path,
    raw: bool,
) -> None:
    """Measure the figures that the pages show for this device, and write a file for each preset. By default all
    presets run."""
    device = options.chosen_device(device)
    longest = math.inf if minutes and names else 1.0
    minutes = minutes or (None if names else MINUTES)
    with progress_bar() as progress:
        settings = Settings(device, 0.0, budget, first, seed, out, say, progress, types, all_of_grid)
        wrong = measure_all(chosen(names, device), settings, minutes, raw, longest)
    if wrong:
        raise click.ClickException("\n".join(wrong))


if __name__ == "__main__":
    main()
