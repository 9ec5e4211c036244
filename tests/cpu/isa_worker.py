"""test_isa.py runs this in a separate process, because the instruction set is chosen once per process.

tests/cpp/kernels_test.cpp checks transposes and additions of every set. Prints the units that kernels may
use, and what is predicted for them."""

import itertools
import re

import fastgemm
import pytest
import torch
import vendor_rows
from fastgemm import _introspect
from reference import DTYPES, FLOATS, LEVEL, check_gemm, random_tensor, result_dtype, rows

SIZES = [(1, 1, 1), (5, 7, 3), (17, 33, 9), (31, 65, 130), (48, 96, 64), (1, 300, 70), (200, 3, 50)]


def built_for_each_set() -> list[tuple[str, str, torch.dtype]]:
    """torch and levels 1 to 3 are the same under every set."""
    return [row for row in rows("gemm", "cpu") if 3 < LEVEL["gemm", "cpu", row[1]] < 7]


def check_gemm_rows() -> None:
    types: dict[str, list[torch.dtype]] = {}
    for _, kernel, dtype in built_for_each_set():
        of_kernel = types.setdefault(kernel, [])
        of_kernel.append(dtype)
        kind = result_dtype(dtype)
        flags = itertools.cycle(itertools.product((False, True), repeat=2))
        cases = [*zip([*SIZES, *3 * [(31, 65, 130)]], flags, strict=False)]
        # From the second type on, the types of a kernel share them.
        cases = cases if len(of_kernel) == 1 else cases[len(of_kernel) % 2 :: 2]
        for (m, n, k), (trans_a, trans_b) in cases:
            a = random_tensor(*((k, m) if trans_a else (m, k)), dtype=dtype)
            b = random_tensor(*((n, k) if trans_b else (k, n)), dtype=dtype)
            check_gemm(a, b, trans_a=trans_a, trans_b=trans_b, kernel=kernel)
            c = random_tensor(m, n, dtype=kind)
            check_gemm(a, b, c, alpha=-3, beta=2, trans_a=trans_a, trans_b=trans_b, kernel=kernel)
        if dtype in (torch.float16, torch.bfloat16):
            a, b = random_tensor(33, 40, dtype=dtype), random_tensor(40, 50, dtype=dtype)
            check_gemm(a, b, torch.randn(50), out_dtype=torch.float32, kernel=kernel)
        if dtype in FLOATS:
            a = random_tensor(20, 300, dtype=dtype)
            a[3, 5], a[7, 9] = torch.nan, torch.inf
            check_gemm(a, random_tensor(300, 40, dtype=dtype), kernel=kernel)
        check_gemm(random_tensor(3, 19, 700, dtype=dtype), random_tensor(700, 35, dtype=dtype), kernel=kernel)


def check_complex_rows() -> None:
    """Checks rows that take complex numbers directly: tiles and their edges, blocks of k, conjugated
    operands."""
    for dtype, bound in ((torch.complex64, 1e-5), (torch.complex128, 1e-13)):
        for kernel, (m, n, k) in itertools.product(("pipelined", "invariant"), [*SIZES, (70, 65, 1100)]):
            a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
            scale = bound * k**0.5 * 4
            for x, y in (
                (a, b),
                (a.mH.contiguous().mH, b),
                (a, b.conj()),
                (a.mT.contiguous().mT, b.mT.contiguous().mT),
            ):
                found = fastgemm.matmul(x, y, kernel=kernel)
                torch.testing.assert_close(found, x @ y, rtol=bound, atol=scale)
            c = torch.randn(m, n, dtype=dtype)
            found = fastgemm.gemm(a, b, c, alpha=-3, beta=2, kernel=kernel)
            torch.testing.assert_close(found, 2 * c - 3 * (a @ b), rtol=bound, atol=4 * scale)


def check_half_conversions() -> None:
    """A product with 1 keeps every float16 and bfloat16 number, and all rounding cases are as in torch."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16)
    rounding = torch.randn(1 << 14) * torch.logspace(-9, 9, 1 << 14)
    for dtype in (torch.float16, torch.bfloat16):
        numbers = every.view(dtype)
        numbers = numbers[numbers.isfinite() & ((numbers == 0) | (numbers.abs() >= torch.finfo(dtype).tiny))]
        one = torch.ones(1, 1, dtype=dtype)
        for level in (1, 4, 5, 6):
            assert torch.equal(fastgemm.matmul(numbers[:, None], one, level=level)[:, 0], numbers)
            # alpha = 0, c in float16: the epilogue widens, scales in float32 and rounds once
            c = numbers[None]
            zero = torch.zeros(1, c.shape[1], dtype=dtype)
            result = fastgemm.gemm(one, zero, c, beta=1 / 3, level=level)
            assert torch.equal(result, (c.float() * torch.tensor(1 / 3)).to(dtype))
        halves = fastgemm.add(rounding.to(dtype), rounding.to(dtype), alpha=0.0009765625)
        exact = rounding.to(dtype).double() * 1.0009765625
        assert torch.equal(halves, exact.to(torch.float32).to(dtype))


def check_missing_units() -> None:
    """With a lower instruction set the process uses no dedicated units, and their rows say so."""
    missing = [row for row in fastgemm.kernels("gemm", "cpu") if not row.available]
    for row in missing:
        a = torch.ones(4, 4).to(getattr(torch, row.dtypes[0]))
        with pytest.raises(
            RuntimeError,
            match=f"kernel '{row.name}' cannot run here: {re.escape(row.unavailable)}.*levels that can",
        ):
            fastgemm.matmul(a, a, kernel=row.name)
        check_gemm(a, a, level=row.level)  # the level finds another row
    names = {row.name for row in missing}
    assert {"dot_bf16", "dot_int8", "amx_bf16", "amx_int8"} <= names, names


def print_predictions() -> None:
    cpu = _introspect.cpu_properties()
    key = ("gemm", "cpu", "float16", "float16", "ieee", False, False, False, 1, 1, 512, 512, 512)
    print(cpu["isa"], cpu["vnni"], cpu["dot_bf16"], cpu["amx_bf16"], cpu["fp16"])
    print(_introspect.chosen(key))


if __name__ == "__main__":
    for dtype in DTYPES:
        check_gemm(random_tensor(130, 70, dtype=dtype), random_tensor(70, 90, dtype=dtype))
    check_gemm_rows()
    check_complex_rows()
    check_half_conversions()
    check_missing_units()
    for dtype in DTYPES:
        vendor_rows.check_free_choice(dtype, 20)
    print(fastgemm.build_info()["cpu_features"])
    print_predictions()
