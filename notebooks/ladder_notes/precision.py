"""Rates and errors of float32 products in each precision on a Hopper GPU, from benchmarks/results/h100."""

from __future__ import annotations

import pandas as pd
from fastgemm._gpus import find_gpu
from fastgemm.bench.drawing import place
from fastgemm.bench.records import Measurement
from matplotlib.figure import Figure

from . import drawings, on_gpu

SIZE = 4096


def _rates() -> list[Measurement]:
    """Square float32 products of SIZE, stored by rows, in each precision: the fastest kernel, that of level 6, and
    torch."""
    rows = [row for name in ("weak_spots", "tensor_cores") for row in on_gpu(name).results]
    return [
        row
        for row in rows
        if row.shape == (SIZE,) * 3
        and (row.dtype, row.layout) == ("float32", "NN")
        and row.rate
        and not row.joules
    ]


def _torch_has(row: Measurement) -> bool:
    return row.role != "baseline" or row.precision in ("ieee", "tf32")


def rates_and_errors(distribution: str = "normal") -> pd.DataFrame:
    """TFLOPS at SIZE, and the relative error of a product with K = SIZE, of each kernel and precision."""
    errors = {
        (row.kernel, row.precision): row.normwise
        for row in on_gpu("accuracy").results
        if (row.distribution, row.k) == (distribution, SIZE)
    }
    found = {}
    for row in filter(_torch_has, _rates()):
        key = row.kernel, row.precision or "ieee"
        if key in errors:
            found[key] = {"TFLOPS": round(row.rate, 1), "error": errors[key]}
    table = pd.DataFrame(found).T.rename_axis(["kernel", "precision"]).sort_values("TFLOPS")
    return table.assign(error=table["error"].map("{:.1e}".format))


def rates_against_errors() -> Figure:
    """The same as a picture, in which faster kernels are further right and more accurate ones further down."""
    table = rates_and_errors().reset_index()
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    axis = figure.subplots()
    fastest = table["TFLOPS"].max()
    for kernel, asked, rate, error in table.itertuples(index=False):
        is_torch, at_right = kernel.startswith("torch"), rate > 0.6 * fastest
        axis.plot(rate, float(error), "o", color=drawings.ORANGE if is_torch else drawings.BLUE, markersize=8)
        axis.annotate(
            kernel if asked in kernel else f"{kernel}, {asked}",
            (rate, float(error)),
            xytext=(-8 if at_right else 8, 9 if is_torch else -9),
            textcoords="offset points",
            ha="right" if at_right else "left",
            va="center",
            fontsize=9,
        )
    axis.set_yscale("log")
    axis.margins(y=0.12)
    axis.set_xlim(left=0)
    axis.set_xlabel(f"TFLOPS, {SIZE} x {SIZE} x {SIZE}, operands stored by rows")
    axis.set_ylabel(f"error of the product, relative,\nK = {SIZE}, normal numbers")
    axis.grid(color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(place(on_gpu("weak_spots"), []), fontsize=8.5, color="#555555")
    return figure


def unit_rates(name: str = "H200") -> Figure:
    """The peak rates of a GPU's arithmetic units, for each type that they multiply (data sheet)."""
    gpu = find_gpu(name)
    rates = {
        "float64": gpu.peak("float64"),
        "float32": gpu.peak("float32"),
        **{f"{kind}, tensor cores": rate for kind, rate in gpu.tensor_peaks.items()},
    }
    figure = Figure(figsize=(9, 0.9 + 0.34 * len(rates)), layout="constrained")
    axis = figure.subplots()
    ordered = dict(sorted(rates.items(), key=lambda item: item[1]))
    colours = [drawings.BLUE if "tensor" in kind else drawings.PALE for kind in ordered]
    axis.barh(list(ordered), [rate / 1e12 for rate in ordered.values()], color=colours, height=0.68)
    for y, rate in enumerate(ordered.values()):
        axis.annotate(f" {rate / 1e12:.0f}", (rate / 1e12, y), va="center", fontsize=9)
    axis.set_xlabel(f"operations a second, 10¹², {gpu.name}: data sheet")
    axis.spines[["top", "right"]].set_visible(False)
    return figure
