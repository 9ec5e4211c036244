"""Weights of the compressed-tensors library (llm-compressor, vLLM), by the names of their tensors in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .float_checkpoints import E4M3, E8M0, of_nvfp4
from .plain import Plain, bytes_of, expect, expect_tensors, halves, signed, small, sort_by_group

WEIGHT_NAMES = (
    "weight",
    "weight_packed",
    "weight_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "weight_global_scale",
)
IGNORED_NAMES = ("input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point")
"""What describes the rounding of inputs and outputs, which products here do not round."""

_GIVEN = ("num_bits", "type", "symmetric", "strategy", "group_size", "block_structure")


def arguments(weights: Any) -> dict[str, Any]:
    """The ``weights`` of a scheme, of config.json or a ``QuantizationArgs``, as a dictionary of plain values."""
    get = weights.get if isinstance(weights, Mapping) else lambda name: getattr(weights, name, None)
    given = {name: get(name) for name in _GIVEN}
    for name in ("type", "strategy"):
        given[name] = getattr(given[name], "value", given[name])  # of an Enum
    given["symmetric"] = given["symmetric"] is not False
    if given["strategy"] is None:
        given["strategy"] = "group" if given["group_size"] else "tensor"
    return given


def of_compressed_tensors(tensors: Mapping[str, Tensor], weights: Any, dtype: torch.dtype | None) -> Plain:
    unknown = [name for name in tensors if name not in WEIGHT_NAMES + IGNORED_NAMES]
    expect(not unknown, f"fastgemm: unknown tensors of compressed-tensors: {', '.join(unknown)}")
    expect_tensors(**tensors)
    expect("weight_scale" in tensors, f"fastgemm: there is no weight_scale among {', '.join(tensors)}")
    of = arguments(weights)
    kind = of["type"], of["num_bits"], "weight_packed" in tensors
    if kind == ("float", 4, True):
        return _float4(tensors, of, dtype)
    if kind in (("int", 4, True), ("int", 8, True)):
        return _packed(tensors, of, dtype)
    if kind in (("int", 8, False), ("float", 8, False)):
        return _bytes(tensors, of, dtype)
    form = "packed" if kind[2] else "unpacked"
    raise ValueError(
        f"fastgemm: {form} weights of type {of['type']!r} and {of['num_bits']} bits are not taken; accepted: int "
        "of 4 and 8 bits and float of 4 bits packed (pack-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized), "
        "int and float of 8 bits unpacked (int-quantized, float-quantized, naive-quantized)"
    )


def _scales(
    tensors: Mapping[str, Tensor], of: dict[str, Any], shape: tuple[int, int]
) -> tuple[Tensor, tuple[int, int]]:
    """The scales as a matrix, and the rows and columns of a block."""
    (n, k), strategy = shape, of["strategy"]
    if strategy == "tensor":
        group = max(n, 1), max(k, 1)
    elif strategy == "channel":
        group = 1, max(k, 1)
    elif strategy == "group":
        size = of["group_size"]
        group = 1, size if size and size > 0 else max(k, 1)
    elif strategy == "block" and of["block_structure"]:
        group = tuple(of["block_structure"])
    else:
        raise ValueError(f"fastgemm: the strategy {strategy!r} of weights is not taken")
    groups = -(-n // group[0]), -(-k // group[1])
    scales = tensors["weight_scale"]
    expect(
        scales.numel() == groups[0] * groups[1],
        f"fastgemm: weight_scale is {tuple(scales.shape)}; the strategy {strategy!r} of ({n}, {k}) has {groups}",
    )
    return scales.reshape(groups), group


def _packed(tensors: Mapping[str, Tensor], of: dict[str, Any], dtype: torch.dtype | None) -> Plain:
    words, bits = tensors["weight_packed"], of["num_bits"]
    expect(
        words.dtype == torch.int32 and words.dim() == 2,
        f"fastgemm: weight_packed is {tuple(words.shape)} {words.dtype}",
    )
    expect("weight_shape" in tensors, "fastgemm: there is no weight_shape")
    n, k = (int(size) for size in tensors["weight_shape"].tolist())
    expected = (n, -(-k * bits // 32))
    expect(
        tuple(words.shape) == expected,
        f"fastgemm: weight_packed is {tuple(words.shape)}, expected {expected}",
    )
    codes = bytes_of(words)
    codes = codes[:, : (k + 1) // 2] if bits == 4 else signed(codes[:, :k])
    scales, group = _scales(tensors, of, (n, k))
    zeros = None
    if not of["symmetric"]:
        zeros = _zeros(tensors, bits, scales.shape, packed=True)
    plain = Plain("int4" if bits == 4 else "int8", codes, scales, group, (n, k), dtype or scales.dtype, zeros)
    return sort_by_group(plain, tensors.get("weight_g_idx"))


def _zeros(
    tensors: Mapping[str, Tensor], bits: int, shape: torch.Size, packed: bool = False
) -> Tensor | None:
    """Zero points, one a byte, or packed along N into words of 32 bits."""
    expect(
        "weight_zero_point" in tensors, "fastgemm: the weight is not symmetric, and has no weight_zero_point"
    )
    zeros = tensors["weight_zero_point"]
    if packed and zeros.dtype == torch.int32:
        codes = bytes_of(zeros.t())
        values = (halves(codes) if bits == 4 else codes)[:, : shape[0]].t().to(torch.int16)
        return small((values - 2 ** (bits - 1)).reshape(shape))
    return small(zeros.reshape(shape))


def _bytes(tensors: Mapping[str, Tensor], of: dict[str, Any], dtype: torch.dtype | None) -> Plain:
    expect("weight" in tensors, f"fastgemm: there is no weight among {', '.join(tensors)}")
    codes, integer = tensors["weight"], of["type"] == "int"
    expected = torch.int8 if integer else E4M3
    expect(
        codes.dtype == expected and codes.dim() == 2,
        f"fastgemm: weight is {tuple(codes.shape)} {codes.dtype}",
    )
    shape = codes.shape[0], codes.shape[1]
    scales, group = _scales(tensors, of, shape)
    zeros = None
    if not of["symmetric"]:
        expect(integer, "fastgemm: zero points of fp8 weights are not taken")
        zeros = _zeros(tensors, 8, scales.shape)
    return Plain("int8" if integer else "fp8", codes, scales, group, shape, dtype or scales.dtype, zeros)


def _float4(tensors: Mapping[str, Tensor], of: dict[str, Any], dtype: torch.dtype | None) -> Plain:
    codes, scales, size = tensors["weight_packed"], tensors["weight_scale"], of["group_size"]
    expect(of["symmetric"], "fastgemm: zero points of weights of 4-bit floating-point numbers are not taken")
    dtype = dtype or torch.bfloat16
    if size == 16 and "weight_global_scale" in tensors:
        # The library divides by it.
        return of_nvfp4(codes, scales, tensors["weight_global_scale"].to(torch.float32).reciprocal(), dtype)
    n, k = codes.shape[0], codes.shape[1] * 2
    expect(
        size == 32 and scales.dtype in (torch.uint8, E8M0) and scales.shape == (n, k // 32),
        f"fastgemm: 4-bit floating-point weights in groups of {size} with scales {tuple(scales.shape)} "
        f"{scales.dtype} are not taken; accepted: nvfp4 (16, float8_e4m3fn, weight_global_scale), mxfp4 (32, "
        "uint8)",
    )
    return Plain("mxfp4", codes, scales.view(E8M0), (1, 32), (n, k), dtype)
