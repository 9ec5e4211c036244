#!/usr/bin/env python3
"""Shrinks the debug information of the simulator to what addr2line needs for the lines of its kernels.

    shrink_debug.py LIBRARY [OBJCOPY]

csrc/simt/CMakeLists.txt runs it on libfastgemm_simt.so, which it changes in place. There g++ -g1 writes 58 MB of
names, most of them arguments of templates. This program writes the entries (DWARF 5) anew:

- A function has its addresses and the name that a report shows. Functions without code are left out.
- An inlined call has its addresses, its line, and the name of the function.
- Calls within the device layer, the simulator and the standard library are left out, because reports leave out
  these frames (python/fastgemm/_explain/symbols.py, csrc/simt/symbols.cpp).

The tables of lines stay as they are. The only symbols that stay are the kernels' shared variables, which the
simulator reads.

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
from dataclasses import dataclass, field
from pathlib import Path

# The launcher's own line stays: it tells where a kernel ends.
BENEATH = re.compile(r"/cuda/device/(?!launch\.cuh)|/csrc/simt/|/include/c\+\+/")
LONGEST_NAME = 100  # characters; a longer one loses the arguments of its templates
SHARED_VARIABLE = "_ZZN8fastgemm4simt*"  # as in csrc/simt/symbols.cpp
LAMBDAS = "*_cl[EI]*", "*_4_FUNE*"  # their functions have names that begin like that, too

# Numbers of the DWARF 5 standard, sections 7.5 and 7.25.
UNIT, SUBPROGRAM, INLINED, BLOCK = 0x11, 0x2E, 0x1D, 0x0B  # tags
NAME, STMT_LIST, LOW_PC, HIGH_PC, LANGUAGE, COMP_DIR = 0x03, 0x10, 0x11, 0x12, 0x13, 0x1B  # attributes
ORIGIN, DECL_FILE, SPECIFICATION, RANGES = 0x31, 0x3A, 0x47, 0x55
CALL_FILE, CALL_LINE, LINKAGE_NAME = 0x58, 0x59, 0x6E
STRING, BLOCK1, SDATA, STRP = 0x08, 0x0A, 0x0D, 0x0E  # forms
UDATA, EXPRLOC, LINE_STRP, IMPLICIT = 0x0F, 0x18, 0x1F, 0x21
# The forms of fixed size with their bytes: addresses and data, flags, offsets.
FIXED = {0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x1E: 16, 0x0C: 1, 0x19: 0}
FIXED |= {0x13: 4, 0x17: 4, STRP: 4, LINE_STRP: 4}
KEPT = {
    UNIT: (NAME, COMP_DIR, STMT_LIST, LANGUAGE, LOW_PC, HIGH_PC, RANGES),
    SUBPROGRAM: (LOW_PC, HIGH_PC, RANGES),
    INLINED: (LOW_PC, HIGH_PC, RANGES, CALL_FILE, CALL_LINE),
}
# For each kind of entry in a list of ranges: the bytes of its addresses, and the LEB128 numbers that follow.
RANGE_PARTS = {4: (0, 2), 5: (8, 0), 6: (16, 0), 7: (8, 1)}
# The head of a unit: length, version, kind, bytes of an address, place of its abbreviations.
HEAD = struct.Struct("<IHBBI")


def after_leb(data: bytes, at: int) -> int:
    while data[at] >= 128:
        at += 1
    return at + 1


def leb(data: bytes, at: int) -> tuple[int, int]:
    """The LEB128 number at an offset, and the offset after it."""
    end = after_leb(data, at)
    return sum((byte & 127) << 7 * i for i, byte in enumerate(data[at:end])), end


def as_leb(value: int) -> bytes:
    return bytes([value & 127 | 128]) + as_leb(value >> 7) if value >= 128 else bytes([value])


def after(form: int, data: bytes, at: int) -> int:
    """The offset after a value of this form."""
    if (size := FIXED.get(form)) is not None:
        return at + size
    if form in (UDATA, SDATA):
        return after_leb(data, at)
    if form == EXPRLOC:
        size, at = leb(data, at)
        return at + size
    if form == BLOCK1:
        return at + 1 + data[at]
    if form == STRING:
        return data.index(0, at) + 1
    raise SystemExit(f"shrink_debug: form {form:#x} is unknown")


def text(data: bytes, at: int) -> str:
    return data[at : data.index(0, at)].decode()


def number(value: bytes) -> int:
    return int.from_bytes(value, "little")


Attribute = tuple[int, int, bytes]  # its number, its form, and the constant of an implicit form
# For each code: tag, whether there are children, attributes.
Abbreviations = dict[int, tuple[int, int, list[Attribute]]]


# The contents of an abbreviation: tag, whether there are children, attributes.
Key = tuple[int, bool, tuple[Attribute, ...]]


@dataclass
class Entry:
    tag: int
    values: dict[int, tuple[int, bytes, bytes]]  # by attribute: form, constant, value
    children: list[Entry] = field(default_factory=list)


def abbreviations(data: bytes, at: int) -> Abbreviations:
    found = {}
    while data[at]:
        code, at = leb(data, at)
        tag, at = leb(data, at)
        children, at = data[at], at + 1
        attributes = []
        while data[at]:
            attribute, at = leb(data, at)
            form, at = leb(data, at)
            end = after_leb(data, at) if form == IMPLICIT else at
            attributes.append((attribute, form, data[at:end]))
            at = end
        at += 2
        found[code] = tag, children, attributes
    return found


def tree(info: bytes, start: int, end: int, known: Abbreviations) -> dict[int, Entry]:
    """The entries of a unit by their offsets, the unit's own first."""
    found: dict[int, Entry] = {}
    parents: list[Entry] = []
    at = start
    while at < end:
        place = at
        code, at = leb(info, at)
        if not code:
            parents.pop()
            continue
        tag, has_children, attributes = known[code]
        values = {}
        for attribute, form, constant in attributes:
            behind = at if form == IMPLICIT else after(form, info, at)
            values[attribute] = form, constant, info[at:behind]
            at = behind
        entry = found[place] = Entry(tag, values)
        if parents:
            parents[-1].children.append(entry)
        if has_children:
            parents.append(entry)
    return found


def files(line: bytes, at: int, strings: bytes) -> list[str]:
    """The paths that a unit's entries name by number: from the head of its table of lines."""
    if (version := number(line[at + 4 : at + 6])) != 5:
        raise SystemExit(f"shrink_debug: a table of lines is of DWARF {version}; expected 5")
    at += 12  # before the length of an instruction
    at += 6 + line[at + 5] - 1
    tables = []
    for _ in range(2):  # folders, files
        formats = []
        count, at = line[at], at + 1
        for _ in range(count):
            kind, at = leb(line, at)
            form, at = leb(line, at)
            formats.append((kind, form))
        count, at = leb(line, at)
        table = []
        for _ in range(count):
            fields = {}
            for kind, form in formats:
                behind = after(form, line, at)
                value = leb(line, at)[0] if form == UDATA else number(line[at:behind])
                fields[kind] = text(strings, value) if form == LINE_STRP else value
                at = behind
            table.append(fields)
        tables.append(table)
    folders, names = tables
    return [f"{folders[each[2]][1]}/{each[1]}" for each in names]


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

    def __init__(self, entries: dict[int, Entry], start: int, paths: list[str]) -> None:
        self.entries, self.start, self.paths = entries, start, paths

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
        if entry.tag not in KEPT or not (entry.tag == UNIT or {LOW_PC, RANGES} & entry.values.keys()):
            return []
        entry.children = children
        alone = entry.tag == INLINED and not children
        if alone and self.beneath(entry, CALL_FILE) and self.beneath(self.origin(entry), DECL_FILE):
            return []
        return [entry]


class Writer:
    def __init__(self, strings: bytes, ranges: bytes) -> None:
        self.info, self.abbreviations, self.names = bytearray(), dict[Key, int](), Names(strings)
        self.old_ranges, self.places = ranges, dict[int, int]()
        self.ranges = bytearray()

    def list_of_ranges(self, at: int) -> int:
        """The place of a list in the new section; each is copied once."""
        if at not in self.places:
            end = at
            while self.old_ranges[end]:
                addresses, numbers = RANGE_PARTS[self.old_ranges[end]]
                end += 1 + addresses
                for _ in range(numbers):
                    end = after_leb(self.old_ranges, end)
            self.places[at] = len(self.ranges) + HEAD.size
            self.ranges += self.old_ranges[at : end + 1]
        return self.places[at]

    def write(self, entry: Entry, unit: Unit) -> None:
        kept = [(each, *entry.values[each]) for each in KEPT[entry.tag] if each in entry.values]
        name = unit.name(entry) if entry.tag != UNIT else None
        attributes = [(each, form, constant) for each, form, constant, _ in kept]
        # For any other name, addr2line would take that of the symbol.
        attributes += [(LINKAGE_NAME, STRP, b"")] if name is not None else []
        key = (entry.tag, bool(entry.children), tuple(attributes))
        self.info += as_leb(self.abbreviations.setdefault(key, len(self.abbreviations) + 1))
        for attribute, _, _, value in kept:
            if attribute == RANGES:
                value = struct.pack("<I", self.list_of_ranges(number(value)))
            self.info += value
        if name is not None:
            self.names.uses.setdefault(name, []).append(len(self.info))
            self.info += bytes(4)
        for child in entry.children:
            self.write(child, unit)
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


def shrunk(old: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    info, writer, at = old["info"], Writer(old["str"], old["rnglists"]), 0
    while at < len(info):
        length, version, kind, address, table = HEAD.unpack_from(info, at)
        if (version, kind, address) != (5, 1, 8):
            raise SystemExit(f"shrink_debug: a unit is of DWARF {version}, kind {kind}; expected 5, 1")
        end = at + 4 + length
        entries = tree(info, at + HEAD.size, end, abbreviations(old["abbrev"], table))
        root = entries[at + HEAD.size]
        unit = Unit(entries, at, files(old["line"], number(root.values[STMT_LIST][2]), old["line_str"]))
        begin = len(writer.info)
        writer.info += bytes(HEAD.size)
        for kept in unit.reduced(root):
            writer.write(kept, unit)
        HEAD.pack_into(writer.info, begin, len(writer.info) - begin - 4, 5, 1, 8, 0)
        at = end
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
        for name, data in shrunk(old):
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
