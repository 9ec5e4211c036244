"""Operands of 8-bit floating point, what they stand for, and bounds of their products."""

import torch
from fastgemm._fp8.recipes import RECIPES
from torch import Tensor

E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
NAMES = tuple(RECIPES)


def random_codes(*shape: int, dtype: torch.dtype = E4M3) -> Tensor:
    """Every finite code is as likely as any other."""
    table = torch.arange(256, dtype=torch.uint8)
    table = table[table.view(dtype).float().isfinite()]
    return table[torch.randint(len(table), shape)].view(dtype)


def random_scales(lines: int, k: int, recipe: str, dtype: torch.dtype = F32) -> Tensor:
    grid = RECIPES[recipe].grid(lines, k)
    if dtype == E8M0:
        return torch.randint(118, 134, grid, dtype=torch.uint8).view(E8M0)
    return torch.rand(grid) + 0.25


def operand(
    lines: int, k: int, recipe: str, code: torch.dtype = E4M3, scale: torch.dtype = F32
) -> tuple[Tensor, Tensor]:
    return random_codes(lines, k, dtype=code), random_scales(lines, k, recipe, scale)


def dequantized(codes: Tensor, scale: Tensor, recipe: str) -> Tensor:
    """The numbers that codes (..., lines, k) and scales stand for, in float64."""
    blocks, (lines, k) = RECIPES[recipe], codes.shape[-2:]
    if scale.numel() == 1:
        return codes.double() * scale.double().reshape(())
    spread = scale.double()
    spread = spread.repeat_interleave(blocks.lines or lines, -2)[..., :lines, :]
    spread = spread.repeat_interleave(blocks.along_k or k, -1)[..., :k]
    return codes.double() * spread


def assert_near(result: Tensor, a: Tensor, b: Tensor, expected: Tensor | None = None) -> None:
    """Asserts that ``result`` is within the error bound of float32 sums of K products and one rounding. ``a`` and
    ``b`` are the operands in float64.

    Each number may be rounded to float32 once. The error of a sum of K terms, in any order, is at most K * 2**-24
    times the sum of the absolute values. On a GPU the tensor cores may have added up to 128 terms, 32 at a time,
    and kept only 14 bits below the largest of the 32 terms and their sum so far: an error of up to 132 units of
    2**-14. In a norm such errors average out.
    """
    on_gpu, result, a, b = result.is_cuda, result.cpu(), a.cpu(), b.cpu()
    expected = a @ b if expected is None else expected.cpu()
    moduli = a.abs() @ b.abs() + expected.abs()
    k = a.shape[-1]
    rounding = {F32: 2**-24, BF16: 2**-8, F16: 2**-11}[result.dtype]
    error = (result.double() - expected).abs()
    bound = (k + 8) * 2**-24 * moduli + rounding * expected.abs() + (2**-25 if result.dtype == F16 else 1e-37)
    if on_gpu:
        bound += 132 * 2**-14 * moduli
        assert error.norm() <= (5e-4 + rounding) * moduli.norm()
    wrong = ~(error <= bound)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} outside of the bound"
