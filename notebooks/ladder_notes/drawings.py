"""Pictures that explain ideas: where data are, which thread does what, and when. Nothing here is measured.

Numbers in them come from the tables of fastgemm._gpus (NVIDIA's data sheets and programming guide).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import matplotlib.pyplot as plt
from fastgemm._gpus import BANK_BYTES, BANKS, SECTOR, WARP, find_gpu
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

BLUE, PALE, ORANGE, GREEN, GREY, DARK = "#2f6f9f", "#d8e4ee", "#c8502d", "#3f8f5a", "#ececec", "#3a3a3a"
SHADES = plt.get_cmap("tab10").colors


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for axis in axes:
        axis.set_axis_off()
    return figure, axes


def _box(
    axis: Axes, x: float, y: float, w: float, h: float, colour: Any, text: str = "", **style: Any
) -> None:
    axis.add_patch(Rectangle((x, y), w, h, facecolor=colour, edgecolor="white", linewidth=1))
    if text:
        axis.text(
            x + w / 2, y + h / 2, text, ha="center", va="center", **{"fontsize": 9, "color": DARK, **style}
        )


def memory_levels(name: str = "H200") -> Figure:
    """The memories that can hold a number, how much fits into each, and how fast it is read."""
    gpu = find_gpu(name)
    held, shared = gpu.holds, gpu.shared_wavefronts * BANKS * BANK_BYTES
    rows = [
        (
            "registers",
            f"{held.registers * 4 >> 10} KB a multiprocessor, of each thread its own",
            "every cycle",
            GREEN,
        ),
        (
            "shared memory",
            f"{held.shared_bytes >> 10} KB a multiprocessor, of all threads of a block",
            f"{shared / 1e12:.0f} TB/s, all {gpu.multiprocessors} multiprocessors together",
            BLUE,
        ),
        ("global memory (HBM)", "all of the GPU's", f"{gpu.bandwidth / 1e12:.1f} TB/s", ORANGE),
    ]
    figure, (axis,) = _figure(9, 2.9)
    for y, (what, size, rate, colour) in enumerate(rows):
        width = 7 + 1.5 * y
        _box(axis, -width / 2, -y, width, 0.86, colour)
        axis.text(0, -y + 0.58, what, ha="center", va="center", color="white", fontsize=11, fontweight="bold")
        axis.text(0, -y + 0.26, size, ha="center", va="center", color="white", fontsize=9)
        axis.text(5.4, -y + 0.43, rate, ha="left", va="center", fontsize=10)
    axis.set_xlim(-5.2, 11)
    axis.set_ylim(-2.2, 1.2)
    axis.set_title(
        f"Where numbers live on an {gpu.name}: small and fast, or large and slow", loc="left", fontsize=11
    )
    return figure


def _grid(
    axis: Axes, rows: int, columns: int, colour: Callable[[int, int], Any], text: Callable[[int, int], str]
):
    for i in range(rows):
        for j in range(columns):
            _box(axis, j, i, 1, 1, colour(i, j), text(i, j), fontsize=6.5)
    axis.set_xlim(0, columns)
    axis.set_ylim(rows, 0)
    axis.set_aspect("equal")


def threads_on_a_result() -> Figure:
    """Which element of C each lane of a warp computes, where a warp lies along a row and where it lies down a
    column."""
    figure, axes = _figure(10, 3.2, 2)
    cases = [
        ("naive: a warp along a row of C", lambda i, j: i == 2, lambda i, j: j),
        ("naive_uncoalesced: a warp down a column", lambda i, j: j == 2, lambda i, j: i),
    ]
    for axis, (title, mine, lane) in zip(axes, cases, strict=True):
        _grid(
            axis,
            8,
            16,
            lambda i, j, mine=mine: BLUE if mine(i, j) else GREY,
            lambda i, j, mine=mine, lane=lane: str(lane(i, j)) if mine(i, j) else "",
        )
        for text in axis.texts:
            text.set_color("white")
        axis.set_title(f"{title}\n(numbers: lanes, the first few of {WARP})", fontsize=10, loc="left")
    return figure


def tiles_of_a_product() -> Figure:
    """A block's tile of C and the strips of A and B that it needs, which it reads tile by tile."""
    figure, (axis,) = _figure(6.4, 4.2)
    _box(axis, 0, 0, 4, 4, GREY)
    _box(axis, 4.4, 0, 4, 4, GREY)
    _box(axis, 4.4, 4.4, 4, 4, GREY)
    _box(axis, 0, 1, 4, 1, PALE)
    _box(axis, 5.4, 4.4, 1, 4, PALE)
    _box(axis, 2, 1, 1, 1, BLUE, "tile", color="white", fontsize=9)
    _box(axis, 5.4, 5.4, 1, 1, BLUE, "tile", color="white", fontsize=9)
    _box(axis, 5.4, 1, 1, 1, ORANGE, "tile", color="white", fontsize=9)
    for x, y, name in ((0.7, 3.6, "A (M, K)"), (7.6, 8.0, "B (K, N)"), (7.6, 3.6, "C (M, N)")):
        axis.text(x, y, name, ha="center", fontsize=10, color=DARK)
    style = {"arrowstyle": "->", "color": DARK}
    axis.annotate("", (3.9, 2.25), (0.1, 2.25), arrowprops=style)
    axis.annotate("", (5.15, 4.5), (5.15, 8.3), arrowprops=style)
    axis.text(2, 2.5, "the loop over K", ha="center", fontsize=8)
    axis.set_xlim(-0.1, 8.5)
    axis.set_ylim(-0.1, 8.5)
    axis.set_aspect("equal")
    axis.set_title("One block computes one tile of C", fontsize=11, loc="left")
    return figure


def _lane_of_work(
    axis: Axes, y: float, spans: Iterable[tuple[float, float, int]], colours: tuple[Any, Any]
) -> None:
    for begin, length, step in spans:
        _box(axis, begin, y, length, 0.8, colours[step % 2], str(step), color="white", fontsize=9)


def pipeline(steps: int = 6, load: float = 1.4, compute: float = 1.0, stages: int = 3) -> Figure:
    """When tiles are fetched and when they are used: in turn (levels 2 to 4), and at the same time (level 5). The
    times are invented."""
    figure, axes = _figure(10, 3.0, 1)
    axis = axes[0]
    t, serial_loads, serial_products = 0.0, [], []
    for step in range(steps):
        serial_loads.append((t, load, step))
        serial_products.append((t + load, compute, step))
        t += load + compute
    serial_end = t
    arrive, done, loads, products = [], [], [], []
    for step in range(steps):
        # A stage is free as soon as the tile in it has been used. Several copies can wait for memory at one time.
        begin = step * load / stages if step < stages else done[step - stages]
        arrive.append(begin + load)
        start = max(arrive[step], done[-1] if done else 0.0)
        done.append(start + compute)
        loads.append((begin, load, step))
        products.append((start, compute, step))
    _lane_of_work(axis, 5.2, serial_loads, (ORANGE, ORANGE))
    _lane_of_work(axis, 4.3, serial_products, (BLUE, BLUE))
    for step, (begin, length, _) in enumerate(loads):
        _lane_of_work(axis, 3.0 - 0.85 * (step % stages), [(begin, length, step)], (ORANGE, ORANGE))
    _lane_of_work(axis, 3.0 - 0.85 * stages, products, (BLUE, BLUE))
    axis.text(-0.1, 5.15, "in turn:\nfetch, then multiply", ha="right", va="center", fontsize=9)
    axis.text(
        -0.1,
        2.2,
        f"{stages} stages:\ncopies are on their way\nwhile others are used",
        ha="right",
        va="center",
        fontsize=9,
    )
    axis.set_xlim(-3.6, serial_end + 0.3)
    axis.set_ylim(0.2, 6.4)
    axis.set_title(
        "Fetching (orange) and multiplying (blue) the tiles 0, 1, 2, ... of K; time runs to the right",
        fontsize=11,
        loc="left",
    )
    return figure


def transpose_tile() -> Figure:
    """A tile is read along rows and written along rows; it is transposed where it is read from shared memory."""
    figure, axes = _figure(10, 2.9, 3)
    titles = ("src: a warp reads a row", "shared memory: a warp reads a column", "dst: a warp writes a row")
    marked = (lambda i, j: i == 1, lambda i, j: j == 1, lambda i, j: i == 1)
    for axis, title, mine in zip(axes, titles, marked, strict=True):
        _grid(axis, 8, 8, lambda i, j, mine=mine: BLUE if mine(i, j) else PALE, lambda i, j: "")
        axis.set_title(title, fontsize=10, loc="left")
    return figure


def banks(width: int, pitch: int, column: int = 0, rows: int = 8) -> Figure:
    """The bank of every word of a small tile, where there are ``width`` banks and rows are ``pitch`` words
    apart."""
    figure, (axis,) = _figure(1.2 + 0.42 * pitch, 0.8 + 0.36 * rows)
    bank = lambda i, j: (i * pitch + j) % width  # noqa: E731
    _grid(
        axis,
        rows,
        pitch,
        lambda i, j: SHADES[bank(i, j)] if j == column else GREY,
        lambda i, j: str(bank(i, j)),
    )
    for i in range(rows):
        axis.texts[i * pitch + column].set(color="white", fontweight="bold")
    for j in range(width, pitch):
        axis.text(j + 0.5, rows + 0.35, "padding", ha="center", va="center", fontsize=6.5)
    axis.set_ylim(rows + 0.6, 0)
    met = len({bank(i, column) for i in range(rows)})
    axis.set_title(
        f"rows {pitch} words apart: column {column} lies in {met} of {width} banks", fontsize=10, loc="left"
    )
    return figure


def fragment(
    layout: Callable[[int, int], tuple[int, int]], rows: int, columns: int, held: int, title: str
) -> Figure:
    """Which lane holds each element of a fragment; ``layout(lane, i)`` is the place of the lane's i-th element."""
    owner = {layout(lane, i): (lane, i) for lane in range(WARP) for i in range(held)}
    figure, (axis,) = _figure(1.0 + 0.52 * columns, 0.6 + 0.3 * rows)
    for (i, j), (lane, element) in owner.items():
        _box(axis, j, i, 1, 1, SHADES[lane // 4], f"{lane}:{element}", fontsize=8, color="white")
    axis.set_xlim(0, columns)
    axis.set_ylim(rows, 0)
    axis.set_title(title, fontsize=10, loc="left")
    return figure


def number_formats(formats: dict[str, tuple[int, int]]) -> Figure:
    """Sign, exponent and fraction bits of number formats; ``formats`` has the widths (exponent, fraction)."""
    figure, (axis,) = _figure(9.5, 0.7 + 0.42 * len(formats))
    for y, (name, (exponent, fraction)) in enumerate(formats.items()):
        axis.text(-0.4, -y + 0.4, name, ha="right", va="center", fontsize=10)
        _box(axis, 0, -y, 1, 0.8, DARK)
        _box(axis, 1, -y, exponent, 0.8, ORANGE, f"{exponent}", color="white")
        if fraction:
            _box(axis, 1 + exponent, -y, fraction, 0.8, BLUE, f"{fraction}", color="white")
    axis.set_xlim(-5, 33)
    axis.set_ylim(1 - len(formats) - 0.1, 1.0)
    axis.set_title(
        "sign (black), exponent bits: range (orange), fraction bits: precision (blue)",
        fontsize=10,
        loc="left",
    )
    return figure


def sectors_of_a_warp() -> Figure:
    """The sectors that move when 32 lanes read neighbouring floats, and when they read a column."""
    figure, axes = _figure(10, 1.9, 2)
    words = SECTOR // BANK_BYTES
    for axis, apart, title in zip(axes, (1, words), ("side by side", "a row apart"), strict=True):
        wanted = {lane * apart for lane in range(WARP)}
        sectors = sorted({word // words for word in wanted})
        for x, sector in enumerate(sectors[:8]):
            for word in range(words):
                mine = sector * words + word in wanted
                _box(axis, x + word / words, 0, 1 / words, 1, BLUE if mine else "#efc9b8")
            axis.add_patch(Rectangle((x, 0), 1, 1, fill=False, edgecolor=DARK, linewidth=1.2))
        left = len(sectors) - 8
        if left > 0:
            axis.text(8.1, 0.5, f"... {left} more", va="center", fontsize=9)
        used = WARP * BANK_BYTES / (len(sectors) * SECTOR)
        axis.set_xlim(-0.1, 10)
        axis.set_ylim(-0.2, 1.3)
        axis.set_title(
            f"{title}: {len(sectors)} sectors, {used:.0%} of their bytes used", fontsize=10, loc="left"
        )
    return figure


def swizzle(rows: int = 8, units: int = 8) -> Figure:
    """Where the 16-byte units of each row of a tile are kept: in order, or unit u of row i at place u xor i."""
    figure, axes = _figure(10, 3.0, 2)
    for axis, place, title in zip(
        axes,
        (lambda i, j: j, lambda i, j: j ^ i),
        ("as they come: a column of units in one place", "swizzled: in a different place in each row"),
        strict=True,
    ):
        _grid(
            axis,
            rows,
            units,
            lambda i, j, place=place: BLUE if place(i, j) == 0 else GREY,
            lambda i, j, place=place: str(place(i, j)),
        )
        for i, text in enumerate(axis.texts):
            text.set_color("white" if place(i // units, i % units) == 0 else DARK)
        axis.set_title(
            f"{title}\n(numbers: which unit of the row is kept there; 4 banks each)", fontsize=9, loc="left"
        )
    return figure
