"""The data of an operation after its run on the simulator, which the views of a report show."""

from __future__ import annotations

from dataclasses import dataclass

from .counts import Launch, Problem, Site, Totals, add_up
from .occupancy import Occupancy
from .roofline import Roofline


@dataclass(frozen=True, repr=False)
class Findings:
    """The data of a :class:`Report`, whose docstring describes the attributes."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    level: int | None
    kernel: str
    idea: str
    gpu: str
    launches: tuple[Launch, ...]
    roofline: Roofline | None
    notes: tuple[str, ...]
    error: str | None
    weight: str | None = None

    @property
    def title(self) -> str:
        sizes = "x".join(map(str, self.shape))
        layout = f" {self.layout}" if set(self.layout) > {"N"} or "T" in self.layout else ""
        level = f"level {self.level}, " if self.level else ""
        weight = f", {self.weight} weight" if self.weight else ""
        return f"{self.op} {self.dtype} {sizes}{layout}{weight}: {level}{self.kernel}"

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites of all launches, in the order of the source."""
        return tuple(site for launch in self.launches for site in launch.sites)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(problem for launch in self.launches for problem in launch.problems)

    @property
    def main(self) -> Launch | None:
        """The launch that does most of the work: the one with most requests."""
        return max(self.launches, key=lambda each: sum(site.requests for site in each.sites), default=None)

    @property
    def occupancy(self) -> Occupancy | None:
        """The occupancy of the main launch."""
        return self.main.occupancy if self.main else None

    @property
    def totals(self) -> Totals:
        return add_up(self.launches)
