"""bitsandbytes' weights of 4 bits (QLoRA): codes of the flattened weight, even ones in the high half of a byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from .formats import NORMAL_FLOAT
from .plain import Plain, expect

STATE = "quant_state.bitsandbytes__"
FILE_NAMES = ("absmax", "quant_map", "nested_absmax", "nested_quant_map", f"{STATE}nf4", f"{STATE}fp4")
"""What a file has beside the codes of a weight, after the weight's name and a dot."""


def state_of_file(tensors: Mapping[str, Tensor]) -> Any:
    """The ``QuantState`` that a file holds as tensors, without the library.

    Args:
        tensors: by names as in ``FILE_NAMES``.

    Raises:
        ValueError: the entry with the sizes is missing.
    """
    packed = [name for name in tensors if name.startswith(STATE)]
    expect(
        len(packed) == 1, f"fastgemm: expected one {STATE}nf4 beside a weight of bitsandbytes, found {packed}"
    )
    sizes = json.loads(bytes(tensors[packed[0]].cpu().tolist()))
    nested = offset = None
    if "nested_absmax" in tensors:
        nested = SimpleNamespace(
            absmax=tensors["nested_absmax"],
            code=tensors["nested_quant_map"],
            blocksize=sizes["nested_blocksize"],
        )
        offset = torch.tensor(sizes["nested_offset"], dtype=torch.float32, device=tensors["absmax"].device)
    return SimpleNamespace(
        absmax=tensors["absmax"],
        code=tensors["quant_map"],
        blocksize=sizes["blocksize"],
        quant_type=sizes["quant_type"],
        dtype=getattr(torch, sizes["dtype"]),
        shape=tuple(sizes["shape"]),
        offset=offset,
        state2=nested,
    )


def scales_of(state: Any) -> Tensor:
    """The scale of each block in float32: nested ones are codes of 8 bits themselves."""
    if getattr(state, "state2", None) is None:
        return state.absmax.to(torch.float32)
    nested = state.state2
    numbers = nested.code.to(torch.float32)[state.absmax.long()]
    by = nested.absmax.to(torch.float32).repeat_interleave(nested.blocksize)[: numbers.numel()]
    return numbers * by + state.offset.to(torch.float32)


def of_bitsandbytes(weight: Tensor, state: Any) -> Plain:
    if state is None:
        state = getattr(weight, "quant_state", None)
        expect(
            state is not None,
            "fastgemm: the weight has no quant_state: bitsandbytes quantizes it when it is moved to a device",
        )
    kind, size = state.quant_type, state.blocksize
    expect(kind == "nf4", f"fastgemm: {kind!r} weights of bitsandbytes are not taken, only 'nf4'")
    expect(
        state.shape is not None and len(state.shape) == 2,
        f"fastgemm: the weight is {state.shape}, expected (N, K)",
    )
    n, k = state.shape
    expect(
        k % size == 0,
        f"fastgemm: blocks of {size} of the flattened weight cross the rows of ({n}, {k}): K must be a "
        f"multiple of {size}",
    )
    table = torch.tensor(NORMAL_FLOAT, dtype=torch.float32, device=state.code.device)
    expect(
        torch.equal(state.code.to(torch.float32), table),
        "fastgemm: the weight has another table than NormalFloat's",
    )
    packed = weight.detach().as_subclass(Tensor).contiguous().view(torch.uint8).reshape(-1)
    expect(packed.numel() * 2 == n * k, f"fastgemm: {packed.numel()} bytes are not the codes of ({n}, {k})")
    codes = (packed >> 4 | packed << 4).reshape(n, k // 2)
    return Plain("nf4", codes, scales_of(state).reshape(n, k // size), (1, size), (n, k), state.dtype)
