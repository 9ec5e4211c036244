"""What a ``quantization_config`` says: which tensors of a file make the weight of a layer, and how.

The weights of each method are those of its constructor in _quantized/converters.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._quantized import from_bitsandbytes, from_compressed_tensors
from .._quantized.weight import QuantizedWeight

Tensors = Mapping[str, Tensor]
Config = Mapping[str, Any]


class Method(NamedTuple):
    """A way to store weights.

    Attributes:
        names: the names, without the layer's, of the tensors that only layers with a quantized weight have.
        ignored: the tensors among them that say how inputs were rounded.
        make: makes the weight from the layer's name and its tensors.
    """

    names: tuple[str, ...]
    make: Callable[[str, Tensors, torch.dtype], QuantizedWeight]
    ignored: tuple[str, ...] = ()


def method_of(config: Config) -> Method:
    """The method of a ``quantization_config``.

    Raises:
        ValueError: an unknown method, or a variant of a method that is not supported.
    """
    name = config.get("quant_method")
    if name is None and "load_in_4bit" in config:
        name = "bitsandbytes"
    if name not in METHODS:
        raise ValueError(f"quant_method {name!r} is not taken; accepted: {', '.join(METHODS)}")
    return METHODS[name](config)


def _require(config: Config, name: str, accepted: tuple[Any, ...], default: Any = None) -> Any:
    value = config.get(name, default)
    if value not in accepted:
        choice = ", ".join(map(repr, accepted))
        raise ValueError(f"{name} {value!r} of quantization_config is not taken; accepted: {choice}")
    return value


def _gptq(config: Config) -> Method:
    bits, size = _require(config, "bits", (4, 8)), config.get("group_size", -1)
    stored = _require(config, "checkpoint_format", ("gptq", "gptq_v2"), "gptq")
    _require(config, "dynamic", (None, {}))
    version = 2 if stored == "gptq_v2" else 1

    def make(name: str, of: Tensors, dtype: torch.dtype) -> QuantizedWeight:
        tensors = of["qweight"], of["qzeros"], of["scales"], of.get("g_idx")
        return QuantizedWeight.from_gptq(*tensors, bits=bits, group_size=size, version=version, dtype=dtype)

    return Method(("qweight", "qzeros", "scales", "g_idx"), make)


def _awq(config: Config) -> Method:
    bits = _require(config, "bits", (4,))
    _require(config, "version", ("gemm", "GEMM"), "gemm")
    size = config.get("group_size", 128)

    def make(name: str, of: Tensors, dtype: torch.dtype) -> QuantizedWeight:
        tensors = of["qweight"], of["qzeros"], of["scales"]
        return QuantizedWeight.from_awq(*tensors, bits=bits, group_size=size, dtype=dtype)

    return Method(("qweight", "qzeros", "scales"), make)


def _bitsandbytes(config: Config) -> Method:
    _require(config, "load_in_4bit", (True,))
    _require(config, "bnb_4bit_quant_type", ("nf4",), "fp4")

    def make(name: str, of: Tensors, dtype: torch.dtype) -> QuantizedWeight:
        state = {key.removeprefix("weight."): x for key, x in of.items() if key != "weight"}
        return QuantizedWeight.from_bitsandbytes(
            of["weight"], from_bitsandbytes.state_of_file(state), dtype=dtype
        )

    return Method(tuple(f"weight.{name}" for name in from_bitsandbytes.FILE_NAMES), make)


def _fp8(config: Config) -> Method:
    block = config.get("weight_block_size")
    size = None if block is None else (int(block[0]), int(block[1]))

    def make(name: str, of: Tensors, dtype: torch.dtype) -> QuantizedWeight:
        scales = of["weight_scale_inv"] if "weight_scale_inv" in of else of["weight_scale"]
        return QuantizedWeight.from_fp8(of["weight"], scales, block_size=size, dtype=dtype)

    ignored = ("input_scale", "activation_scale")
    return Method(("weight_scale_inv", "weight_scale", *ignored), make, ignored)


def _mxfp4(config: Config) -> Method:
    def make(name: str, of: Tensors, dtype: torch.dtype) -> QuantizedWeight:
        return QuantizedWeight.from_mxfp4(of["weight_blocks"], of["weight_scales"], dtype=dtype)

    return Method(("weight_blocks", "weight_scales"), make)


def _modelopt(config: Config) -> Method:
    nvfp4 = _require(config, "quant_algo", ("FP8", "NVFP4")) == "NVFP4"

    def make(name: str, of: Tensors, dtype: torch.dtype) -> QuantizedWeight:
        if nvfp4:
            tensors = of["weight"], of["weight_scale"], of["weight_scale_2"]
            return QuantizedWeight.from_nvfp4(*tensors, dtype=dtype)
        return QuantizedWeight.from_fp8(of["weight"], of["weight_scale"], dtype=dtype)

    ignored = ("input_scale",)
    return Method(("weight_scale", "weight_scale_2", *ignored), make, ignored)


def _compressed_tensors(config: Config) -> Method:
    accepted = (
        "pack-quantized",
        "int-quantized",
        "float-quantized",
        "naive-quantized",
        "nvfp4-pack-quantized",
    )
    _require(config, "format", (*accepted, "mxfp4-pack-quantized", "mixed-precision"))
    sparsity = config.get("sparsity_config") or {}
    _require({"sparsity_config format": sparsity.get("format")}, "sparsity_config format", (None, "dense"))
    if config.get("transform_config"):
        raise ValueError("transform_config of quantization_config is not taken")
    groups = {
        target: group
        for group in config.get("config_groups", {}).values()
        for target in group.get("targets", ())
    }

    def make(name: str, of: Tensors, dtype: torch.dtype) -> QuantizedWeight:
        weights = _group_of(name, groups)["weights"]
        return QuantizedWeight.from_compressed_tensors(of, weights, dtype=dtype)

    ignored = from_compressed_tensors.IGNORED_NAMES
    names = tuple(x for x in from_compressed_tensors.WEIGHT_NAMES if x != "weight")
    return Method((*names, *ignored), make, ignored)


def _group_of(name: str, groups: dict[str, Any]) -> Any:
    """The group of a layer, by targets in the library's order: names, patterns, and the class."""
    patterns = (x for x in sorted(groups) if x.startswith("re:") and re.match(x.removeprefix("re:"), name))
    for target in (name, *patterns, "Linear"):
        if target in groups:
            return groups[target]
    raise ValueError(f"no group of config_groups is for {name}")


METHODS: dict[str, Callable[[Config], Method]] = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
}
