"""Products of fp8 with scales: speedups over torch's, and errors."""

from __future__ import annotations

from fastgemm.bench.formatting import ratio

from .products import microseconds
from .spec import PLACE, Block, Column, Line, Rows, Table, beside, look_up

ERRORS, QUANTIZE, TWICE, SWIGLU = "errors", "quantize", "twice", "swiglu"
WAYS = ("NN", "TN", "TT")


def _recipe(line: Line) -> str:
    return line.first.group.split(", ", 1)[1]


def _lines(*kinds: str) -> object:
    def found(rows: Rows) -> list[Line]:
        shown = [row for row in rows if row.group.split(", ")[0] in kinds]
        return beside(shown, lambda row: (row.group, row.shape), "choice")

    return found


RECIPE = Column("recipes", _recipe)
SHAPE = Column("M x N x K", lambda line: " x ".join(map(str, line.first.shape)))
TIMES = [
    Column("torch", ("torch", "seconds", "median"), microseconds),
    Column("`level=None`", ("fastgemm", "seconds", "median"), microseconds),
    Column("of torch", ("fastgemm", "speedup", "median"), ratio),
]
PRODUCTS = Table([RECIPE, SHAPE, *TIMES], _lines("product"), words=2)


def _of_own(way: str) -> Column:
    def share(line: Line) -> float | None:
        times = [look_up(line, (name, "seconds", "median")) for name in ("fastgemm", way)]
        return times[0] / times[1] if all(times) else None

    return Column(f"{way}, of NT", share, ratio)


LAYOUTS = Table(
    [RECIPE, SHAPE, *TIMES[:2], *map(_of_own, WAYS)], _lines("layouts"), words=2, title="Layouts:"
)
NORMS = Table(
    [RECIPE, Column("K", lambda line: line.first.shape[2])]
    + [
        Column(head, lambda line, way=way: look_up(line, (way, "more", "error")), "{:.2e}")
        for head, way in (("fastgemm", "fastgemm"), ("torch", "torch"), ("torch, `use_fast_accum`", "fast"))
    ],
    _lines(ERRORS),
    words=1,
    title="Errors of float32 results:",
)
QUANTIZED = [
    RECIPE,
    SHAPE,
    Column("copy of as many bytes", ("copy", "seconds", "median"), microseconds),
    Column("`quantize_fp8`", ("fastgemm", "seconds", "median"), microseconds),
    Column("of the copy", ("fastgemm", "speedup", "median"), ratio),
]
ONCE = Table(QUANTIZED, _lines(QUANTIZE), words=2, title="Quantizing a bfloat16 matrix:")
BOTH = Table(
    [*QUANTIZED, Column("two calls", ("separate", "seconds", "median"), microseconds)],
    _lines(TWICE),
    words=2,
    title="The matrix and its transpose, `transposed=True`:",
)
CODES = Table(
    [
        RECIPE,
        SHAPE,
        Column("the product alone", ("product", "seconds", "median"), microseconds),
        Column("product, silu, times up, `quantize_fp8`", ("separate", "seconds", "median"), microseconds),
        Column("`linear` with swiglu and codes", ("fastgemm", "seconds", "median"), microseconds),
        Column("times as fast", ("fastgemm", "speedup", "median"), ratio),
    ],
    _lines(SWIGLU),
    words=2,
    title="A bfloat16 layer whose result has 8 bits:",
)
ON_CPU = Table(
    [RECIPE, SHAPE, Column("torch in bfloat16", ("torch", "seconds", "median"), microseconds), *TIMES[1:]],
    _lines("product"),
    words=2,
)
BLOCKS = {
    "fp8": Block("fp8", PRODUCTS, LAYOUTS, NORMS, ONCE, BOTH, CODES, PLACE, device="cuda"),
    "fp8_cpu": Block("fp8", ON_CPU, PLACE, device="cpu"),
}
