#!/usr/bin/env python3
"""Shrinks the debug information of the simulator to what addr2line needs for the lines of its kernels.

    shrink_debug.py LIBRARY [OBJCOPY]

csrc/simt/CMakeLists.txt runs it on libfastgemm_simt.so, which it changes in place. There g++ -g1 writes 58 MB of
names, most of them arguments of templates. This program writes the entries (DWARF 5) anew:

- A function has its addresses and the name that a report shows. Functions without code are left out.
- An inlined call has its addresses, its line, and the name of the function.
- Calls within the device layer, the simulator and the standard library are left out, because reports leave out
  these frames (python/fastgemm/_explain/symbols.py, csrc/simt/symbols.cpp).

Kernels call the simulator for each access, so only the addresses behind calls are ever looked up. Ranges of
addresses and tables of lines therefore tell calls apart, and nothing between two calls. The only symbols that stay
are the kernels' shared variables, which the simulator reads.

Other compilers, older versions of DWARF and missing tools leave the library as it is, with a warning.
"""

from __future__ import annotations

import gc
import importlib.util
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dwarf import (
    ADDRESS,
    BLOCK,
    CALL_FILE,
    CALL_LINE,
    COMP_DIR,
    DECL_FILE,
    HIGH_PC,
    IMPLICIT,
    INLINED,
    LANGUAGE,
    LINKAGE_NAME,
    LOW_PC,
    NAME,
    OFFSET,
    ORIGIN,
    RANGES,
    SPECIFICATION,
    STMT_LIST,
    STRP,
    SUBPROGRAM,
    UDATA,
    UNIT,
    Attribute,
    Entry,
    abbreviations,
    as_leb,
    files,
    leb,
    number,
    text,
    tree,
)
from dwarf_calls import OFFSET_PAIR, Calls, calls_of, lines_of_calls, ranges_at

# The launcher's own line stays: it tells where a kernel ends.
BENEATH = re.compile(r"/cuda/device/(?!launch\.cuh)|/csrc/simt/|/include/c\+\+/")
LONGEST_NAME = 100  # characters; a longer one loses the arguments of its templates
SHARED_VARIABLE = "_ZZN8fastgemm4simt*"  # as in csrc/simt/symbols.cpp
LAMBDAS = "*_cl[EI]*", "*_4_FUNE*"  # their functions have names that begin like that, too

# The contents of an abbreviation: tag, whether there are children, attributes.
Key = tuple[int, bool, tuple[Attribute, ...]]

# The attributes that stay of each kind of entry.
KEPT = {
    UNIT: (NAME, COMP_DIR, STMT_LIST, LANGUAGE, LOW_PC, HIGH_PC, RANGES),
    SUBPROGRAM: (LOW_PC, HIGH_PC, RANGES),
    INLINED: (LOW_PC, HIGH_PC, RANGES, CALL_FILE, CALL_LINE),
}
# The head of a unit: length, version, kind, bytes of an address, place of its abbreviations.
HEAD = struct.Struct("<IHBBI")


class Names:
    """The new .debug_str: the names that reports show."""

    def __init__(self, old: bytes) -> None:
        self.old = old
        self.uses: dict[int, list[int]] = {}  # by place in the old section: where new entries refer to it

    def patch(self, info: bytearray) -> bytes:
        mangled = [text(self.old, at) for at in self.uses]
        spec = importlib.util.spec_from_file_location(
            "kernel_names", Path(__file__).parent.parent / "python/fastgemm/_explain/kernel_names.py"
        )
        kernel_names = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernel_names)
        asked = "\n".join(mangled).encode()
        demangled = subprocess.run(["c++filt"], input=asked, capture_output=True, check=True).stdout.decode()
        new, known = bytearray(1), {}
        for uses, name in zip(self.uses.values(), demangled.split("\n"), strict=True):
            short = kernel_names.short_name(name)
            while len(short) > LONGEST_NAME and (shorter := re.sub(r"<[^<>]*>", "", short)) != short:
                short = shorter
            if short not in known:
                known[short] = len(new)
                new += short.encode() + b"\0"
            for use in uses:
                struct.pack_into("<I", info, use, known[short])
        return bytes(new)


class Unit:
    """The entries of one unit, and the entries that remain."""

    def __init__(
        self, entries: dict[int, Entry], start: int, paths: list[str], calls: Calls, ranges: bytes
    ) -> None:
        self.entries, self.start, self.paths = entries, start, paths
        self.calls, self.ranges = calls, ranges
        low = next(iter(entries.values())).values.get(LOW_PC)
        self.base = number(low[2]) if low else 0  # lists of ranges count from it

    def addresses(self, entry: Entry) -> list[tuple[int, int]]:
        """The ranges of an entry, reduced to its calls."""
        if RANGES in entry.values:
            found = ranges_at(self.ranges, number(entry.values[RANGES][2]), self.base)
        elif LOW_PC in entry.values:
            begin, size = (number(entry.values[each][2]) for each in (LOW_PC, HIGH_PC))
            one = self.calls.between(begin, begin + size)
            return [one] if one else []
        else:
            found = []
        return self.calls.among(found)

    def origin(self, entry: Entry) -> Entry:
        """The entry that declares a function."""
        while (link := entry.values.get(ORIGIN) or entry.values.get(SPECIFICATION)) is not None:
            entry = self.entries[self.start + number(link[2])]
        return entry

    def name(self, entry: Entry) -> int | None:
        """Where its name begins in .debug_str; the linkage name if there is one, as addr2line chooses it."""
        values = self.origin(entry).values
        form, _, value = values.get(LINKAGE_NAME) or values.get(NAME) or (None, b"", b"")
        return number(value) if form == STRP else None

    def beneath(self, entry: Entry, attribute: int) -> bool:
        """Whether an attribute names a file that no report shows."""
        found = entry.values.get(attribute)
        if found is None:
            return False
        form, constant, value = found
        return bool(BENEATH.search(self.paths[leb(constant, 0)[0] if form == IMPLICIT else number(value)]))

    def reduced(self, entry: Entry) -> list[Entry]:
        """The entries that remain of an entry: itself, its children, or nothing."""
        children = [kept for child in entry.children for kept in self.reduced(child)]
        if entry.tag == BLOCK:
            return children
        entry.ranges = self.addresses(entry)
        if entry.tag not in KEPT or not (entry.tag == UNIT or entry.ranges):
            return []
        entry.children = children
        alone = entry.tag == INLINED and not children
        if alone and self.beneath(entry, CALL_FILE) and self.beneath(self.origin(entry), DECL_FILE):
            return []
        return [entry]


class Writer:
    def __init__(self, strings: bytes) -> None:
        self.info, self.abbreviations, self.names = bytearray(), dict[Key, int](), Names(strings)
        self.ranges = bytearray()

    def place(self, entry: Entry, ranges: list[tuple[int, int]], base: int) -> None:
        """Gives an entry its addresses: a range, or the place of a new list that counts from ``base``."""
        for each in (LOW_PC, HIGH_PC, RANGES):
            entry.values.pop(each, None)
        if entry.tag == UNIT or len(ranges) == 1:
            begin = base if entry.tag == UNIT else ranges[0][0]
            entry.values[LOW_PC] = ADDRESS, b"", struct.pack("<Q", begin)
        if entry.tag != UNIT and len(ranges) == 1:
            entry.values[HIGH_PC] = UDATA, b"", as_leb(ranges[0][1] - ranges[0][0])
            return
        entry.values[RANGES] = OFFSET, b"", struct.pack("<I", len(self.ranges) + HEAD.size)
        for begin, end in ranges:
            self.ranges += bytes([OFFSET_PAIR]) + as_leb(begin - base) + as_leb(end - base)
        self.ranges.append(0)

    def write(self, entry: Entry, unit: Unit, base: int) -> None:
        self.place(entry, entry.ranges, base)
        kept = [(each, *entry.values[each]) for each in KEPT[entry.tag] if each in entry.values]
        name = unit.name(entry) if entry.tag != UNIT else None
        attributes = [(each, form, constant) for each, form, constant, _ in kept]
        # For any other name, addr2line would take that of the symbol.
        attributes += [(LINKAGE_NAME, STRP, b"")] if name is not None else []
        key = (entry.tag, bool(entry.children), tuple(attributes))
        self.info += as_leb(self.abbreviations.setdefault(key, len(self.abbreviations) + 1))
        self.info += b"".join(value for *_, value in kept)
        if name is not None:
            self.names.uses.setdefault(name, []).append(len(self.info))
            self.info += bytes(4)
        for child in entry.children:
            self.write(child, unit, base)
        if entry.children:
            self.info.append(0)

    def sections(self) -> Iterator[tuple[str, bytes]]:
        strings = self.names.patch(self.info)
        yield "info", bytes(self.info)
        yield "str", strings
        yield "rnglists", HEAD.pack(len(self.ranges) + HEAD.size - 4, 5, 8, 0, 0) + self.ranges
        table = bytearray()
        for (tag, children, attributes), code in self.abbreviations.items():
            table += as_leb(code) + as_leb(tag) + bytes([children])
            for attribute, form, constant in attributes:
                table += as_leb(attribute) + as_leb(form) + constant
            table += bytes(2)
        yield "abbrev", bytes(table) + bytes(1)


def shrunk(old: dict[str, bytes], calls: Calls) -> Iterator[tuple[str, bytes]]:
    info, writer, at, lines = old["info"], Writer(old["str"]), 0, bytearray()
    while at < len(info):
        length, version, kind, address, table = HEAD.unpack_from(info, at)
        if (version, kind, address) != (5, 1, 8):
            raise SystemExit(f"shrink_debug: a unit is of DWARF {version}, kind {kind}; expected 5, 1")
        end = at + 4 + length
        entries = tree(info, at + HEAD.size, end, abbreviations(old["abbrev"], table))
        root = entries[at + HEAD.size]
        form, _, place = root.values[STMT_LIST]
        table = number(place)
        unit = Unit(entries, at, files(old["line"], table, old["line_str"]), calls, old["rnglists"])
        root.values[STMT_LIST] = form, b"", struct.pack("<I", len(lines))
        lines += lines_of_calls(old["line"], table, calls)
        begin = len(writer.info)
        writer.info += bytes(HEAD.size)
        for kept in unit.reduced(root):
            writer.write(kept, unit, min((each[0] for each in root.ranges), default=0))
        HEAD.pack_into(writer.info, begin, len(writer.info) - begin - 4, 5, 1, 8, 0)
        at = end
    yield "line", bytes(lines)
    yield from writer.sections()


def shrink(library: str, objcopy: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = {
            name: Path(folder, name) for name in ("info", "abbrev", "str", "line", "line_str", "rnglists")
        }
        dumped = [f"--dump-section=.debug_{name}={place}" for name, place in places.items()]
        subprocess.run([objcopy, *dumped, library, "/dev/null"], check=True)
        old = {name: place.read_bytes() for name, place in places.items()}
        # In one run with the new contents, objcopy would mark them as compressed without compressing them.
        command = [objcopy, "--remove-section", ".debug_aranges"]
        for name, data in shrunk(old, calls_of(library)):
            places[name].write_bytes(data)
            command += ["--update-section", f".debug_{name}={places[name]}"]
        reduced = Path(folder, "reduced")
        subprocess.run([*command, library, reduced], check=True)
        command = [objcopy, "--compress-debug-sections=zlib", "--wildcard", "--strip-unneeded"]
        command += ["--keep-section", ".debug_*"]
        for pattern in (*(f"!{lambdas}" for lambdas in LAMBDAS), SHARED_VARIABLE):
            command += ["--keep-symbol", pattern]
        subprocess.run([*command, reduced], check=True)
        shutil.copy(reduced, library)


def main(library: str, objcopy: str = "objcopy") -> None:
    gc.disable()  # hundreds of thousands of entries, without cycles
    try:
        shrink(library, objcopy)
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError, struct.error, SystemExit) as error:
        print(f"shrink_debug: {error!r}. The debug information stays as long as it is.", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
