"""Products by residues beside torch's, in Markdown, from what tools/residue_products.py wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .markdown import source, table

TIMES = ["data", "M x N x K", "torch, TFLOPS", "level=None, times as fast", "`crt`", "`crt`, crt14", "`dmma`"]
ERRORS = ["data", "K", "torch", "level=None", "`dmma`", "`crt`", "`crt`, crt14"]
FLOAT32 = ["data", "M x N x K", "torch, TFLOPS", "level=None, times as fast", "`bf16x6`", "`crt`"]
FLOAT32_ERRORS = ["data", "K", "torch", "`bf16x6`", "`crt`"]
NARROW = ["N", "operands, result", "TOPS", "of int8", "exact"]
INTEGERS = ["N", "TOPS", "times level 5", "exact"]


def times(files: Iterable[dict[str, Any]]) -> str:
    return _sections(files, _times)


def errors(files: Iterable[dict[str, Any]]) -> str:
    return _sections(files, _errors)


def float32_times(files: Iterable[dict[str, Any]]) -> str:
    return _sections(files, _float32_times)


def float32_errors(files: Iterable[dict[str, Any]]) -> str:
    return _sections(files, _float32_errors)


def integers(files: Iterable[dict[str, Any]]) -> str:
    return _sections(files, _integers)


def narrow_integers(files: Iterable[dict[str, Any]]) -> str:
    return _sections(files, _narrow_integers)


def _sections(files: Iterable[dict[str, Any]], section: Callable[[dict[str, Any]], str]) -> str:
    return "\n\n".join(f"{section(data)} {source(data)}" for data in files)


def _rate(shape: list[int], microseconds: float) -> str:
    m, n, k = shape
    return f"{2 * m * n * k / microseconds / 1e6:.3g}"


def _ratios(measured: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[str]]:
    return [
        [
            *(row["distribution"], " x ".join(map(str, row["shape"]))),
            _rate(row["shape"], row["microseconds"]["torch"]),
            *(f"{row['of_torch'][name]:.2f}" if name in row["of_torch"] else "-" for name in names),
        ]
        for row in measured
    ]


def _pairs(measured: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[str]]:
    return [
        [
            row["distribution"],
            str(row["k"]),
            *(
                "{:.2g} ({:.2g})".format(*row["errors"][name]) if name in row["errors"] else "-"
                for name in names
            ),
        ]
        for row in measured
    ]


def _times(data: dict[str, Any]) -> str:
    rows = _ratios(data["float64"], ("fastgemm", "crt", "crt14", "dmma"))
    return f"{table(TIMES, rows, 2)}\n\nfloat64, times as fast as torch (cuBLAS DGEMM)."


def _float32_times(data: dict[str, Any]) -> str:
    rows = _ratios(data["float32"], ("fastgemm", "bf16x6", "crt"))
    return f"{table(FLOAT32, rows, 2)}\n\nfloat32, times as fast as torch (cuBLAS SGEMM)."


def _float32_errors(data: dict[str, Any]) -> str:
    rows = _pairs(data["float32_errors"], ("torch", "bf16x6", "crt"))
    return (
        f"{table(FLOAT32_ERRORS, rows, 1)}\n\n2048 x 2048 results against float64. Largest error in units of "
        "2^-24 of the element of abs(A) abs(B), and in brackets the root of the mean square in units of 2^-24 of "
        "the norms of row and column."
    )


def _errors(data: dict[str, Any]) -> str:
    rows = _pairs(data["errors"], ("torch", "fastgemm", "dmma", "crt", "crt14"))
    return (
        f"{table(ERRORS, rows, 1)}\n\nLargest error in units of 2^-53 of the element of abs(A) abs(B), and in "
        "brackets the root of the mean square in units of 2^-53 of the norms of row and column; against sums in "
        "twice the precision."
    )


def _integers(data: dict[str, Any]) -> str:
    rows = []
    for row in data["int64"]:
        n, taken = row["size"], row["microseconds"]
        rate = _rate([n, n, n], taken["fastgemm"])
        rows.append(
            [str(n), rate, f"{taken['level 5'] / taken['fastgemm']:.1f}", "yes" if row["exact"] else "**no**"]
        )
    return (
        f"{table(INTEGERS, rows, 1)}\n\nSquare products of int64 over the whole range, wrapping modulo 2^64."
    )


def _narrow_integers(data: dict[str, Any]) -> str:
    rows = []
    for row in data["narrow_integers"]:
        n, taken = row["size"], row["microseconds"]
        int8 = next(iter(taken.values()))
        rows += [
            [
                str(n),
                name,
                _rate([n, n, n], time),
                f"{int8 / time:.2f}",
                "yes" if row["exact"][name] else "**no**",
            ]
            for name, time in taken.items()
        ]
    return f"{table(NARROW, rows, 2)}\n\nSquare products of integers over their whole range, by `level=None`."
