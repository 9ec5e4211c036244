"""Random products with poisoned results, for the rows of vendor libraries.

Libraries differ in how they read strides for sizes of 1, for batches that merge into one product, and where
leading dimensions have no effect. A row must refuse in advance what its library does not support, and must
write every element of the others.
"""

import random

import torch
from reference import by_name, check_gemm, is_library, poisoned, random_tensor, result_dtype, rows
from torch import Tensor

SIZES = (1, 1, 1, 2, 3, 4, 7, 8, 16, 17, 24, 32, 33, 64)
INNER = (1, 1, 2, 3, 7, 8, 16, 24, 33, 64)
BATCHES = ((), (), (1,), (2,), (3,), (2, 1), (1, 3), (2, 3))


def library_rows(*devices: str) -> list[tuple[str, str, torch.dtype]]:
    return [row for row in rows("gemm", *devices) if is_library("gemm", *row[:2])]


def spread(shape: tuple[int, ...], fill) -> Tensor:
    """A random view of this shape: row-major or column-major, possibly with gaps between lines, between members
    and before the first one."""
    order = list(range(len(shape)))
    if random.random() < 0.4:
        order[-2:] = reversed(order[-2:])
    if len(order) > 2 and random.random() < 0.15:
        random.shuffle(order)
    strides, step = [0] * len(shape), 1
    for place, d in enumerate(reversed(order)):
        strides[d] = step
        gap = random.choice((0, 0, 0, 1, 3, 8)) if place else random.choice((0, 0, 0, 0, 0, 1))
        step *= shape[d] + gap
    offset = random.choice((0, 0, 0, 1, 8))
    return fill(offset + step).as_strided(shape, strides, offset)


def operand(batch: tuple[int, ...], matrix: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """An operand with the whole batch, or broadcast along some of its dimensions."""
    kept = batch[random.randint(0, len(batch)) :] if random.random() < 0.4 else batch
    kept = tuple(1 if random.random() < 0.2 else size for size in kept)
    view = spread((*kept, *matrix), lambda size: random_tensor(size, dtype=dtype))
    return view.expand(*batch, *matrix) if random.random() < 0.2 else view


def addend(batch: tuple[int, ...], m: int, n: int, dtype: torch.dtype) -> Tensor | None:
    shapes = (None, None, None, (n,), (m, n), (m, 1), (*batch, m, n), (*batch, 1, n))
    shape = random.choice(shapes)
    return shape and random_tensor(*shape, dtype=dtype)


def check_random_product(dtype: torch.dtype, **choice: object) -> bool:
    """Checks a random product. Returns False if the row refused it, with an error."""
    batch, m, n, k = random.choice(BATCHES), random.choice(SIZES), random.choice(SIZES), random.choice(INNER)
    trans_a, trans_b = random.random() < 0.4, random.random() < 0.4
    a = operand(batch, (k, m) if trans_a else (m, k), dtype)
    b = operand(batch, (n, k) if trans_b else (k, n), dtype)
    shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n)
    kind = result_dtype(dtype)
    if dtype in (torch.float16, torch.bfloat16) and random.random() < 0.2:
        kind = torch.float32
    # Most libraries have no integer scales, and some write only contiguous results.
    scales = dtype.is_floating_point or random.random() < 0.1
    c = addend(shape[:-2], m, n, kind) if scales else None
    options = {"alpha": random.choice((1, 1, -2, 0)) if scales else 1}
    if c is not None:
        options["beta"] = random.choice((None, 1, -3, 0))
    out = None
    if random.random() < 0.4:
        out = spread(shape, lambda size: poisoned(size, dtype=kind))
    try:
        check_gemm(a, b, c, trans_a=trans_a, trans_b=trans_b, out=out, out_dtype=kind, **options, **choice)
    except RuntimeError as refusal:
        if f"kernel '{choice.get('kernel')}' cannot run here: " not in str(refusal):
            raise
        return False
    return True


def check_row(kernel: str, dtype: torch.dtype, cases: int) -> int:
    """Checks ``cases`` random products. Returns how many of them the row took."""
    return sum(check_random_product(dtype, **by_name(kernel, dtype)) for _ in range(cases))


def check_free_choice(dtype: torch.dtype, cases: int) -> None:
    for _ in range(cases):
        assert check_random_product(dtype, level=random.choice((None, 7)))
