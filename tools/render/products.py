"""Renders tables of one kind of product from the results of `benchmarks/run.py`: one line for each problem, one
column for each contender, compared with torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from typing import Any

from fastgemm.bench.formatting import rate, ratio
from fastgemm.bench.records import select
from studies import grid_means

from .spec import PLACE, Block, Column, Line, Rows, Table, beside, look_up

Lines = Callable[[Rows], Iterable[Any]]
PROBLEM = ("type_name", "shape", "layout", "group")


def _shape(line: Line) -> str:
    shape = line.first.shape
    return str(shape[0]) if len(set(shape)) == 1 else " x ".join(map(str, shape))


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3g}" if seconds < 1e-4 else f"{seconds * 1e6:.0f}"


def _us(head: str, way: str = "fastgemm") -> Column:
    return Column(head, (way, "seconds", "median"), microseconds)


def _rate(head: str, way: str = "fastgemm", operations: int = 2) -> Column:
    """A column of TFLOPS or TOPS. In complex products a multiply-add counts as eight operations."""

    def value(line: Line) -> float | None:
        seconds = look_up(line, (way, "seconds", "median"))
        return operations * prod(line.first.shape) / seconds / 1e12 if seconds else None

    return Column(head, value, rate)


def _times(head: str, way: str = "fastgemm") -> Column:
    return Column(head, (way, "speedup", "median"), ratio)


def _over(way: str, other: str) -> Callable[[Line], float | None]:
    """How many times as fast a contender is as another one that is not the baseline."""

    def value(line: Line) -> float | None:
        times = [look_up(line, (name, "seconds", "median")) for name in (other, way)]
        return look_up(line, (way, "more", "over", other)) or (times[0] / times[1] if all(times) else None)

    return value


def side_by_side(rows: Rows, **wanted: Any) -> list[Line]:
    return beside(select(rows, **wanted), PROBLEM, "choice")


TYPE = Column("type", "type_name")
SHAPE = Column("M x N x K", _shape)
TAKES = Column("`level=None` takes", "fastgemm.kernel", "`{}`")
ERRORS = ", errors"
DATA = Column("data", lambda line: line.first.group.removesuffix(ERRORS))


def _errors(head: str, way: str, path: str = "component_error") -> Column:
    return Column(head, (way, *path.split(".")), "{:.1e}")


def _block(file: str, *columns: Column, said: str = "", words: int = 3, lines: Lines = side_by_side) -> Block:
    return Block(file, Table(columns, lines, words), f"{said} {PLACE}".lstrip())


def _timed(dtype: str, rows: Rows) -> list[Line]:
    """Products computed by residues. Integers have tables of their own."""
    found = [row for row in rows if row.seconds and row.group not in ("int64", "narrow_integers")]
    return side_by_side(found, dtype=dtype)


def _times_by_residues(dtype: str, torch: str, *ways: str) -> Block:
    own = (_times(f"`{way}`", way) for way in ways)
    return _block(
        "residues",
        *(DATA, SHAPE, _rate("torch, TFLOPS", "torch"), _times("`level=None`"), *own),
        said=f"{dtype}, times as fast as torch ({torch}).",
        words=2,
        lines=partial(_timed, dtype),
    )


def _errors_by_residues(dtype: str, said: str, *ways: str) -> Block:
    def lines(rows: Rows) -> list[Line]:
        return side_by_side([row for row in rows if row.group.endswith(ERRORS)], dtype=dtype)

    def pair(way: str) -> Column:
        return Column(f"`{way}`", (way, "more", "errors"), lambda errors: "{:.2g} ({:.2g})".format(*errors))

    return _block("residues", DATA, Column("K", _shape), *map(pair, ways), said=said, words=1, lines=lines)


def _exact(row: Any) -> str:
    return "yes" if row.right else "**no**"


def _mean(name: str) -> Column:
    def shown(found: dict[str, float | None]) -> str:
        return f"{ratio(found['mean'])} ({ratio(found['worst'])})"

    head = re.sub(r"\w+=\w+", r"`\g<0>`", name)  # arguments are code
    return Column(f"{head} (worst)", (name,), shown)


GRID = (
    "Ordinary products in 16 bits: sides that are powers of two, and the layers of ten models at 1 to 4096 "
    "tokens. NT has weights as `torch.nn.Linear` stores them. Calls are replayed from CUDA graphs with weights "
    "that are not in the L2 cache. They do not depend on each other, and a kernel may begin while the previous "
    "one ends. `tune=True` is `torch.matmul` in a [patch](drop_in.md#tune-measured-where-it-runs) that measures "
    "kernels in its first call. `level=None` [chooses](choosing.md#16-bit-types-in-cuda-graphs) by earlier "
    "measurements of these sizes. Times of eager calls include the host's time. Means are geometric. The best is "
    "the fastest of torch, cuBLASLt's candidates, `level=None` and fastgemm's kernels:"
)
BLOCKS = {
    "grid": Block(
        "grid",
        GRID,
        Table(
            [
                *(Column(name, name) for name in ("type", "layout", "flop", "count")),
                *map(_mean, grid_means.RATIOS),
            ],
            grid_means.means,
            words=3,
        ),
        lambda report: "\n".join(
            f"- {line}" if i else f"{line}\n" for i, line in enumerate(grid_means.told(report))
        ).rstrip(),
        PLACE,
    ),
    "complex_products": _block(
        "complex",
        *(TYPE, SHAPE, Column("layout", "layout"), _rate("TFLOPS", operations=8)),
        *(_times("times as fast as torch"), _times("level 6", "level 6")),
        *(_errors("error", "fastgemm"), _errors("torch's error", "torch")),
        said="Layouts: T is a transposed view, C a conjugated and transposed one. Errors are relative to "
        "the element of "
        "abs(A) abs(B).",
    ),
    "symmetric_products": _block(
        "symmetric",
        *(TYPE, SHAPE, TAKES, _us("us"), _times("times as fast as torch")),
        Column("as the general product", _over("fastgemm", "general"), ratio),
        _times("kernel `symmetric`, as torch", "symmetric"),
        said="The products are `a @ a.mT`, for complex numbers `a @ a.mH`, with a square `a`.",
    ),
    "invariant_products": _block(
        "invariant",
        *(TYPE, SHAPE, _us("us", "invariant"), _times("times as fast as torch", "invariant")),
        *(_times("`level=None`, as torch"), TAKES),
        said="The products are `x @ weight.T`. torch does not promise the same bits.",
        words=2,
    ),
    "fused_linear": _block(
        "linear",
        *(TYPE, SHAPE, Column("activation", "group"), TAKES, _us("us"), _times("times as fast as eager")),
        *(Column(f"as {other}", _over("fastgemm", other), ratio) for other in ("compiled", "apart")),
        said="Eager: torch's functions one after the other. Compiled: the same under `torch.compile`. "
        "Apart: fastgemm's "
        "layer, followed by torch's activation.",
        words=4,
    ),
    "newton_schulz": _block(
        "newton_schulz",
        *(TYPE, Column("layer", _shape), _us("torch, us", "torch")),
        *(_times("fastgemm"), _times("`torch.compile`", "torch.compile")),
        *(_errors(f"error of {way}", way, "more.error") for way in ("torch", "fastgemm")),
        said="Five steps: torch's time, the speedups over it, and the error of each, relative to the "
        "result of the same steps "
        "in float64.",
        words=2,
    ),
    "portable": _block(
        "portable",
        *(TYPE, SHAPE, Column("kernel", "group", "`{}`"), _rate("portable path, TFLOPS", "portable")),
        *(_rate("sm_90a", "hopper"), _rate("`torch.matmul`", "torch")),
        Column("portable, times as fast as sm_90a", _over("portable", "hopper"), ratio),
        Column("as torch", _over("portable", "torch"), ratio),
    ),
    "residues_times": _times_by_residues("float64", "cuBLAS DGEMM", "crt", "crt14", "dmma"),
    "residues_float32": _times_by_residues("float32", "cuBLAS SGEMM", "bf16x6", "crt"),
    "residues_errors": _errors_by_residues(
        "float64",
        "Largest error in units of 2^-53 of the element of abs(A) abs(B). In brackets: the root mean "
        "square error in units "
        "of 2^-53 of the product of the norms of row and column. The reference has twice the precision. "
        "`fastgemm` is `level=None`.",
        *("torch", "fastgemm", "dmma", "crt", "crt14"),
    ),
    "residues_float32_errors": _errors_by_residues(
        "float32",
        "Results of 2048 x 2048, compared with float64; the same units with 2^-24 instead of 2^-53.",
        *("torch", "bf16x6", "crt"),
    ),
    "residues_integers": _block(
        "residues",
        *(SHAPE, _rate("TOPS"), Column("times as fast as level 5", _over("fastgemm", "level 5"), ratio)),
        Column("exact", lambda line: _exact(line.get("fastgemm"))),
        said="Square products of int64 numbers from the whole range, modulo 2^64.",
        words=1,
        lines=partial(side_by_side, group="int64"),
    ),
    "narrow_integers": _block(
        "residues",
        *(Column("N", lambda row: row.shape[0]), Column("operands, result", "choice")),
        Column("TOPS", lambda row: 2 * prod(row.shape) / row.seconds.median / 1e12, rate),
        Column("exact", _exact),
        said="Square products of integers over their whole range, by `level=None`.",
        words=2,
        lines=lambda rows: select(rows, group="narrow_integers"),
    ),
    "first_product": Block(
        "first_product",
        Table(
            [Column("in this order", "kernel"), Column("ms", lambda row: row.seconds.median * 1e3, "{:.3g}")]
        ),
        "Products of {method[size]} x {method[size]} matrices. Medians of {method[processes]} processes "
        "that had "
        "already imported torch and created a CUDA context. {place}",
    ),
}
