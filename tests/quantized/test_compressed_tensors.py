"""Tests QuantizedWeight.from_compressed_tensors with layers that the library stores and decompresses."""

import json

import fastgemm
import layouts
import pytest
import torch
from fastgemm.quantized import QuantizedWeight
from test_converters import assert_same_bits
from torch import nn


@pytest.fixture
def ct():
    pytest.importorskip("compressed_tensors")
    from compressed_tensors import quantization

    return quantization


def compressed(ct, name, weight, scale, zero=None, more=None, **arguments):
    """A layer as the library stores it, the description of its weights, and the weight that the library
    decompresses from it."""
    from compressed_tensors.compressors import BaseCompressor

    scheme = ct.QuantizationScheme(targets=["Linear"], weights=ct.QuantizationArgs(**arguments))
    compressor = BaseCompressor.get_value_from_registry(name)
    state = {"weight": weight, "weight_scale": scale, **(more or {})}
    if zero is not None:
        state["weight_zero_point"] = zero
    stored = compressor.compress(state, scheme)
    return stored, scheme.weights, compressor.decompress(stored, scheme)["weight"]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("strategy", ["group", "channel"])
def test_compressed_tensors_packed(ct, bits, symmetric, strategy):
    n, k, size = 40, 192, 64
    groups = k // size if strategy == "group" else 1
    largest = 2 ** (bits - 1)
    scale = torch.rand(n, groups) / 16 + 0.01
    zero = None if symmetric else torch.randint(-largest, largest, (n, groups), dtype=torch.int8)
    options = {"num_bits": bits, "symmetric": symmetric, "strategy": strategy, "type": "int"}
    if strategy == "group":
        options["group_size"] = size
    weight = torch.randn(n, k)
    stored, arguments, expected = compressed(ct, "pack-quantized", weight, scale, zero, **options)
    for given in (arguments, json.loads(arguments.model_dump_json())):  # of the library, and of config.json
        q = QuantizedWeight.from_compressed_tensors(stored, given)
        assert q.format == f"int{bits}" and (q.zero_points is None) == symmetric
        assert_same_bits(q, expected)
    stored, arguments, expected = compressed(
        ct, "pack-quantized", weight.bfloat16(), scale.bfloat16(), None, **options | {"symmetric": True}
    )
    assert expected.dtype == torch.bfloat16
    assert_same_bits(QuantizedWeight.from_compressed_tensors(stored, arguments), expected)


@pytest.mark.parametrize("bits", [4, 8])
def test_compressed_tensors_of_one_output(bits):
    """As many words of zero points as there are zero points. (The library does not read 4 bits of them itself.)"""
    k, size, half = 64, 16, 2 ** (bits - 1)
    codes, zeros, scales = (
        torch.randint(2 * half, (1, k)),
        torch.randint(-half, half, (1, 4)),
        torch.rand(1, 4),
    )
    stored = {
        "weight_packed": layouts.pack_words(codes, bits),
        "weight_scale": scales,
        "weight_zero_point": (zeros + half).int(),
        "weight_shape": torch.tensor([1, k]),
    }
    weights = {"num_bits": bits, "type": "int", "symmetric": False, "strategy": "group", "group_size": size}
    expected = (codes - half - zeros.repeat_interleave(size, 1)) * scales.repeat_interleave(size, 1)
    assert_same_bits(QuantizedWeight.from_compressed_tensors(stored, weights), expected)


def test_compressed_tensors_sorted_by_activation():
    n, k, size = 16, 64, 16
    codes, scales = torch.randint(16, (n, k)), torch.rand(n, k // size)
    g_idx = (torch.arange(k) // size)[torch.randperm(k)]
    stored = {
        "weight_packed": layouts.pack_words(codes, 4),
        "weight_scale": scales,
        "weight_shape": torch.tensor([n, k]),
        "weight_g_idx": g_idx.int(),
    }
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": size}
    assert_same_bits(QuantizedWeight.from_compressed_tensors(stored, weights), (codes - 8) * scales[:, g_idx])
    for tensors, options, message in (
        (stored | {"weight_lut": scales}, {}, "weight_lut"),
        (stored, {"num_bits": 3}, "3 bits"),
        (stored, {"strategy": "token"}, "'token'"),
        (stored, {"symmetric": False}, "weight_zero_point"),
        (stored, {"group_size": 32}, "weight_scale is"),
        ({"weight_packed": codes}, {}, "no weight_scale"),
    ):
        with pytest.raises(ValueError, match=message):
            QuantizedWeight.from_compressed_tensors(tensors, weights | options)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [("int", "channel"), ("int", "tensor"), ("float", "channel"), ("float", "tensor"), ("float", "block")],
)
def test_compressed_tensors_of_8_bits(ct, kind, strategy):
    n, k = 40, 192
    shape = {"channel": (n, 1), "tensor": (1,), "block": (3, 3)}[strategy]
    options = {"num_bits": 8, "type": kind, "symmetric": True, "strategy": strategy}
    if strategy == "block":
        options["block_structure"] = [16, 64]
    scale = (torch.rand(shape) / 16 + 0.01).bfloat16()
    name = f"{kind}-quantized"
    stored, arguments, expected = compressed(ct, name, torch.randn(n, k).bfloat16(), scale, **options)
    q = QuantizedWeight.from_compressed_tensors(stored | {"input_scale": scale}, arguments)
    assert q.format == ("int8" if kind == "int" else "fp8") and q.dtype == torch.bfloat16
    assert_same_bits(q, expected)


def test_compressed_tensors_of_fp4(ct):
    n, k = 16, 128
    options = {"num_bits": 4, "type": "float", "symmetric": True}
    weight = torch.randn(n, k)
    scale = weight.unflatten(1, (-1, 32)).abs().amax(-1).log2().floor().exp2() / 4
    stored, arguments, expected = compressed(
        ct, "mxfp4-pack-quantized", weight, scale, strategy="group", group_size=32, **options
    )
    q = QuantizedWeight.from_compressed_tensors(stored, arguments)
    assert q.format == "mxfp4"
    assert_same_bits(q, expected)
    by = torch.tensor([1024.0])  # its reciprocal is exact, and so are all products below
    scale = (weight.unflatten(1, (-1, 16)).abs().amax(-1) / 6 * by).to(torch.float8_e4m3fn)
    arguments = {"strategy": "tensor_group", "group_size": 16, **options}
    stored, arguments, expected = compressed(
        ct, "nvfp4-pack-quantized", weight, scale.float(), more={"weight_global_scale": by}, **arguments
    )
    q = QuantizedWeight.from_compressed_tensors(stored, arguments)
    assert q.format == "nvfp4" and torch.equal(q.scales, scale)
    assert_same_bits(q, expected)


def test_groups_that_name_a_layer(ct, tmp_path):
    """As in the library: names before patterns in their order, these before the class, and the last group."""
    from compressed_tensors.utils.match import match_targets
    from safetensors.torch import save_file

    def group(*targets, symmetric):
        weights = {
            "num_bits": 4,
            "type": "int",
            "symmetric": symmetric,
            "strategy": "group",
            "group_size": 32,
        }
        return {"targets": targets, "weights": weights}

    stored, weight = layouts.packed(32, 64)
    save_file({f"up.{name}": x for name, x in stored.items()}, tmp_path / "model.safetensors")
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    for wrong, right in (
        (["re:.*up"], ["up"]),
        (["re:.*up", "Linear"], ["re:.*p"]),
        (["up"], ["Linear", "up"]),
    ):
        model = nn.ModuleDict({"up": nn.Linear(64, 32, bias=False)})
        assert match_targets("up", model["up"], [*wrong, *right])[0] in right
        groups = {"a": group(*wrong, symmetric=True), "b": group(*right, symmetric=False)}
        config["config_groups"] = groups
        (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
        fastgemm.nn.load_quantized(model, tmp_path)
        assert_same_bits(model["up"].weight, weight)
