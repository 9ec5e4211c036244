"""Writes the tables and pictures of README.md and docs/*.md from benchmarks/results/.

    python tools/render_results.py           rewrite what lies between the markers, and docs/img/
    python tools/render_results.py --check   write nothing; fail if anything would change

A marked block is replaced whole:

    <!-- ladder:begin -->     picture and tables of the rungs, from results/**/ladder.json
    <!-- ladder:end -->       (`fastgemm ladder --json`), those of GPUs first
    <!-- ladder_picture:begin --> the picture alone, of GPUs
    <!-- reference:begin -->  geometric means against torch on CPUs, from results/**/reference.json
                              (`fastgemm bench --preset reference --json`)
    <!-- gpu_NAME:begin -->   reference, random60, host, sizes or sweep of GPUs, from results/**/NAME.json
                              (as tools/gpu_check.sh bench writes them); rungs: the first table of reference
                              tensor_rungs, tensor_cores, tensor_means: from results/**/tensor_cores.json;
                              weak_spots, weak_spots_means, weak_spots_sustained: from
                              results/**/weak_spots.json; peers: from results/**/peers.json
                              scale, scale_cuts, scale_planned: from results/**/tensor_parallel.json
                              (examples/tensor_parallel.py --json)
    <!-- gains:begin -->      five rows of what a call without a level gains, from weak_spots, transformer,
                              reference and tensor_cores; headline and headline_zh: the first of them in a
                              sentence; headline_picture: their picture
    <!-- accuracy_NAME:begin -->  from results/**/accuracy.json of GPUs (`fastgemm bench --accuracy --json`): the
                              tables summary, ratios, sizes, exceptions, special and integers, and the
                              pictures normwise, componentwise and ratio; cpu_accuracy_NAME: tables of CPUs
    <!-- models:begin -->    from results/**/models.json (`python examples/models.py --json`)
    <!-- invariant_models:begin -->  models whose rows do not depend on the batch, from
                              results/**/invariant_models.json (`examples/models.py --invariant --json`)
    <!-- models_best:begin --> the same in a sentence
    <!-- transformer:begin -->  from results/**/transformer.json (`python examples/transformer.py --json`)
    <!-- transformer_wide:begin -->  from results/**/transformer_wide.json (the same with `--size cuda-wide`)
    <!-- overhead:begin -->   host time of a small product, compiled and not, and of layers in turn, from
                              results/**/overhead.json (`fastgemm bench --overhead --json`)
    <!-- kernels:begin -->    the kernel table
    <!-- explain:begin -->    `fastgemm explain` of two levels of the transpose, and the picture of their banks,
                              counted by the simulator at this moment
    <!-- pitfalls_gemm:begin -->  counters of the rows that are pitfalls beside those of their cure, likewise; and
    <!-- pitfalls_add:begin -->   of add
    <!-- support_NAME:begin -->  generations, kernels, choices or residues: what runs on which GPU, from the kernel
                              table and the predictions
    <!-- choosing_NAME:begin --> terms, predictions or quality: a worked example, and results/h200/kernels*.json
                              beside what is chosen; cpu and transposes: the same from
                              results/cpu/kernels*.json and transposes*.json (`fastgemm bench
                              --op transpose --json`)
    <!-- portable:begin -->   the path of every GPU beside Hopper's, from results/**/portable.json
    <!-- complex_products:begin -->  complex products beside torch's, from results/**/complex_products.json
                                 (tools/complex_products.py)
    <!-- symmetric_products:begin -->  symmetric results beside torch's, from results/**/symmetric_products.json
                                 (tools/symmetric_products.py)
    <!-- newton_schulz:begin -->  from results/**/newton_schulz.json (examples/newton_schulz.py --json)
    <!-- invariant_products:begin -->  rows that do not depend on each other beside torch's, from
                                 results/**/invariant_products.json (tools/invariant_products.py)
    <!-- fused_linear:begin -->  layers with an epilogue beside torch's, from results/**/fused_linear.json
                                 (tools/fused_linear.py)
    <!-- residues_NAME:begin -->  times, errors, float32, float32_errors or integers: products by residues, from
                              results/**/residue_products.json (tools/residue_products.py)
    <!-- narrow_integers:begin -->  those of narrower integers beside int8's, from the same
    <!-- first_product:begin -->  what importing and first calls cost, from results/**/first_product.json
                              (tools/first_product.py)
    <!-- counters:begin -->   the simulator's counters against a GPU's, from results/**/ncu_check.json
                              (tools/ncu_check.py)

A block whose file is not there is left empty.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import counter_check
import fastgemm
from fastgemm._explain import plots as access_plots
from fastgemm.bench import accuracy, plots
from fastgemm.bench.accuracy import figures as accuracy_figures
from fastgemm.bench.records import Report, read_report
from render import accuracy as accuracy_tables
from render import (
    choosing,
    complex_products,
    first_product,
    fused_linear,
    gpu,
    headline,
    invariant_products,
    markdown,
    models,
    newton_schulz,
    peers,
    portable,
    residue_products,
    scale,
    support,
    symmetric_products,
    tensor_cores,
    transformer,
    weak_spots,
)
from render import explain as explained

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- (\w+):begin -->\n)(.*?)(<!-- \2:end -->)", re.DOTALL)
MARKER = re.compile(r"<!-- (\w+):(?:begin|end) -->")


# Block gpu_NAME: the file it is made from, and how.
GPU_SECTIONS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "rungs": ("reference", gpu.rungs_section),
    "reference": ("reference", gpu.reference_section),
    "random60": ("random60", gpu.random_section),
    "host": ("host", gpu.host_section),
    "sizes": ("sizes", gpu.sizes_section),
    "sweep": ("sweep", gpu.sweep_section),
    "tensor_rungs": ("tensor_cores", tensor_cores.rungs_section),
    "tensor_cores": ("tensor_cores", tensor_cores.squares_section),
    "tensor_means": ("tensor_cores", tensor_cores.means_section),
    "weak_spots": ("weak_spots", weak_spots.problems_section),
    "weak_spots_means": ("weak_spots", weak_spots.means_section),
    "weak_spots_sustained": ("weak_spots", weak_spots.sustained_section),
    "peers": ("peers", peers.section),
    "scale": ("tensor_parallel", scale.scaling_section),
    "scale_cuts": ("tensor_parallel", scale.cuts_section),
    "scale_planned": ("tensor_parallel", scale.planned_section),
}
PICTURES = {
    "ladder": "Rates of the levels on",
    "sizes": "Rates against size on",
    "sweep": "Sustained rates, power and clocks on",
    "weak_spots": "float32 products and skinny products against torch on",
}
HEADLINE = "Rates of float32 products, fastgemm and torch, on"
ACCURACY_PICTURES = {
    "normwise": "Normwise errors by distribution and K on",
    "componentwise": "Componentwise errors by distribution and K on",
    "ratio": "Errors in units of the library's by distribution and K on",
}


# Blocks without the picture of their file, which stands in another block.
WITHOUT_PICTURE = ("gpu_weak_spots_means", "gpu_weak_spots_sustained")
EXPLAINED = "explain_transpose.svg"
TRANSPOSES = ("transposes", "transposes_one_thread")


@cache
def explained_levels() -> list[fastgemm.Report]:
    return [fastgemm.explain("transpose", level=level, shape=(1024, 1024)) for level in (2, 3)]


def pitfalls_gemm() -> str:
    kernels = ["float4_padded65", "float4_padded68", "vectorized", "double_buffer_sync"]
    return explained.products(
        [
            fastgemm.explain("gemm", kernel=kernel, shape=(128, 128, 128), trans_b=trans_b)
            for kernel in kernels
            for trans_b in (False, True)
        ]
    )


def pitfalls_add() -> str:
    kernels = ["naive", "staged", "staged_transposed"]
    return explained.elementwise(
        [fastgemm.explain("add", kernel=kernel, shape=(256, 256)) for kernel in kernels]
    )


def explain_section(picture: str) -> str:
    command = "fastgemm explain transpose --level 3 --compare 2 --shape 1024 1024 --plot banks.svg"
    alternative = "Banks of shared memory that a warp meets in, at levels 2 and 3 of the transpose"
    return f"{explained.comparison(*explained_levels(), command)}\n\n![{alternative}]({picture})"


class Site:
    """README, docs and the reports they show."""

    def __init__(self, root: Path):
        self.root = root
        self.results = root / "benchmarks" / "results"
        self.images = root / "docs" / "img"

    def documents(self) -> list[Path]:
        readmes = [self.root / name for name in ("README.md", "README.zh-CN.md")]
        return [p for p in [*readmes, *sorted((self.root / "docs").glob("*.md"))] if p.exists()]

    def reports(self, name: str, *device_types: str) -> dict[str, Report]:
        """Reports of a file name, by device (the folder that the file is in), those of GPUs first."""
        read = accuracy.read_accuracy if name == accuracy.COMMAND else read_report
        found = {path.parent.name: read(path) for path in sorted(self.results.glob(f"**/{name}.json"))}
        order = ("cuda", "cpu")
        return {
            device: report
            for kind in order
            for device, report in found.items()
            if report.environment["device_type"] == kind and kind in (device_types or order)
        }

    def of_a_gpu(self, names: Iterable[str]) -> dict[str, Report]:
        """The reports of the first GPU, by name."""
        found = {name: list(self.reports(name, "cuda").values()) for name in names}
        return {name: reports[0] for name, reports in found.items() if reports}

    def headline_picture(self, document: Path) -> str:
        return "\n\n".join(
            f"![{HEADLINE} {report.environment['device']}]"
            f"({os.path.relpath(self.picture('headline', device), document.parent)})"
            for device, report in self.reports("weak_spots", "cuda").items()
        )

    def picture(self, name: str, device: str) -> Path:
        return self.images / f"{name}_{device}.svg"

    def block(self, name: str, document: Path) -> str:
        def link(file: str, device: str, report: Report) -> str:
            if file not in PICTURES or name in WITHOUT_PICTURE:
                return ""
            picture = os.path.relpath(self.picture(file, device), document.parent)
            return f"![{PICTURES[file]} {report.environment['device']}]({picture})\n\n"

        def sections(file: str, section: Callable[[Report], str], *device_types: str) -> str:
            reports = self.reports(file, *device_types).items()
            return "\n\n".join(link(file, device, report) + section(report) for device, report in reports)

        makers: dict[str, Callable[[], str]] = {
            "ladder": lambda: sections("ladder", markdown.ladder_section),
            "ladder_picture": lambda: sections("ladder", markdown.place, "cuda"),
            "reference": lambda: sections("reference", markdown.means_section, "cpu"),
            "gains": lambda: headline.gains_section(self.of_a_gpu(headline.FILES)),
            "headline": lambda: headline.sentence(self.of_a_gpu(headline.FILES), "en"),
            "headline_zh": lambda: headline.sentence(self.of_a_gpu(headline.FILES), "zh"),
            "headline_picture": partial(self.headline_picture, document),
            "models": lambda: sections("models", models.section),
            "invariant_models": lambda: sections("invariant_models", models.invariant_section),
            "models_best": lambda: sections("models", models.best),
            "transformer": lambda: sections("transformer", transformer.section),
            "transformer_wide": lambda: sections("transformer_wide", transformer.section),
            "overhead": lambda: sections("overhead", markdown.overhead_section),
            "kernels": lambda: markdown.kernel_section(fastgemm.kernels()),
            "explain": lambda: explain_section(os.path.relpath(self.images / EXPLAINED, document.parent)),
        }
        makers["pitfalls_gemm"], makers["pitfalls_add"] = pitfalls_gemm, pitfalls_add
        makers["counters"] = lambda: "\n\n".join(
            counter_check.section(json.loads(path.read_text(encoding="utf-8")))
            for path in sorted(self.results.glob("**/ncu_check.json"))
        )
        makers |= self.choice_makers()
        for prefix, device_type in (("", "cuda"), ("cpu_", "cpu")):
            for block, section in accuracy_tables.SECTIONS.items():
                makers[prefix + block] = partial(sections, accuracy.COMMAND, section, device_type)
        for figure, words in ACCURACY_PICTURES.items():
            makers[f"accuracy_{figure}"] = partial(self.accuracy_picture, figure, words, document)
        for block, (file, section) in GPU_SECTIONS.items():
            makers[f"gpu_{block}"] = lambda file=file, section=section: sections(file, section, "cuda")
        if name not in makers:
            raise SystemExit(f"{document}: unknown block {name!r}; known: {', '.join(makers)}")
        text = makers[name]()
        return f"{text}\n" if text else ""

    def choice_makers(self) -> dict[str, Callable[[], str]]:
        """What runs where, and how that is chosen."""

        def parsed(file: str) -> Iterator[dict[str, Any]]:
            found = sorted(self.results.glob(f"**/{file}.json"))
            return (json.loads(path.read_text(encoding="utf-8")) for path in found)

        def of_transposes() -> str:
            return choosing.transposes_section(
                [report for name in TRANSPOSES for report in self.reports(name, "cpu").values()]
            )

        return {
            "support_generations": support.generations_section,
            "support_kernels": support.kernels_section,
            "support_choices": support.choices_section,
            "support_residues": support.residues_section,
            "choosing_terms": choosing.terms_section,
            "choosing_predictions": partial(choosing.predictions_section, self.results),
            "choosing_quality": partial(choosing.quality_section, self.results),
            "choosing_cpu": choosing.cpu_section,
            "choosing_transposes": of_transposes,
            "portable": lambda: portable.sections(parsed("portable")),
            "complex_products": lambda: complex_products.sections(parsed("complex_products")),
            "invariant_products": lambda: invariant_products.sections(parsed("invariant_products")),
            "newton_schulz": lambda: newton_schulz.sections(parsed("newton_schulz")),
            "symmetric_products": lambda: symmetric_products.sections(parsed("symmetric_products")),
            "fused_linear": lambda: fused_linear.sections(parsed("fused_linear")),
            "residues_times": lambda: residue_products.times(parsed("residue_products")),
            "residues_errors": lambda: residue_products.errors(parsed("residue_products")),
            "residues_float32": lambda: residue_products.float32_times(parsed("residue_products")),
            "residues_float32_errors": lambda: residue_products.float32_errors(parsed("residue_products")),
            "narrow_integers": lambda: residue_products.narrow_integers(parsed("residue_products")),
            "residues_integers": lambda: residue_products.integers(parsed("residue_products")),
            "first_product": lambda: first_product.sections(parsed("first_product")),
        }

    def accuracy_picture(self, figure: str, words: str, document: Path) -> str:
        return "\n\n".join(
            f"![{words} {report.environment['device']}]"
            f"({os.path.relpath(self.picture(f'accuracy_{figure}', device), document.parent)})"
            for device, report in self.reports(accuracy.COMMAND, "cuda").items()
        )

    def rendered(self, document: Path) -> str:
        text = document.read_text(encoding="utf-8")
        blocks = [found.group(2) for found in BLOCK.finditer(text)]
        if len(MARKER.findall(text)) != 2 * len(blocks):
            raise SystemExit(f"{document}: a marker has no partner")
        return BLOCK.sub(lambda m: m.group(1) + self.block(m.group(2), document) + m.group(4), text)

    def stale_pictures(self) -> dict[Path, Callable[[Path], object]]:
        """Pictures that were not drawn from the data there is, and what draws them."""
        found: dict[Path, Callable[[Path], object]] = {}

        def expect(path: Path, fingerprint: str, save: Callable[[Path], object]) -> None:
            if not path.exists() or fingerprint not in path.read_text(encoding="utf-8"):
                found[path] = save

        for name in PICTURES:
            for device, report in self.reports(name).items():
                path = self.picture(name, device)
                expect(path, plots.fingerprint(report), partial(plots.save, report))
        for device, report in self.reports("weak_spots", "cuda").items():
            save = partial(plots.save, report, make=plots.headline_figure)
            expect(self.picture("headline", device), plots.fingerprint(report), save)
        for device, report in self.reports(accuracy.COMMAND, "cuda").items():
            for name, make in accuracy_figures.FIGURES.items():
                save = partial(plots.save, report, make=make)
                expect(self.picture(f"accuracy_{name}", device), plots.fingerprint(report), save)
        if any("<!-- explain:begin -->" in path.read_text(encoding="utf-8") for path in self.documents()):
            drawn = access_plots.fingerprint(explained_levels(), ["shared"])
            expect(self.images / EXPLAINED, drawn, partial(save_banks, drawn))
        return found


def save_banks(fingerprint: str, path: Path) -> None:
    figure = access_plots.access_figure(explained_levels(), ["shared"])
    access_plots.save(figure, path, description=f"data {fingerprint}")


def draw(path: Path, save: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        save(made)
        # matplotlib ends lines of SVG paths with a space
        lines = made.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if anything would change")
    check = parser.parse_args(arguments).check
    site = Site(root)
    stale = {
        path: text for path in site.documents() if (text := site.rendered(path)) != path.read_text("utf-8")
    }
    pictures = site.stale_pictures()
    if check:
        for path in [*stale, *pictures]:
            print(
                f"{path.relative_to(root)} is out of date: run python tools/render_results.py",
                file=sys.stderr,
            )
        return 1 if stale or pictures else 0
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
    for path, save in pictures.items():
        draw(path, save)
    for path in [*stale, *pictures]:
        print(f"written: {path.relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
