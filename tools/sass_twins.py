"""What tools/check_sass.py compares if some kernels or architectures were not built (FASTGEMM_CUDA_TWINS=OFF of
csrc/cuda/cuda.cmake). It works on the table of docs/cuda_kernels.md, and on resources by architecture and name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Resources = dict[str, dict[str, list[int]]]

# The types, layouts and tiles whose kernels .ci/run leaves out (kIsBuilt of csrc/cuda/device/dispatch.cuh,
# with_majors of operand_tile.cuh, kIsBuiltFor of wgmma_specialized.cu), and their twins.
TWINS = (
    (r"\bHalf\b", "BFloat16"),
    (r"\bMixedBytes<\w+, \w+>|\buint8\b", "int8"),
    (r"Fp8\)1", "Fp8)0"),
    (r"\(Major\)(0, \(Major\)1|1, \(Major\)0)", "(Major)0, (Major)0"),
    (r"(Lower|Mirrored)Shape<(128|192)>", r"\1Shape<256>"),
)


def twins(name: str) -> list[str]:
    """The kernels like this one, of which .ci/run compiles one: of other types, then also with other majors."""
    return [name := re.sub(pattern, other, name) for pattern, other in TWINS]


def left_out(stored: Resources, built: set[str]) -> set[str]:
    """The stored names of kernels that were not built, although their twins were."""
    names = {name for found in stored.values() for name in found}
    return {name for name in names - built if not built.isdisjoint(twins(name))}


def without_lines(table: str, names: set[str]) -> str:
    """The table without the kernels that have instantiations of these names."""
    kernels = {f" `{name.partition('<')[0]}` " for name in names}
    lines = table.splitlines(keepends=True)
    return "".join(line for line in lines if line.split("|")[2] not in kernels)


def without_columns(table: str, archs: set[str]) -> str:
    """The table without the registers on these architectures."""
    rows = [line.split("|") for line in table.splitlines(keepends=True)]
    kept = [i for i, cell in enumerate(rows[0]) if cell.strip().removeprefix("registers, ") not in archs]
    return "".join("|".join(row[i] for i in kept) for row in rows)


def without_cells(table: str, shown: Sequence[str], compiled_for: Mapping[str, set[str]]) -> str:
    """The table without what depends on architectures for which a file was not compiled: their registers, and all
    that is read from the first of the architectures ``shown``."""
    lines = table.splitlines(keepends=True)
    head = [cell.strip() for cell in lines[0].split("|")]
    for i, line in enumerate(lines):
        *cells, end = line.split("|")
        archs = compiled_for.get(cells[1].strip(), {*shown})
        for j, title in enumerate(head[4:-1], 4):
            arch = title.removeprefix("registers, ") if title.startswith("registers") else shown[0]
            cells[j] = cells[j] if arch in archs else " "
        lines[i] = "|".join([*cells, end])
    return "".join(lines)


def of_built(
    stored: Resources,
    built: Sequence[str],
    lacking: set[str],
    sources: Mapping[str, set[str]],
    compiled_for: Mapping[str, set[str]],
) -> Resources:
    """The resources without the architectures and the names that were not built. ``sources``: the files of a name.
    ``compiled_for``: the architectures for which these files were compiled."""

    def counts(name: str, arch: str) -> bool:
        files = sources.get(name, set())
        return name not in lacking and (not files or any(arch in compiled_for[file] for file in files))

    return {a: {n: of[n] for n in of if counts(n, a)} for a, of in stored.items() if a in built}
