"""Models as they are used: in plain torch, under ``fastgemm.patch`` and converted, side by side.

    pip install 'transformers>=4.50'
    python examples/models.py                                    # a GPU where there is one; 4 minutes on an H200
    python examples/models.py --device cpu --dtype float32 --model bert --model gpt2
    python examples/models.py --model llama-decode --invariant   # rows do not depend on the batch; checked, too
    python examples/models.py --tune                             # products are measured where they first run
    python examples/models.py --json models.json

Runs Llama, BERT, GPT-2 and ViT of the transformers library, which are made from configs with random weights:
nothing is downloaded. The prefill of Llama runs under torch.compile, too. Also runs torch.cdist, torch.cov and
Muon's Newton-Schulz iteration, which multiply without a layer. Outputs and, in training, gradients are compared
with torch's at the sizes that are timed, and may differ by what rounding explains (rounding.py). Then all ways are
timed in turn.

Exit codes: 0 fine, 1 a difference is larger than rounding explains or a model cannot run, 2 usage, or the
transformers library is missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import fastgemm
import repository  # noqa: F401
import torch
from comparing import DTYPES, common_options, hand_over, row
from fastgemm.bench.checking import raised
from fastgemm.bench.environment import describe, using_threads
from fastgemm.bench.formatting import rate, ratio
from fastgemm.bench.problems import dtype_name
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.session import Session
from fastgemm.bench.timing import interleave
from fastgemm.cli import options
from fastgemm.cli.console import console, failures_as_exit_code, progress_bar
from networks import (
    CHAINS,
    CONVERT,
    PATCH,
    SCALES,
    STEPS,
    TORCH,
    Family,
    Forward,
    Products,
    Scale,
    chain_of,
    in_float64,
    transformers,
    work_of,
)
from rich.table import Table
from rounding import Difference, Values, by_kind, differences, outcome, spread
from studies.timers import WallTimer
from torch import Tensor, nn

MODEL, COMPILED, CHAIN = "eager", "compiled", "chain"  # groups of the rows
TO_COMPILE = "llama-prefill"
WIDE = 32  # sequences; under --invariant, one of them alone must have the same bits as among all


@dataclass(frozen=True)
class Case:
    """A line of a table in one type: the same work in several ways.

    Attributes:
        contenders: makes what is called in each way, torch's first.
        reference: computes the values in float64, and how far rounding errors move each tensor.
        facts: for the summary.
        wide: the same work for WIDE sequences.
    """

    name: str
    group: str
    label: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    work: Forward
    contenders: Callable[[], dict[str, Any]]
    reference: Callable[[], tuple[Values, dict[str, float]]]
    facts: Callable[[], dict[str, Any]] = dict
    wide: Callable[[], Forward] | None = None


@dataclass
class Bench:
    """Checks and times cases, and adds their rows to a report."""

    report: Report
    session: Session
    level: int | None
    timing: dict[str, Any]
    invariant: bool = False
    tune: bool = False

    def patch(self) -> fastgemm.patch:
        return fastgemm.patch(level=self.level, invariant=self.invariant, tune=self.tune)

    def products(self, way: str) -> Products:
        return self.patch() if way == PATCH else contextlib.nullcontext()

    def compare(self, case: Case, contenders: dict[str, Any]) -> dict[str, list[Difference]]:
        exact, half_bounds = case.reference()
        torchs = case.work.values(contenders[TORCH])
        found = {}
        for way in list(contenders)[1:]:
            with self.products(way):
                own = case.work.values(contenders[way])
            found[way] = by_kind(differences(torchs, own, exact, half_bounds))
        return found

    def routed(self, case: Case, contenders: dict[str, Any]) -> dict[str, Any]:
        """The counts of a patch in one step."""
        patch = self.patch()
        case.work.step(contenders[PATCH], patch)()
        return {"total": patch.routed.total, **patch.routed.as_dict()}

    def kept_bits(self, case: Case) -> dict[str, int]:
        """How many products of layers there are, and in how many of them a sequence has the same bits alone as
        among WIDE."""
        found = {"products": 0, "same_bits": 0}

        def compare(layer: nn.Linear, given: tuple[Tensor], output: Tensor) -> None:
            alone = nn.functional.linear(given[0][:1], layer.weight, layer.bias)
            found["products"] += 1
            found["same_bits"] += torch.equal(alone, output[:1])

        network = case.contenders()[TORCH]
        step = case.wide().step(network, self.patch())
        layers = [m for m in network.modules() if isinstance(m, nn.Linear)]
        hooks = [layer.register_forward_hook(compare) for layer in layers]
        try:
            step()
        finally:
            for hook in hooks:
                hook.remove()
        if found["same_bits"] < found["products"]:
            raise RuntimeError(
                f"rows depend on the batch: {found['same_bits']} of {found['products']} do not"
            )
        return found

    def row(self, case: Case, way: str, **more: Any) -> Measurement:
        return row(
            self.session,
            case.dtype,
            op=case.name,
            shape=case.shape,
            label=case.label,
            kernel=way,
            level=self.level,
            role="baseline" if way == TORCH else "rung",
            group=case.group,
            **more,
        )

    def measure(self, case: Case) -> None:
        """After an error of one model, the others still run: time on a GPU is expensive, and libraries
        change."""
        try:
            self._measure(case)
        except Exception as error:
            self.report.results.append(self.row(case, TORCH, right=False, message=raised(error)))

    def _measure(self, case: Case) -> None:
        contenders = case.contenders()
        found = self.compare(case, contenders)
        routed = self.routed(case, contenders)
        facts = case.facts()
        if self.invariant and case.wide and case.group == MODEL:
            facts |= self.kept_bits(case)
        steps = {way: case.work.step(network, self.products(way)) for way, network in contenders.items()}
        samples = interleave(steps, timer=self.session.timer, **self.timing)
        rows = [self.row(case, TORCH, seconds=samples.seconds(TORCH))]
        for way, parts in found.items():
            times = {"seconds": samples.seconds(way), "speedup": samples.speedup(way, over=TORCH)}
            rows.append(self.row(case, way, **times, **outcome(parts)))
        self.report.results += rows
        of = {"name": case.name, "group": case.group, "label": case.label, "dtype": rows[0].dtype}
        far = {way: [asdict(d) for d in parts] for way, parts in found.items()}
        self.report.summary["runs"].append({**of, "routed": routed, "differences": far, **facts})


def step_case(name: str, family: Family, scale: Scale) -> Case:
    batch, length = scale.steps[name]
    s = family.sizes
    words = STEPS[name].format(batch, length, length)
    work = work_of(name, s, batch, length, family.device).to(family.dtype)
    return Case(
        name=name,
        group=MODEL,
        label=f"{words} ({s.layers} layers of {s.width})",
        shape=(s.layers, s.width, s.heads, s.inner, s.vocabulary, batch, length),
        dtype=family.dtype,
        work=work,
        contenders=family.contenders,
        reference=cache(
            lambda: spread(lambda: in_float64(work, family.exact), family.dtype, "ieee", family.device)
        ),
        facts=family.layers,
        # Not for training: what the backward pass of WIDE sequences needs does not fit into memory, and the
        # product that sums over sequences has no row that belongs to one sequence.
        wide=None
        if name == "llama-training"
        else lambda: work_of(name, s, WIDE, length, family.device).to(family.dtype),
    )


def chain_case(name: str, scale: Scale, device: str) -> Case:
    sizes = scale.chains[name]
    work, call, exact = chain_of(name, sizes, device)
    wide = work.to(torch.float64)
    return Case(
        name=name,
        group=CHAIN,
        label=CHAINS[name].format(*sizes),
        shape=sizes,
        dtype=torch.float32,
        work=work,
        contenders=lambda: {TORCH: call, PATCH: call},
        reference=lambda: spread(lambda: wide.values(exact), torch.float32, "ieee", device),
    )


@dataclass(frozen=True)
class Plan:
    """What to run."""

    names: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    scale: Scale
    compiled: bool
    invariant: bool
    tune: bool = False

    @property
    def steps(self) -> list[str]:
        return [name for name in STEPS if name in self.names]

    def cases(self, device: str, level: int | None) -> Iterator[Case]:
        """One case at a time, all cases of one network before those of the next, so that only the weights of one
        network are in memory."""
        for dtype in self.dtypes:
            for kind, steps in groupby(self.steps, key=lambda name: name.partition("-")[0]):
                family = Family(kind, self.scale.networks[kind], dtype, device, level, self.invariant)
                for name in steps:
                    case = step_case(name, family, self.scale)
                    yield case
                    if self.compiled and name == TO_COMPILE:
                        yield replace(case, group=COMPILED, contenders=family.compiled)
        if torch.float32 in self.dtypes:
            yield from (chain_case(name, self.scale, device) for name in CHAINS if name in self.names)

    @property
    def count(self) -> int:
        of_type = len(self.steps) + (self.compiled and TO_COMPILE in self.names)
        chains = len(set(CHAINS).intersection(self.names)) if torch.float32 in self.dtypes else 0
        return of_type * len(self.dtypes) + chains


def run(plan: Plan, session: Session, level: int | None, timing: dict[str, Any]) -> Report:
    report = Report("models", describe(session.device), session.describe())
    report.summary["runs"] = []
    if plan.steps:
        report.environment["transformers"] = transformers().__version__
    report.summary |= {"invariant": plan.invariant, "tune": plan.tune}
    bench = Bench(report, session, level, timing, plan.invariant, plan.tune)
    with progress_bar() as progress:
        for done, case in enumerate(plan.cases(session.device, level)):
            progress(f"{case.name}, {dtype_name(case.dtype)}, {case.group}", done / plan.count)
            bench.measure(case)
    return report


def show(report: Report) -> None:
    out = console()
    table = Table(box=None)
    for name in ("call", "dtype", "", "torch ms", "patch", "convert", "difference of allowed"):
        table.add_column(name, no_wrap=name == "call")
    lines: dict[tuple[str, str, str], dict[str, Measurement]] = {}
    for each in report.results:
        lines.setdefault((each.label, each.dtype, each.group), {})[each.kernel] = each
    for names, ways in lines.items():
        torchs, own = ways[TORCH].seconds, [ways.get(way) for way in (PATCH, CONVERT)]
        cells = [rate(torchs and torchs.median * 1e3)]
        cells += [ratio(each.speedup.median) if each else "-" for each in own]
        table.add_row(*names, *cells, ", ".join(f"{each.worst_error:.2f}" for each in own if each))
    out.print(table)
    for found in report.summary["runs"]:
        routed, of = found["routed"], f"{found['label']}, {found['dtype']}, {found['group']}"
        kernels = ", ".join(f"{name} {n}" for name, n in routed["kernels"].items())
        out.print(f"{of}: routed {kernels or 'nothing'}", style="dim", soft_wrap=True)
        if "same_bits" in found:
            of_all = f"{found['same_bits']} of {found['products']} products"
            out.print(
                f"{of}: {of_all} of one sequence have the bits that it has among {WIDE}",
                style="dim",
                soft_wrap=True,
            )


@click.command()
@click.option(
    "--model",
    "names",
    multiple=True,
    type=click.Choice([*STEPS, *CHAINS]),
    help="What to run; may be given again. Default: everything.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(list(DTYPES)),
    default=["float32", "bfloat16"],
    show_default=True,
)
@click.option("--size", type=click.Choice(list(SCALES)), help="Default: that of the device.")
@click.option(
    "--compiled/--no-compiled", default=True, show_default=True, help=f"{TO_COMPILE} compiled, too."
)
@click.option(
    "--invariant",
    is_flag=True,
    help="Products whose rows depend on no other row (docs/invariant.md); checked.",
)
@click.option("--tune", is_flag=True, help="Measure products where they first run, under the patch.")
@click.option("--rounds", type=options.Count(1000), help="Samples of each way; default: as --budget allows.")
@common_options
def main(
    names: tuple[str, ...],
    dtypes: tuple[str, ...],
    size: str | None,
    compiled: bool,
    invariant: bool,
    tune: bool,
    level: int | None,
    rounds: int | None,
    device: str | None,
    threads: int | None,
    budget: float | None,
    json: Path | None,
    csv: Path | None,
) -> None:
    """Time models of the transformers library in torch, under fastgemm.patch and converted."""
    device = options.chosen_device(device)
    types = tuple(dict.fromkeys(DTYPES[name] for name in dtypes))
    plan = Plan(names or (*STEPS, *CHAINS), types, SCALES[size or device], compiled, invariant, tune)
    timing = {"budget": budget or (1.0 if device == "cuda" else 0.5), "rounds": rounds}
    timer = WallTimer() if device == "cuda" else None
    with failures_as_exit_code(), using_threads(threads), Session(device, timer) as session:
        report = run(plan, session, level, timing)
    hand_over(report, show, "wrong, or not run", json=json, csv=csv)


if __name__ == "__main__":
    main()
