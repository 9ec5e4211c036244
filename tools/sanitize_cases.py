"""Runs every own row of the kernel table that this GPU supports on small odd problems, for compute-sanitizer.

    compute-sanitizer --tool memcheck python tools/sanitize_cases.py [KERNEL ...]

Results are compared with torch's on the CPU, so that wrong results also fail here. Sizes are not multiples of
the kernels' tiles, offsets make operands unaligned, and results with a leading dimension show writes to wrong
places.
"""

from __future__ import annotations

import itertools
import os
import sys

import fastgemm
import torch
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
DTYPES += (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
WIDTHS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.complex128)
GEMM_SIZES = ((1, 1, 1), (33, 65, 17), (130, 140, 70), (257, 129, 65), (64, 64, 300))
LARGE_SIZES = ((1000, 777, 301), (640, 1024, 352))  # for level 5's large tiles: packed, and in place
ALIGNED_SIZE = (256, 384, 320)  # level 6 reads and writes this in place, by the tensor memory accelerator
LINEAR_SIZES = ((5, 200, 96), (130, 72, 161), (256, 384, 320), (16, 24, 3000))  # the last is split along k
SYMMETRIC_SIZES = (
    (1, 9),
    (130, 70),
    (257, 65),
    (1300, 301),
    (1024, 384),
)  # the last ones use a kernel for triangles
TRANSPOSE_SIZES = ((1, 1), (33, 65), (130, 257), (64, 192))
LIBRARY_LEVEL = 7
# Kernels read whole vectors of 16 bytes. Some of their elements are outside of the matrix and are not used,
# but initcheck cannot know this. For initcheck the memory around a matrix is therefore initialized, and sizes
# are multiples of 16, so that no copy of an operand in the workspace ends inside a vector. memcheck still
# checks that whole vectors are inside the allocation.
INITCHECK = os.environ.get("SANITIZER") == "initcheck"
surroundings = torch.zeros if INITCHECK else torch.empty
EXTENT = 16 if INITCHECK else 1
BY_RESIDUES = ("gemm crt torch.float64", "gemm symmetric torch.float64")
LAYOUTS = tuple(itertools.product((False, True), repeat=2))
LEAST_K = {("bf16x6", torch.float32): 80, ("crt", torch.float32): 80}  # smaller k is rejected


def draw(*shape: int, dtype: torch.dtype) -> Tensor:
    """Small whole numbers, which are exact in every dtype and in any order of summation."""
    return torch.randint(0 if dtype == torch.uint8 else -3, 4, shape).to(dtype)


def shifted(x: Tensor, offset: int, transposed: bool = False) -> Tensor:
    """x on the GPU, in the middle of a larger allocation, at an odd offset and with a leading dimension."""
    x = x.mT if transposed else x
    around = surroundings(x.shape[-2] + 1, x.shape[-1] + 3, dtype=x.dtype, device="cuda")
    view = around[: x.shape[-2], offset : offset + x.shape[-1]]
    view.copy_(x)
    return view.mT if transposed else view


def same(result: Tensor, expected: Tensor, what: str) -> None:
    result = result.cpu()
    if what.startswith(BY_RESIDUES):  # integers scaled by 2^100 or more, with rounding errors
        assert (result - expected).abs().max() < 1e-12, what
        result = result.round()
    if not torch.equal(result, expected):
        raise SystemExit(f"wrong result: {what}")


def run_gemm(row: fastgemm.KernelInfo, dtype: torch.dtype) -> int:
    kernel, level = row.name, row.level
    kind = torch.int32 if dtype in (torch.int8, torch.uint8, torch.int16) else dtype
    choice = {"kernel": kernel} | ({"precision": row.precision} if dtype == torch.float32 else {})
    choice |= {"out_dtype": kind} if dtype == torch.int16 else {}
    least_k = LEAST_K.get((kernel, dtype), 1)
    sizes = GEMM_SIZES + (LARGE_SIZES if level >= 5 else ())
    for size, (trans_a, trans_b) in zip(sizes, itertools.cycle(LAYOUTS), strict=False):
        m, n, k = (-(-extent // EXTENT) * EXTENT for extent in size)
        a, b, c = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype), draw(m, n, dtype=kind)
        if k < least_k:
            continue
        if kernel == "crt" and dtype.is_floating_point:  # so that other kernels compute some tiles
            a[:9, : k // 2], b[k // 2 :, :9] = 0, 0
        product = a.double() @ b.double()
        operands = shifted(a, 1, trans_a), shifted(b, 2, trans_b)
        out = shifted(torch.zeros(m, n, dtype=kind), 1)
        fastgemm.matmul(*operands, **choice, out=out)
        same(out, product.to(kind), f"gemm {kernel} {dtype} {m}x{n}x{k}")
        out = shifted(c, 3)
        fastgemm.gemm(*operands, out, alpha=2, beta=-1, **choice, out=out)
        same(out, (2 * product - c.double()).to(kind), f"gemm {kernel} {dtype} {m}x{n}x{k} with c")
    a, b = draw(3, 40, max(48, least_k), dtype=dtype), draw(3, max(48, least_k), 64, dtype=dtype)
    product = (a.double() @ b.double()).to(kind)
    same(fastgemm.matmul(a.cuda(), b.cuda(), **choice), product, f"gemm {kernel} {dtype}, batch")
    count = 2 * len(sizes) + 1
    for trans_a, trans_b in LAYOUTS if level == 6 else ():
        m, n, k = ALIGNED_SIZE
        a, b = (
            draw(*(k, m) if trans_a else (m, k), dtype=dtype),
            draw(*(n, k) if trans_b else (k, n), dtype=dtype),
        )
        product = (a.mT if trans_a else a).double() @ (b.mT if trans_b else b).double()
        out = fastgemm.gemm(a.cuda(), b.cuda(), trans_a=trans_a, trans_b=trans_b, **choice)
        same(out, product.to(kind), f"gemm {kernel} {dtype}, aligned, {trans_a=}, {trans_b=}")
        count += 1
    return count


def run_symmetric(row: fastgemm.KernelInfo, dtype: torch.dtype) -> int:
    kind = torch.int32 if dtype in (torch.int8, torch.uint8, torch.int16) else dtype
    choice = {"kernel": row.name} | ({"out_dtype": kind} if dtype == torch.int16 else {})
    for i, (n, k) in enumerate(SYMMETRIC_SIZES):
        n, k = (-(-extent // EXTENT) * EXTENT for extent in (n, k))
        a, c = draw(n, k, dtype=dtype), draw(n, n, dtype=kind)
        operand = shifted(a, 1, transposed=i % 2 == 1)
        out = shifted(torch.zeros(n, n, dtype=kind), 1)
        product = a.double() @ a.double().mT
        fastgemm.matmul(operand, operand.mT, **choice, out=out)
        same(out, product.to(kind), f"gemm {row.name} {dtype} {n}x{k}")
        out = shifted(c, 3)
        fastgemm.gemm(operand, operand.mT, out, beta=-1, symmetric=True, **choice, out=out)
        lower = (product - c.double()).tril()
        same(out, (lower + lower.tril(-1).mT).to(kind), f"gemm {row.name} {dtype} {n}x{k} with c")
    return 2 * len(SYMMETRIC_SIZES)


def run_linear(row: fastgemm.KernelInfo, dtype: torch.dtype) -> int:
    """Tests the epilogue, in a kernel or in the pass after it, on operands laid out as in a layer."""
    kernel, count = row.name, 0
    choice = {"kernel": kernel} | ({"precision": row.precision} if dtype == torch.float32 else {})
    for i, size in enumerate(LINEAR_SIZES):
        m, n, k = (-(-extent // EXTENT) * EXTENT for extent in size)
        x, w, b, r = (draw(*shape, dtype=dtype) for shape in ((m, k), (n, k), (n,), (m, n)))
        inner = x.double() @ w.double().mT + b.double()
        for activation in ("gelu", "relu"):
            value = getattr(torch.nn.functional, activation)(inner) + r.double()
            place = (lambda t: shifted(t, 1)) if i % 2 else (lambda t: t.cuda())
            try:
                out = fastgemm.linear(
                    place(x), place(w), b.cuda(), activation=activation, residual=place(r), **choice
                )
            except RuntimeError as refused:
                if "cannot run here" not in str(refused):
                    raise
                continue
            what = f"linear {kernel} {dtype} {m}x{n}x{k} {activation}"
            if activation == "relu" and kernel != "crt":
                same(out, value.to(dtype), what)
            else:
                torch.testing.assert_close(out.cpu(), value.to(dtype), msg=what)
            count += 1
    return count


def run_transpose(row: fastgemm.KernelInfo, dtype: torch.dtype) -> int:
    kernel = row.name
    for shape in TRANSPOSE_SIZES:
        a = draw(*shape, dtype=dtype)
        out = shifted(torch.zeros(shape[1], shape[0], dtype=dtype), 1)
        fastgemm.transpose(shifted(a, 1), kernel=kernel, out=out)
        same(out, a.mT, f"transpose {kernel} {dtype} {shape}")
        same(
            fastgemm.transpose(a.cuda(), kernel=kernel), a.mT, f"transpose {kernel} {dtype} {shape}, aligned"
        )
    return 2 * len(TRANSPOSE_SIZES)


def run_add(row: fastgemm.KernelInfo, dtype: torch.dtype) -> int:
    kernel = row.name
    for rows, cols in TRANSPOSE_SIZES:
        a, b = draw(rows, cols, dtype=dtype), draw(rows, cols, dtype=dtype)
        same(fastgemm.add(shifted(a, 1), shifted(b, 2), kernel=kernel), a + b, f"add {kernel} {dtype}")
        same(fastgemm.add(a.cuda(), b.cuda(), alpha=2, kernel=kernel), a + 2 * b, f"add {kernel} {dtype}")
    return 2 * len(TRANSPOSE_SIZES)


RUN = {"gemm": run_gemm, "symmetric": run_symmetric, "transpose": run_transpose, "add": run_add}


def main(wanted: list[str]) -> int:
    count = 0
    for row in fastgemm.kernels(device="cuda"):
        if not row.available or row.level == LIBRARY_LEVEL or (wanted and row.name not in wanted):
            continue
        for dtype in WIDTHS if row.op == "transpose" else DTYPES:
            if not row.takes(dtype):
                continue
            if row.op == "gemm" and dtype.is_floating_point and row.role != "shortcut":
                count += run_linear(row, dtype)
            count += RUN["symmetric" if row.role == "shortcut" else row.op](row, dtype)
        torch.cuda.synchronize()
        print(f"{row.op} {row.name}", flush=True)
    print(f"{count} cases")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
