"""Tests that the simulator's library has only the debug information and symbols that reports need, compressed."""

import struct
from pathlib import Path

import fastgemm
from reference import needs_simulator

pytestmark = needs_simulator

SHF_COMPRESSED = 1 << 11
HEADER = struct.Struct("<IIQQQQ")  # fields of a section: name, type, flags, address, offset, size


def sections(elf: bytes) -> dict[str, tuple[int, int]]:
    """The sections of a 64-bit ELF file by name, each with its flags and its size in the file."""
    (start,) = struct.unpack_from("<Q", elf, 40)
    step, count, names = struct.unpack_from("<HHH", elf, 58)
    found = [HEADER.unpack_from(elf, start + i * step) for i in range(count)]
    text = elf[found[names][4] :]
    return {
        text[name : text.index(b"\0", name)].decode(): (flags, size) for name, _, flags, _, _, size in found
    }


def test_debug_information_is_short_and_compressed():
    library = Path(fastgemm.__file__).parent / "libfastgemm_simt.so"
    found = sections(library.read_bytes())
    debug = {name: each for name, each in found.items() if name.startswith(".debug_")}
    assert ".debug_line" in debug
    plain = sum(size for flags, size in debug.values() if not flags & SHF_COMPRESSED)
    assert plain < 100_000, "objcopy leaves a section uncompressed only if it would not get smaller"
    assert sum(size for _, size in debug.values()) < library.stat().st_size / 14
    assert found[".strtab"][1] < library.stat().st_size / 100, "only the names of shared variables"
