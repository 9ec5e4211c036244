"""Reads the machine code of the CUDA kernels that tools/compile_cuda.sh built, and checks what they promise.

    python tools/check_sass.py           check, and rewrite the table in docs/cuda_kernels.md and the registers
                                         and shared memory that `fastgemm explain` works with
    python tools/check_sass.py --check   check; write nothing, fail if either would change for the
                                         architectures and types that were built
    python tools/check_sass.py --kernel tiled   only that kernel's file, after KERNEL=tiled tools/compile_cuda.sh

A kernel fails if it uses local memory (spilled registers, arrays indexed at run time) on any architecture, or
if it promises 16-byte accesses and lacks them. Files named pitfall_* show these mistakes on purpose and
promise nothing. Needs cuobjdump and nvdisasm: `make .venv/.lint` installs both into .venv.

A kernel for Hopper is empty on other GPUs, and a kernel for other GPUs may be empty on Hopper. It is not
launched there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import sass_twins
from cuda_tools import missing, run

ROOT = Path(__file__).resolve().parent.parent
CUDA = ROOT / "csrc/cuda"
OBJECTS = ROOT / "build/cuda/CMakeFiles/fastgemm_cuda.dir/csrc/cuda"
DOCUMENT = ROOT / "docs/cuda_kernels.md"
EXPLAIN = ROOT / "python/fastgemm/_explain"
RESOURCES = ROOT / "csrc/simt/cuda_resources.def"
QUOTED = 'R"json(', ')json"\n'  # JSON as a literal of C++
BEGIN, END = "<!-- compiled kernels: begin -->\n", "<!-- compiled kernels: end -->"
# The architectures whose instructions are read. For others, made from the same PTX as sm_80, only registers
# are read.
HOPPER, PORTABLE = "sm_90a", "sm_80"
RESERVED_SHARED = 1024  # bytes that sm_90 adds to a kernel's shared memory, if it has any

# Kinds of accesses and their instructions, such as LDG.E.128.CONSTANT and LDGSTS.E.BYPASS.LTC128B.128. The
# tensor memory accelerator has UTMALDG.3D (a box of a tensor) and UBLKCP (a row of bytes).
LOAD, STORE, SHARED_LOAD, SHARED_STORE = "global load", "global store", "shared load", "shared store"
BULK = "bulk copy"
OPCODES = {"LDG": LOAD, "LDGSTS": LOAD, "STG": STORE, "LDS": SHARED_LOAD, "LDSM": SHARED_LOAD}
OPCODES |= {"STS": SHARED_STORE, "UTMALDG": BULK, "UBLKCP": BULK, "LDL": "local", "STL": "local"}
# A label, or an instruction: its address, perhaps a predicate, its name, its suffixes.
LINE = re.compile(r"^\.text\.(\S+):$|^ +/\*[0-9a-f]{4,}\*/ +(?:@\S+ +)?(\w+)((?:\.\w+)*)", re.MULTILINE)
PADDING = ("NOP", "BRA")
WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}

# The 16-byte accesses that every instantiation of a kernel must have. A bulk copy counts as a load.
PROMISES = {
    r"gemm_vectorized_kernel<": {LOAD, SHARED_LOAD},
    r"gemm_cp_async_kernel<": {LOAD, SHARED_LOAD},
    r"gemm_small_kernel<": {LOAD, SHARED_LOAD},
    r"gemm_warp_specialized_kernel<": {LOAD, SHARED_LOAD},
    r"gemm_wgmma(_ring|_persistent|_boxes|_setmaxnreg|_wide|_deep|_overlapped|_fused|_specialized)?_kernel<": {
        LOAD
    },
    r"row_copies_kernel": {LOAD, STORE},
    r"transpose_(vectorized|saturating)_kernel<": {LOAD, STORE, SHARED_LOAD},
    r"transpose_pipelined_kernel<": {STORE, SHARED_LOAD},
    r"transpose_pipelined_kernel<.*\(Rows\)[02]>": {LOAD},  # Rows 1: copied by elements of 8 bytes
    r"add_vectors_kernel<[^,]+, (2|4|8|16),": {LOAD, STORE},
}

# Kernels that spill on this architecture only, and their bytes of stack. sm_120 has no fp64 tensor cores
# (dmma is never predicted to be fast there). The other kernels multiply bytes, with both operands contiguous
# along k, and need 255 registers a thread.
SPILLS = {
    (r"gemm_dmma(_rest)?_kernel<", "sm_120"): 8,
    (r"gemm_mma_sync_kernel<.*int8>?, true, true>", "sm_120"): 48,
}


def allowed_stack(name: str, arch: str) -> int:
    return max((n for (pattern, a), n in SPILLS.items() if a == arch and re.match(pattern, name)), default=0)


@dataclass
class Kernel:
    source: Path  # gemm/level1_naive.cu
    arch: str
    name: str  # gemm_naive_kernel<float, true>
    registers: int
    shared: int
    stack: int
    instructions: int = 0  # without padding; 0: not read
    accesses: Counter[tuple[str, int]] = field(default_factory=Counter)  # instructions by (kind, bytes)

    @property
    def empty(self) -> bool:
        """Whether it only sets up the stack and exits."""
        return 0 < self.instructions <= 2

    def wide(self, kind: str) -> int:
        return self.accesses[kind, 16]

    def problems(self) -> Iterator[str]:
        if self.source.name.startswith("pitfall_"):
            return
        local = sum(count for (kind, _), count in self.accesses.items() if kind == "local")
        if self.stack > allowed_stack(self.name, self.arch) or local:
            yield f"{self.stack} bytes of stack, {local} accesses to local memory"
        for pattern, kinds in PROMISES.items():
            if self.instructions and not self.empty and re.match(pattern, self.name):
                for kind in sorted(kinds):
                    if not self.wide(kind) and not (kind == LOAD and self.wide(BULK)):
                        yield f"no 16-byte {kind}"


def load_short_name() -> Callable[[str], str]:
    """The package's function of this name, loaded from its file, so that the package need not be built."""
    spec = importlib.util.spec_from_file_location("kernel_names", EXPLAIN / "kernel_names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.short_name


short_name = load_short_name()


def width_of(kind: str, suffixes: str) -> int:
    if kind == BULK:
        return 16
    return next((WIDTHS[s] for s in suffixes.split(".") if s in WIDTHS), 4)


def read_instructions(path: Path, arch: str, found: dict[tuple[str, str], Kernel]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run("cuobjdump", "--extract-elf", f".{arch}.", path.resolve(), folder=folder)
        for file in Path(folder).iterdir():
            kernel = None
            for m in LINE.finditer(run("nvdisasm", "--print-code", "--no-dataflow", file)):
                if m[1]:
                    kernel = found[arch, m[1]]
                elif kernel:
                    kernel.instructions += m[2] not in PADDING
                    if kind := OPCODES.get(m[2]):
                        kernel.accesses[kind, width_of(kind, m[3])] += 1


def read_object(path: Path, source: Path) -> list[Kernel]:
    found: dict[tuple[str, str], Kernel] = {}
    arch = ""
    usage = re.compile(r"arch = (\S+)| Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
    for m in usage.finditer(run("cuobjdump", "--dump-resource-usage", path)):
        arch = m[1] or arch
        if m[2]:
            registers, stack, shared, local = map(int, m.groups()[2:])
            shared -= RESERVED_SHARED if shared and int(re.sub(r"\D", "", arch)) >= 90 else 0
            found[arch, m[2]] = Kernel(source, arch, m[2], registers, shared, stack + local)
    for arch in {HOPPER, PORTABLE} & {arch for arch, _ in found}:
        read_instructions(path, arch, found)
    kernels = list(found.values())
    names = run("c++filt", text="\n".join(k.name for k in kernels)).splitlines()
    for k, name in zip(kernels, names, strict=True):
        k.name = short_name(name)
    return sorted(kernels, key=lambda k: (k.name, k.arch))


def launches(source: Path, kernel: str) -> bool:
    """Whether a file of csrc/cuda has the launcher of this kernel of the table, such as gemm_tiled."""
    text = (CUDA / source).read_text(encoding="utf-8")
    return (
        re.search(rf"^void (gemm|transpose|add)_{re.escape(kernel)}\(const", text, re.MULTILINE) is not None
    )


def read_kernels(folder: Path, kernel: str | None = None) -> list[Kernel]:
    """All kernels of the object files, empty ones too, in the order of the files, without device/, which has no
    kernels of the ladder. With ``kernel``, only the files that launch it are read."""
    found = {path: path.relative_to(folder).with_suffix("") for path in sorted(folder.rglob("*.cu.o"))}
    paths = [p for p, source in found.items() if source.parts[0] != "device" and (CUDA / source).exists()]
    if kernel is None:
        wanted = {p.relative_to(CUDA) for p in CUDA.rglob("*.cu")}
        if lacking := sorted(map(str, wanted - {*found.values()})):
            raise SystemExit(
                f"{len(lacking)} of {len(wanted)} files have no object under {folder}, the first is {lacking[0]}: "
                "tools/compile_cuda.sh builds them all; --kernel reads one kernel alone"
            )
    else:
        paths = [p for p in paths if launches(found[p], kernel)]
        if not paths:
            raise SystemExit(
                f"no object of {kernel} under {folder}: KERNEL={kernel} tools/compile_cuda.sh builds it"
            )
    with ProcessPoolExecutor() as pool:
        sources = [found[path] for path in paths]
        return [kernel for found in pool.map(read_object, paths, sources) for kernel in found]


def without_empty(kernels: list[Kernel]) -> list[Kernel]:
    unused = {(k.source, k.name) for k in kernels if k.arch == PORTABLE and k.empty}
    return [k for k in kernels if not (k.empty or (k.arch != HOPPER and (k.source, k.name) in unused))]


def architectures(kernels: list[Kernel]) -> list[str]:
    """sm_90a, sm_80, then the others that were built."""
    built = {k.arch for k in kernels}
    first = [arch for arch in (HOPPER, PORTABLE) if arch in built]
    return first + sorted(built - {*first}, key=lambda arch: int(re.sub(r"\D", "", arch)))


def extent(numbers: Iterable[int]) -> str:
    """Least and largest, such as "24 to 32"; empty if all are 0 or there are none."""
    found = sorted({*numbers})
    if not any(found):
        return ""
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def table(kernels: list[Kernel]) -> str:
    """A line for each kernel of a file, for all its instantiations."""
    kinds = (LOAD, BULK, STORE, SHARED_LOAD, SHARED_STORE)
    shown = architectures(kernels)
    head = ["file", "kernel", "compiled for", *(f"registers, {arch}" for arch in shown), "shared memory"]
    head += [f"{kind}s" if kind != BULK else "bulk copies" for kind in kinds]
    lines = ["| " + " | ".join(head) + " |", "| --- | --- |" + " ---: |" * (len(head) - 2)]
    by_name: dict[tuple[Path, str], dict[str, dict[str, Kernel]]] = {}
    for k in kernels:
        group = by_name.setdefault((k.source, k.name.partition("<")[0]), {})
        group.setdefault(k.name, {})[k.arch] = k
    for (source, name), group in by_name.items():
        first = [next(made[arch] for arch in shown if arch in made) for made in group.values()]
        cells = [f"{source}", f"`{name}`", str(len(group))]
        cells += [extent(made[arch].registers for made in group.values() if arch in made) for arch in shown]
        cells += [extent(k.shared for k in first) or "0"]
        cells += [extent(k.wide(kind) for k in first) for kind in kinds]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def resources(kernels: list[Kernel]) -> str:
    """Registers and static shared memory by architecture and name. For several kernels of one name: the
    largest."""
    parts: dict[str, dict[str, list[int]]] = {}
    for arch in architectures(kernels):
        found = parts[arch] = {}
        for k in kernels:
            if k.arch == arch:
                registers, shared = found.get(k.name, (0, 0))
                found[k.name] = [max(registers, k.registers), max(shared, k.shared)]
    return as_json(parts)


def as_json(parts: dict[str, dict[str, list[int]]]) -> str:
    """JSON with one line per kernel for all its instantiations, in the order of their names; as a literal of
    C++."""
    written = []
    for arch, found in parts.items():
        kernels = groupby(sorted(found), key=lambda name: name.partition("<")[0])
        lines = (", ".join(f"{json.dumps(n)}: {json.dumps(found[n])}" for n in names) for _, names in kernels)
        written.append(f'"{arch}": {{\n' + ",\n".join(lines) + "\n}")
    return QUOTED[0] + "{" + ",\n".join(written) + "}" + QUOTED[1]


def from_json(text: str) -> dict[str, dict[str, list[int]]]:
    """What :func:`as_json` wrote."""
    return json.loads(text.removeprefix(QUOTED[0]).removesuffix(QUOTED[1]))


def with_rows_of(new: str, old: str) -> str:
    """The table ``old``, with the rows of ``new`` replacing those of the same files. Raises SystemExit if the
    architectures differ."""
    head, shown = old.splitlines(keepends=True)[:2], new.splitlines(keepends=True)
    if shown[:2] != head:
        raise SystemExit(
            f"the objects are not for the architectures of {DOCUMENT.name}: {shown[0]}not {head[0]}"
        )
    file_of = re.compile(r"\| (\S+) \|")
    made = {file_of.match(row)[1] for row in shown[2:]}
    rows = [row for row in old.splitlines(keepends=True)[2:] if file_of.match(row)[1] not in made]
    # In the order of read_kernels. The sort is stable, so the rows of a file keep their order.
    return "".join(head + sorted([*rows, *shown[2:]], key=lambda row: Path(file_of.match(row)[1])))


def with_resources_of(new: str, old: str) -> str:
    """Registers and shared memory of both, of ``new`` for a name in both. What is no longer compiled leaves
    when all kernels are read."""
    made = from_json(new)
    return as_json({arch: found | made.get(arch, {}) for arch, found in from_json(old).items()})


def twins_left_out(objects: Path) -> bool:
    """Whether the build of these objects leaves out kernels that are like others (csrc/cuda/cuda.cmake)."""
    caches = (folder / "CMakeCache.txt" for folder in objects.resolve().parents)
    cache = next((path for path in caches if path.exists()), None)
    return cache is not None and "FASTGEMM_CUDA_TWINS:BOOL=OFF" in cache.read_text(encoding="utf-8")


def by_source(kernels: list[Kernel]) -> dict[str, set[str]]:
    """The architectures for which each file was compiled."""
    found: dict[str, set[str]] = {}
    for k in kernels:
        found.setdefault(str(k.source), set()).add(k.arch)
    return found


def stale_files(
    kernels: list[Kernel],
    only: bool = False,
    check: bool = False,
    compiled_for: dict[str, set[str]] | None = None,
) -> dict[Path, str]:
    """The generated files that are out of date, with their correct text. ``only``: only these kernels' rows
    change. ``check``: only what was built counts. ``compiled_for``: given if kernels that are like others were not
    built, nor some files for some of the architectures. Then a line of the table counts if all instantiations
    of its kernel were built."""
    text = DOCUMENT.read_text(encoding="utf-8")
    stored = RESOURCES.read_text(encoding="utf-8") if RESOURCES.exists() else ""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    new_table, new_resources, old = table(kernels), resources(kernels), text[start:end]
    if check:
        parts, built = from_json(stored), architectures(kernels)
        sources: dict[str, set[str]] = {}
        for k in kernels:
            sources.setdefault(k.name, set()).add(str(k.source))
        lacking = set() if compiled_for is None else sass_twins.left_out(parts, {*sources})
        of_file = compiled_for or {source: {*built} for source in by_source(kernels)}
        stored = as_json(sass_twins.of_built(parts, built, lacking, sources, of_file))
        old = sass_twins.without_columns(old, parts.keys() - built)
        old, new_table = (
            sass_twins.without_cells(sass_twins.without_lines(each, lacking), built, of_file)
            for each in (old, new_table)
        )
    if only:
        new_table = with_rows_of(new_table, old)
        new_resources = with_resources_of(new_resources, stored)
    page = text[:start] + new_table + text[end:]
    stale = {DOCUMENT: page} if new_table != old else {}
    return stale | ({RESOURCES: new_resources} if new_resources != stored else {})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    parser.add_argument("--kernel", help="only this kernel's file, and its rows of the generated files")
    parser.add_argument("--objects", type=Path, default=OBJECTS, help="folder of the objects of csrc/cuda")
    arguments = parser.parse_args()
    if lacking := missing("cuobjdump", "nvdisasm", "c++filt"):
        raise SystemExit(lacking)
    twins = not twins_left_out(arguments.objects)
    if not (twins or arguments.check):
        raise SystemExit("the build lacks kernels that are like others: tools/compile_cuda.sh builds all")
    found = read_kernels(arguments.objects, arguments.kernel)
    kernels, compiled_for = without_empty(found), None if twins else by_source(found)
    problems = [f"{k.source}: {k.name} ({k.arch}): {what}" for k in kernels for what in k.problems()]
    for pattern in PROMISES:
        if arguments.kernel is None and not any(re.match(pattern, k.name) for k in kernels):
            problems.append(f"no kernel is called {pattern}")
    for path, new in stale_files(
        kernels, arguments.kernel is not None, arguments.check, compiled_for
    ).items():
        if arguments.check:
            problems.append(
                f"{path.relative_to(ROOT)} is out of date: run tools/compile_cuda.sh and tools/check_sass.py"
            )
        else:
            path.write_text(new, encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(kernels)} kernels read, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
