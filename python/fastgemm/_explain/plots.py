"""Pictures of one warp-wide request: its banks of shared memory, or the sectors of memory that it moves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._gpus import BANK_BYTES, BANKS, SECTOR
from ..bench.drawing import pyplot
from .counts import Site
from .figures import number
from .findings import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_ROWS = 32  # of 128 bytes; further rows are counted, not drawn
LINE = BANKS * BANK_BYTES  # bytes: a row of words through all banks, and four sectors
WASTED, USED, EMPTY, EDGE = "#efc9b8", "#2f6f9f", "#f1f1f1", "#ffffff"
TEXT_SIZE = 10


@dataclass(frozen=True)
class Word:
    """Four bytes of shared memory, the lanes that read them, and the pass over the banks that delivers them."""

    index: int
    lanes: tuple[int, ...]
    wavefront: int

    @property
    def bank(self) -> int:
        return self.index % BANKS


def lanes_together(width: int) -> int:
    """Groups of lanes whose accesses the banks serve together: 32 words at a time."""
    return 32 if width <= 4 else 16 if width == 8 else 8


def place_in_wavefronts(example: tuple[int | None, ...], width: int) -> list[Word]:
    """The pass that delivers each word: in one pass, each bank delivers one word, to all lanes that read it.

    8-byte accesses are served by half warps, 16-byte accesses by quarters of a warp. If all lanes have one
    address, there is one broadcast."""
    together = lanes_together(width)
    if len({offset for offset in example if offset is not None}) == 1:
        together = len(example)
    words, passes = [], 0
    for first in range(0, len(example), together):
        wanted: dict[int, list[int]] = {}
        for lane in range(first, min(first + together, len(example))):
            if (offset := example[lane]) is not None:
                for word in range(offset // BANK_BYTES, (offset + width - 1) // BANK_BYTES + 1):
                    wanted.setdefault(word, []).append(lane)
        queue = [0] * BANKS
        for word, lanes in sorted(wanted.items()):
            words.append(Word(word, tuple(lanes), passes + queue[word % BANKS]))
            queue[word % BANKS] += 1
        if len(set(wanted)) and together == len(example) and len(wanted) <= width // BANK_BYTES:
            queue = [1]  # a broadcast of up to 16 bytes is one pass
        passes += max(queue)
    return words


def _badness(site: Site) -> tuple[float, int]:
    """The key of the worst site: the cost relative to the minimum for its bytes, rounded to a few percent, then
    the number of requests."""
    if site.space == "shared":
        return round(site.conflict or 0, 1), site.requests
    return round(site.sectors / max(site.requests, site.bytes_used / SECTOR), 1), site.requests


def worst_sites(reports: Sequence[Findings], space: str) -> list[Site | None]:
    """The site to draw for each report: the worst site of all, and in the other reports the corresponding one."""
    drawn = [
        [s for s in r.sites if s.space == space and any(o is not None for o in s.example)] for r in reports
    ]
    worst = max((site for sites in drawn for site in sites), key=_badness, default=None)
    if worst is None:
        return [None] * len(reports)

    def likeness(site: Site) -> tuple[bool, bool, bool, tuple[float, int]]:
        return site is worst, site.kind == worst.kind, site.buffer == worst.buffer, _badness(site)

    return [max(sites, key=likeness, default=None) for sites in drawn]


def _lanes_text(lanes: tuple[int, ...]) -> str:
    if len(lanes) <= 2:
        return ",".join(map(str, lanes))
    return f"{lanes[0]}-{lanes[-1]}" if lanes[-1] - lanes[0] == len(lanes) - 1 else f"{lanes[0]}.."


def _rows(indices: Iterable[int]) -> tuple[list[int], int]:
    """The rows to draw, in order, and how many are left out."""
    rows = sorted(set(indices))
    return rows[:MAX_ROWS], max(len(rows) - MAX_ROWS, 0)


def _frame(axis: Axes, rows: list[int], left_out: int, height: int, title: str, key: str) -> None:
    """``height``: rows of the tallest panel beside this one, so that all have cells of one size."""
    axis.set_xlim(0, BANKS)
    axis.set_ylim(height, 0)
    labels = [str(row * LINE) for row in rows] + ([f"{left_out} more"] if left_out else [])
    axis.set_yticks([y + 0.5 for y in range(len(labels))], labels, fontsize=9.5)
    axis.xaxis.tick_top()
    axis.set_title(f"{title}\n{key}", fontsize=10, loc="left")
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)


def _where(site: Site) -> str:
    return f"{site.what}, {Path(site.file).name}" + (f":{site.line}" if site.line else "")


def _label(axis: Axes, x: float, y: float, lanes: tuple[int, ...], colour: str) -> None:
    text = _lanes_text(lanes)
    size = TEXT_SIZE if len(text) < 4 else 0.72 * TEXT_SIZE
    axis.annotate(text, (x + 0.5, y + 0.5), ha="center", va="center", fontsize=size, color=colour)


def _box(axis: Axes, x: float, y: float, width: float, colour: Any, gap: float = 0.6) -> None:
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle((x, y), width, 1, facecolor=colour, edgecolor=EDGE, linewidth=gap))


def draw_banks(axis: Axes, site: Site, height: int) -> None:
    """A column for each bank, a row for every 128 bytes; the colour is the wavefront, the text the lanes."""
    words = place_in_wavefronts(site.example, site.bytes)
    rows, left_out = _rows(word.index // BANKS for word in words)
    total = max(word.wavefront for word in words) + 1
    colours = _colours(total)
    for y, row in enumerate(rows):
        _box(axis, 0, y, BANKS, EMPTY)
        for word in (word for word in words if word.index // BANKS == row):
            colour = colours[word.wavefront]
            _box(axis, word.bank, y, 1, colour)
            _label(axis, word.bank, y, word.lanes, "white" if sum(colour[:3]) < 1.4 else "black")
    axis.vlines(range(1, BANKS), 0, len(rows), color=EDGE, linewidth=0.6)
    axis.set_xticks([bank + 0.5 for bank in range(BANKS)], list(map(str, range(BANKS))), fontsize=9.5)
    passes = f"{total} wavefront{'s' if total > 1 else ''} in this request"
    title = f"{_where(site)}: {passes}, {number(site.conflict)} times the fewest possible over all"
    legend = "rows: 128 bytes from an offset; columns: banks; numbers: lanes; each colour is one wavefront"
    _frame(axis, rows, left_out, height, title, legend)


def _colours(total: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["viridis"](i / max(total - 1, 1)) for i in range(total)]


def draw_sectors(axis: Axes, site: Site, height: int) -> None:
    """A row for every 128 bytes with its four sectors: which bytes move, and which of them a lane requested."""
    wanted: dict[int, list[int]] = {}
    for lane, offset in enumerate(site.example):
        if offset is not None:
            for word in range(offset // BANK_BYTES, (offset + max(site.bytes, 1) - 1) // BANK_BYTES + 1):
                wanted.setdefault(word, []).append(lane)
    moved = {word * BANK_BYTES // SECTOR for word in wanted}
    rows, left_out = _rows(word // BANKS for word in wanted)
    words_in_sector, sectors_in_line = SECTOR // BANK_BYTES, LINE // SECTOR
    for y, row in enumerate(rows):
        for sector in range(sectors_in_line):
            fill = WASTED if row * sectors_in_line + sector in moved else EMPTY
            _box(axis, sector * words_in_sector, y, words_in_sector, fill, gap=2.5)
        for word in (word for word in wanted if word // BANKS == row):
            _box(axis, word % BANKS, y, 1, USED)
            _label(axis, word % BANKS, y, tuple(wanted[word]), "white")
    middles = [(sector + 0.5) * words_in_sector for sector in range(sectors_in_line)]
    axis.set_xticks(middles, [f"sector {i}" for i in range(sectors_in_line)], fontsize=10)
    title = (
        f"{_where(site)}: {len(moved)} sectors in this request, {number(site.sectors_per_request)} over all"
    )
    legend = "rows: 128 bytes from an offset; blue: asked for, by these lanes; pale: moved in vain"
    _frame(axis, rows, left_out, height, title, legend)


Draw = Callable[[Any, Site, int], None]


def _height(site: Site) -> int:
    """Rows that a panel has."""
    offsets = [offset for offset in site.example if offset is not None]
    rows = {row for o in offsets for row in (o // LINE, (o + site.bytes - 1) // LINE)}
    return min(len(rows), MAX_ROWS + 1)


def _panel_rows(reports: Sequence[Findings], spaces: Iterable[str]) -> list[tuple[Draw, list[Site | None]]]:
    """For each memory space that a report accesses: how to draw it, and the site of each report."""
    draw = {"global": draw_sectors, "shared": draw_banks}
    found = [(draw[space], worst_sites(reports, space)) for space in spaces]
    return [(draw, sites) for draw, sites in found if any(sites)]


def access_figure(
    reports: Sequence[Findings], spaces: Iterable[str] = ("global", "shared"), stacked: bool = False
) -> Figure:
    """A column for each report, or a row if ``stacked``: its worst access to global memory, and below it that to
    shared memory."""
    plt = pyplot()
    rows = _panel_rows(reports, spaces)
    counts = [max(_height(site) for site in sites if site) for _, sites in rows] or [1]
    width, height = 8.4, 0.4 + sum(0.75 + 0.2 * count for count in counts)
    down, across = (len(reports), 1) if stacked else (1, len(reports))
    figure = plt.figure(figsize=(width * across, height * down), layout="constrained")
    parts = figure.subfigures(down, across, squeeze=False).flat
    for i, (part, report) in enumerate(zip(parts, reports, strict=True)):
        part.suptitle(report.title, fontsize=14, fontweight="bold", x=0.01, ha="left")
        axes = part.subplots(len(counts), 1, squeeze=False, height_ratios=counts)[:, 0]
        for axis in axes:
            axis.set_axis_off()
        for axis, (draw, sites), count in zip(axes, rows, counts, strict=False):
            if (site := sites[i]) is not None:
                axis.set_axis_on()
                draw(axis, site, count)
    return figure


def fingerprint(reports: Sequence[Findings], spaces: Iterable[str] = ("global", "shared")) -> str:
    """Identifies the data of a picture."""
    drawn: list[Any] = [[report.title for report in reports]]
    for space in spaces:
        sites = worst_sites(reports, space)
        drawn += [s and [_where(s), s.example, s.sectors_per_request, s.conflict] for s in sites]
    return hashlib.sha256(json.dumps(drawn).encode()).hexdigest()[:16]


def save(figure: Figure, *paths: Path, description: str = "") -> None:
    """Writes .svg, .png or .pdf; the same report gives the same SVG."""
    for path in paths:
        metadata: dict[str, str | None] = {"Title": "fastgemm explain"}
        if path.suffix == ".svg":
            metadata |= {"Date": None, "Description": description}
        figure.savefig(path, dpi=150, metadata=metadata)
    pyplot().close(figure)
