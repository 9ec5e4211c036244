"""Reads debug information of DWARF 5, for shrink_debug.py."""

from __future__ import annotations

from dataclasses import dataclass, field

# Numbers of the DWARF 5 standard, sections 7.5 and 7.25.
UNIT, SUBPROGRAM, INLINED, BLOCK = 0x11, 0x2E, 0x1D, 0x0B  # tags
NAME, STMT_LIST, LOW_PC, HIGH_PC, LANGUAGE, COMP_DIR = 0x03, 0x10, 0x11, 0x12, 0x13, 0x1B  # attributes
ORIGIN, DECL_FILE, SPECIFICATION, RANGES = 0x31, 0x3A, 0x47, 0x55
CALL_FILE, CALL_LINE, LINKAGE_NAME = 0x58, 0x59, 0x6E
ADDRESS, STRING, BLOCK1, SDATA, STRP = 0x01, 0x08, 0x0A, 0x0D, 0x0E  # forms
UDATA, OFFSET, EXPRLOC, LINE_STRP, IMPLICIT = 0x0F, 0x17, 0x18, 0x1F, 0x21
# The forms of fixed size with their bytes: addresses and data, flags, offsets.
FIXED = {ADDRESS: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x1E: 16, 0x0C: 1, 0x19: 0}
FIXED |= {0x13: 4, OFFSET: 4, STRP: 4, LINE_STRP: 4}


def after_leb(data: bytes, at: int) -> int:
    while data[at] >= 128:
        at += 1
    return at + 1


def leb(data: bytes, at: int) -> tuple[int, int]:
    """The LEB128 number at an offset, and the offset after it."""
    value, shift = data[at], 7
    if value < 128:  # most are
        return value, at + 1
    value &= 127
    while (byte := data[at := at + 1]) >= 128:
        value, shift = value | (byte & 127) << shift, shift + 7
    return value | byte << shift, at + 1


def as_leb(value: int) -> bytes:
    return bytes([value & 127 | 128]) + as_leb(value >> 7) if value >= 128 else bytes([value])


def signed_leb(data: bytes, at: int) -> tuple[int, int]:
    value, end = leb(data, at)
    bits = 7 * (end - at)
    return value - (value >> bits - 1 << bits), end


def as_signed_leb(value: int) -> bytes:
    done = -64 <= value < 64
    return bytes([value & 127]) if done else bytes([value & 127 | 128]) + as_signed_leb(value >> 7)


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


@dataclass(slots=True)
class Entry:
    tag: int
    values: dict[int, tuple[int, bytes, bytes]]  # by attribute: form, constant, value
    children: list[Entry] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)  # with calls; known once its unit is reduced


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
