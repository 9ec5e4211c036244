"""Recipes: which codes share a scale.

The scales of an operand form a grid. The grid of ``a`` (M, K) has a number for each block of rows and each block
along K. The grid of ``b`` (K, N) is the transposed grid of ``b.mT``.
"""

from __future__ import annotations

import operator
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from .._ops import codes
from .._ops.sizes import is_one_number, same, surely_same

Recipe = Literal["tensor", "row", "1x128", "128x128", "1x32"]
CODES = codes.CODES
E8M0 = torch.float8_e8m0fnu


class Blocks(NamedTuple):
    """The codes that share a scale; 0 is the whole dimension."""

    lines: int
    """Rows of ``a``, columns of ``b``."""
    along_k: int

    def grid(self, lines: int, k: int) -> tuple[int, int]:
        """The number of scales in each dimension."""
        return _count(lines, self.lines), _count(k, self.along_k)


def as_arguments(a: Blocks, b: Blocks) -> dict[str, int]:
    """The arguments of a product's op that say which codes of its operands share a scale."""
    return {"block_m": a.lines, "block_k_of_a": a.along_k, "block_k_of_b": b.along_k, "block_n": b.lines}


def _count(size: int, block: int) -> int:
    return (size + block - 1) // block if block else 1


RECIPES: dict[str, Blocks] = {
    "tensor": Blocks(0, 0),
    "row": Blocks(1, 0),
    "1x128": Blocks(1, 128),
    "128x128": Blocks(128, 128),
    "1x32": Blocks(1, 32),
}
# torch.nn.functional.ScalingType's names of them.
_OF_TORCH = {
    "TensorWise": "tensor",
    "RowWise": "row",
    "BlockWise1x128": "1x128",
    "BlockWise128x128": "128x128",
    "BlockWise1x32": "1x32",
}


def recipe_named(argument: str, recipe: object) -> str:
    """The name of a recipe that is given by name or as torch's ScalingType."""
    name = _OF_TORCH.get(str(getattr(recipe, "name", "")), recipe)
    if not isinstance(name, str) or name not in RECIPES:
        raise ValueError(
            f"fastgemm: unknown {argument} {recipe!r}; accepted: {', '.join(map(repr, RECIPES))}, or torch's "
            f"ScalingType of one of them"
        )
    return name


def scales_of(name: str, x: Tensor, scale: Tensor, recipe: object) -> tuple[Tensor, Blocks]:
    """The scales of an operand, in the shape of its grid, and the blocks that they belong to.

    Args:
        name: ``"a"``, or ``"b"``, whose columns are its lines.
        x: the codes.
        scale: one number, or the grid. It has the leading dimensions of ``x``.
        recipe: None: the first recipe whose grid has the shape of ``scale``. (If several recipes have such a grid,
            they mean the same.)
    """
    if scale.dtype not in (torch.float32, E8M0):
        raise ValueError(
            f"fastgemm: scale_{name} has dtype {scale.dtype}; accepted: torch.float32 and torch.float8_e8m0fnu"
        )
    lead = tuple(x.shape[:-2])
    k, lines = (x.shape[-1], x.shape[-2]) if name == "a" else (x.shape[-2], x.shape[-1])
    names = tuple(RECIPES) if recipe is None else (recipe_named(f"recipe_{name}", recipe),)
    if "tensor" in names and is_one_number(scale):
        one = scale.reshape((1,) * x.dim())
        return one.expand(*lead, 1, 1) if lead else one, RECIPES["tensor"]
    has = operator.eq if not is_compiling() else surely_same if recipe is None else same
    for each in names:
        blocks = RECIPES[each]
        grid = blocks.grid(lines, k)
        if has(scale.shape, (*lead, *(grid if name == "a" else grid[::-1]))):
            return scale, blocks
    accepted = []
    for each in names:
        grid = RECIPES[each].grid(lines, k)
        accepted.append(f"{(*lead, *(grid if name == 'a' else grid[::-1]))} ({each})")
    raise ValueError(
        f"fastgemm: scale_{name} has shape {tuple(scale.shape)}; of {name} with shape {tuple(x.shape)} "
        f"scales have shape {', '.join(accepted)}"
    )
