"""Reduces ranges of addresses and tables of lines of DWARF 5 to what tells calls apart, for shrink_debug.py."""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from dwarf import after_leb, as_leb, as_signed_leb, leb, number, signed_leb, text

# Kinds of entries in a list of ranges.
OFFSET_PAIR, BASE, BEGIN_END, BEGIN_LENGTH = 4, 5, 6, 7
# Operations of a table of lines. Those from OPCODES on advance address and line, and add a row.
COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, CONST_ADD_PC, FIXED_ADVANCE_PC, OPCODES = 1, 2, 3, 4, 8, 9, 13
END_OF_SEQUENCE, SET_ADDRESS = 1, 2


def calls_of_x86(code: bytes, begin: int) -> list[int]:
    """The last byte of each call in a section of code. A call is found by its first byte and its target, which
    lies in the section or before it. Some are bytes of other instructions, which does no harm."""
    found = re.finditer(rb"(?s)(?=\xe8(.{4}))", code)
    ends = ((begin + each.start() + 5, int.from_bytes(each[1], "little", signed=True)) for each in found)
    return [end - 1 for end, to in ends if 0 <= end + to < begin + len(code)]


def calls_of_arm(code: bytes, begin: int) -> list[int]:
    words = struct.iter_unpack("<I", code[: len(code) // 4 * 4])
    return [begin + 4 * i + 3 for i, (word,) in enumerate(words) if word >> 26 == 0b100101]


CALLS_OF = {62: calls_of_x86, 183: calls_of_arm}  # by the machine that an ELF file names


class Calls:
    """The addresses that are looked up, in ascending order: the last byte of each call."""

    def __init__(self, at: list[int]) -> None:
        self.at = at

    def between(self, begin: int, end: int) -> tuple[int, int] | None:
        """The shortest range with the same calls as this one, or None without any."""
        first = bisect_left(self.at, begin)
        if first == len(self.at) or self.at[first] >= end:
            return None
        return self.at[first], self.at[bisect_left(self.at, end, first) - 1] + 1

    def among(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The shortest ranges with the same calls; those between which no call lies are one."""
        found: list[list[int]] = []
        for begin, end in sorted(
            (bisect_left(self.at, begin), bisect_left(self.at, end)) for begin, end in ranges
        ):
            if found and begin <= found[-1][1]:
                found[-1][1] = max(found[-1][1], end)
            elif begin < end:
                found.append([begin, end])
        return [(self.at[begin], self.at[end - 1] + 1) for begin, end in found]


def ranges_at(data: bytes, at: int, base: int) -> list[tuple[int, int]]:
    """A list of ranges of .debug_rnglists. ``base``: the first address of its unit."""
    found = []
    while kind := data[at]:
        at += 1
        begin = number(data[at : at + 8])
        if kind == OFFSET_PAIR:
            begin, at = leb(data, at)
            end, at = leb(data, at)
            found.append((base + begin, base + end))
            continue
        at += 8
        if kind == BASE:
            base = begin
        elif kind == BEGIN_END:
            found.append((begin, number(data[at : at + 8])))
            at += 8
        elif kind == BEGIN_LENGTH:
            length, at = leb(data, at)
            found.append((begin, begin + length))
        else:
            raise SystemExit(f"shrink_debug: entry {kind} of a list of ranges is unknown")
    return found


Row = tuple[int, int, int]  # address, file, line; the file is 0 at the end of a sequence


def rows_of(data: bytes, at: int, end: int, step: int, base: int, span: int) -> Iterator[Row]:
    """The rows of a table of lines, whose operations begin at ``at``. ``step``: the bytes of the shortest
    instruction; ``base`` and ``span``: of its lines."""
    address, file, line = 0, 1, 1
    while at < end:
        code, at = data[at], at + 1
        if code >= OPCODES:
            address += step * ((code - OPCODES) // span)
            line += base + (code - OPCODES) % span
            yield address, file, line
        elif code == 0:
            size, at = leb(data, at)
            if data[at] == END_OF_SEQUENCE:
                yield address, 0, 0
                address, file, line = 0, 1, 1
            elif data[at] == SET_ADDRESS:
                address = number(data[at + 1 : at + size])
            at += size
        elif code == COPY:
            yield address, file, line
        elif code == ADVANCE_PC:
            more, at = leb(data, at)
            address += step * more
        elif code == ADVANCE_LINE:
            more, at = signed_leb(data, at)
            line += more
        elif code == SET_FILE:
            file, at = leb(data, at)
        elif code == CONST_ADD_PC:
            address += step * ((255 - OPCODES) // span)
        elif code == FIXED_ADVANCE_PC:
            address, at = address + number(data[at : at + 2]), at + 2
        else:  # the others say nothing of addresses and lines; two have a number
            at = after_leb(data, at) if code in (5, 12) else at


def as_operations(rows: list[Row], end: int, base: int, span: int) -> bytes:
    """One sequence of these rows, which ends at the address ``end``; the step is a byte."""
    address, file, line = rows[0][0], 1, 1
    made = bytearray([0, 9, SET_ADDRESS]) + struct.pack("<Q", address)
    for at, of, number_of_line in rows:
        if of != file:
            made += bytes([SET_FILE]) + as_leb(of)
        down, on = number_of_line - line, at - address
        if not base <= down < base + span:
            made += bytes([ADVANCE_LINE]) + as_signed_leb(down)
            down = 0
        if down - base + span * on + OPCODES > 255:
            made += bytes([ADVANCE_PC]) + as_leb(on)
            on = 0
        made.append(down - base + span * on + OPCODES)
        address, file, line = at, of, number_of_line
    return bytes(made + bytes([ADVANCE_PC]) + as_leb(end - address) + bytes([0, 1, END_OF_SEQUENCE]))


def lines_of_calls(data: bytes, at: int, calls: Calls) -> bytes:
    """The table of lines at ``at``, with rows for calls alone."""
    size, head = number(data[at : at + 4]), number(data[at + 8 : at + 12])
    begin, end = at + 12 + head, at + 4 + size
    base, span, opcodes = (
        int.from_bytes(data[at + 15 : at + 16], "little", signed=True),
        data[at + 16],
        data[at + 17],
    )
    if opcodes != OPCODES:
        raise SystemExit(f"shrink_debug: a table of lines has {opcodes} operations; expected {OPCODES}")
    found, last = [], None
    for row in rows_of(data, begin, end, data[at + 12], base, span):
        if last and last[1] and (inside := calls.between(last[0], row[0])):
            found.append((*inside, last))
        last = row
    operations, rows, before = b"", list[Row](), 0
    for first, behind, (_, file, line) in sorted(found):
        if rows and calls.between(before, first):  # of other units: a sequence ends
            operations, rows = operations + as_operations(rows, before, base, span), []
        if not rows or rows[-1][1:] != (file, line):
            rows.append((first, file, line))
        before = behind
    operations += as_operations(rows, before, base, span) if rows else b""
    heading = struct.pack("<I", begin - at - 4 + len(operations)) + data[at + 4 : at + 12] + bytes([1])
    return heading + data[at + 13 : begin] + operations


def calls_of(library: str) -> Calls:
    data = Path(library).read_bytes()
    table, size, count, names = (number(data[at : at + n]) for at, n in ((40, 8), (58, 2), (60, 2), (62, 2)))
    # Name, kind, flags, address, offset, size.
    sections = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    text_of = sections[names][4]
    address, at, length = next(each[3:] for each in sections if text(data, text_of + each[0]) == ".text")
    if (calls := CALLS_OF.get(number(data[18:20]))) is None:
        raise SystemExit("shrink_debug: the calls of this machine are unknown")
    return Calls(calls(data[at : at + length], address))
