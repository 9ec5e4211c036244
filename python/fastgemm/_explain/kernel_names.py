"""One name for a kernel's instantiation, for both compilers: nvcc for a GPU and g++ for the simulator.

tools/check_sass.py loads this file by its path, without the package.
"""

from __future__ import annotations

import re

# The simulator may name it by its launcher: Launcher<&(void name<...>(...))>, Launcher<&name>.
_LAUNCHER = re.compile(r"Launcher<&\(?(?:void )?(.*?)\)?>$")
_QUALIFIERS = re.compile(r"fastgemm::(?:cuda|simt|scalar)::|\(anonymous namespace\)::|^void ")
_SHORTER = tuple(
    (re.compile(long, re.ASCII), short)
    for long, short in (
        (r"\bunsigned (\w+)", r"u\1"),
        (r"\bsigned char\b", "int8"),
        (r"\buchar\b", "uint8"),
        (r"\bushort\b", "uint16"),
        (r"\buint\b", "uint32"),
        (r"\bulong\b", "uint64"),
        (r"\bint\b", "int32"),
        (r"\bshort\b", "int16"),
        (r"> (?=>)", ">"),
        (r"\bGemm<(\w+)>", r"\1"),  # a plain product
    )
)


def short_name(demangled: str) -> str:
    """gemm_naive_kernel<Half, true> of void fastgemm::cuda::(anonymous namespace)::gemm_naive_kernel<...>(...)."""
    name = _LAUNCHER.sub(r"\1", _QUALIFIERS.sub("", demangled))
    depth = 0
    for i, c in enumerate(name):  # up to the parameter list: the first parenthesis outside angle brackets
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:i]
            break
    for long, short in _SHORTER:
        name = long.sub(short, name)
    return name
