"""Tests the constructors of QuantizedWeight that read other libraries' weights. Their numbers must be those that
the libraries compute.

torchao and bitsandbytes make the layers where they are installed. The layouts of other libraries are written as
loops. compressed-tensors: test_compressed_tensors.py."""

from types import SimpleNamespace

import layouts
import pytest
import torch
from fastgemm._quantized.formats import NORMAL_FLOAT
from fastgemm._quantized.from_bitsandbytes import state_of_file
from fastgemm.quantized import QuantizedWeight


def assert_same_bits(q, expected):
    """The dequantized weight, in the dtype of what the library computed."""
    own = q.dequantize(expected.dtype)
    assert own.shape == expected.shape and q.shape == expected.shape
    assert torch.equal(own, expected), f"{(own != expected).sum()} numbers differ"


def assert_owns(q, *given):
    """The weight has no memory of the tensors that a constructor was given, and no more than it needs."""
    theirs = {x.untyped_storage().data_ptr() for x in given}
    for x in q._inner():
        assert x is None or x.untyped_storage().data_ptr() not in theirs
        assert x is None or x.untyped_storage().nbytes() == x.nbytes


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("version", [1, 2])
def test_gptq(bits, version):
    n, k, size = 24, 72, 32  # the last group has 8 columns
    shuffled = (torch.arange(k) // size)[torch.randperm(k)]
    for g_idx, given, sorts in ((None, False, False), (None, True, False), (shuffled, True, True)):
        tensors, expected = layouts.gptq(n, k, bits, size, g_idx, version=version)
        if not given:
            del tensors["g_idx"]
        q = QuantizedWeight.from_gptq(**tensors, bits=bits, group_size=size, version=version)
        assert (q.format, q.dtype, q.group_size) == (f"int{bits}", torch.float16, size)
        assert (q.order is not None) == sorts
        assert_same_bits(q, expected)
        assert_same_bits(q, expected.half())


def test_gptq_symmetric_and_per_channel():
    tensors, expected = layouts.gptq(16, 64, size=64, zeros=8, dtype=torch.bfloat16)
    q = QuantizedWeight.from_gptq(**tensors)
    assert q.zero_points is None and q.granularity == "channel" and q.dtype == torch.bfloat16
    assert_same_bits(q, expected)
    tensors, expected = layouts.gptq(16, 64, zeros=0)  # stored as 15: the library adds in 4 bits
    assert_same_bits(QuantizedWeight.from_gptq(**tensors), expected)


def test_gptq_refusals():
    tensors, _ = layouts.gptq(16, 64)
    uneven = torch.tensor([0] * 30 + [1] * 34)
    for wrong, message in (
        ({"bits": 3}, "3 bits"),
        ({"version": 3}, "version 3"),
        ({"qzeros": tensors["qzeros"][:, :1]}, "qzeros is"),
        ({"qweight": tensors["qweight"].long()}, r"qweight is torch\.int64"),
        ({"group_size": 64}, "groups of 64"),
        ({"g_idx": uneven}, "several sizes"),
        ({"g_idx": uneven[:8]}, "g_idx"),
    ):
        with pytest.raises(ValueError, match=message):
            QuantizedWeight.from_gptq(**tensors | wrong)


def test_awq():
    tensors, expected = layouts.awq(32, 96)
    q = QuantizedWeight.from_awq(**tensors, group_size=32)
    assert q.format == "int4" and q.order is None
    assert_same_bits(q, expected)
    assert_same_bits(q, expected.half())
    for wrong, message in (({"bits": 8}, "8 bits"), ({"qweight": tensors["qweight"].t()}, "qweight is")):
        with pytest.raises(ValueError, match=message):
            QuantizedWeight.from_awq(**tensors | wrong)


# bitsandbytes


@pytest.fixture
def bnb():
    return pytest.importorskip("bitsandbytes")


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bitsandbytes(bnb, nested, dtype):
    weight = torch.randn(40, 192, dtype=dtype)
    functional = bnb.functional
    codes, state = functional.quantize_4bit(
        weight, blocksize=64, quant_type="nf4", compress_statistics=nested
    )
    expected = functional.dequantize_4bit(codes, state)
    assert expected.dtype == dtype
    layer = bnb.nn.Linear4bit(192, 40, bias=False, quant_type="nf4", compress_statistics=nested)
    layer.weight = bnb.nn.Params4bit(codes, quant_state=state, quant_type="nf4", bnb_quantized=True)
    for q in (
        QuantizedWeight.from_bitsandbytes(codes, state),
        QuantizedWeight.from_bitsandbytes(layer.weight),
    ):
        assert (q.format, q.group_size, q.dtype, q.scales.dtype) == ("nf4", 64, dtype, torch.float32)
        assert_same_bits(q, expected)


def test_bitsandbytes_refusals(bnb):
    def quantize(shape, **options):
        return bnb.functional.quantize_4bit(torch.randn(shape), blocksize=64, **options)

    with pytest.raises(ValueError, match="'fp4'"):
        QuantizedWeight.from_bitsandbytes(*quantize((8, 64), quant_type="fp4"))
    with pytest.raises(ValueError, match="cross the rows"):
        QuantizedWeight.from_bitsandbytes(*quantize((8, 96), quant_type="nf4"))
    with pytest.raises(ValueError, match="no quant_state"):
        QuantizedWeight.from_bitsandbytes(bnb.nn.Params4bit(torch.randn(8, 64), quant_type="nf4"))


def test_bitsandbytes_with_another_default_dtype():
    tensors, weight = layouts.nf4(32, 128)
    state = {name.removeprefix("weight."): x for name, x in tensors.items() if name != "weight"}
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        q = QuantizedWeight.from_bitsandbytes(tensors["weight"], state_of_file(state))
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(q.dequantize(torch.float32), weight)


# torchao


@pytest.fixture
def ao():
    pytest.importorskip("torchao")
    from torchao import quantization

    return quantization


def quantized(ao, config, dtype, n=48, k=256):
    layer = torch.nn.Sequential(torch.nn.Linear(k, n, dtype=dtype))
    ao.quantize_(layer, config)
    return layer[0].weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torchao_of_8_bits(ao, dtype):
    from torchao.quantization.granularity import PerGroup, PerRow, PerTensor

    for config, granularity in (
        (ao.Int8WeightOnlyConfig(granularity=PerRow()), "channel"),
        (ao.Int8WeightOnlyConfig(granularity=PerTensor()), "tensor"),
        (ao.Int8WeightOnlyConfig(granularity=PerGroup(32)), "group"),
        (ao.Float8WeightOnlyConfig(granularity=PerRow()), "channel"),
        (ao.Float8WeightOnlyConfig(granularity=PerTensor()), "tensor"),
    ):
        weight = quantized(ao, config, dtype)
        q = QuantizedWeight.from_torchao(weight)
        assert q.granularity == granularity and q.dtype == dtype
        assert_same_bits(q, weight.dequantize(output_dtype=torch.float32))
        assert_same_bits(q, weight.dequantize(output_dtype=torch.float32).to(dtype))
        assert_owns(q, weight.qdata, weight.scale)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_torchao_unpacked(ao, bits, symmetric):
    from torchao.quantization.granularity import PerAxis, PerGroup

    mapping = ao.MappingType.SYMMETRIC if symmetric else ao.MappingType.ASYMMETRIC
    for granularity in (PerGroup(64), PerAxis(0)):
        config = ao.IntxWeightOnlyConfig(
            weight_dtype=getattr(torch, f"int{bits}"), granularity=granularity, mapping_type=mapping
        )
        weight = quantized(ao, config, torch.float32)
        q = QuantizedWeight.from_torchao(weight)
        assert q.format == f"int{bits}" and (q.zero_points is None) == symmetric
        assert_same_bits(q, weight.dequantize())
        assert_owns(q, weight.qdata, weight.scale, weight.zero_point)
    with pytest.raises(ValueError, match="weights of int3"):
        weight = quantized(ao, ao.IntxWeightOnlyConfig(weight_dtype=torch.int3), torch.float32)
        QuantizedWeight.from_torchao(weight)


def test_torchao_int4(ao):
    """Its kernels' codes; a GPU or another library is needed to make such tensors by quantize_."""
    n, k, size = 24, 256, 64
    codes = torch.randint(-8, 8, (n, k), dtype=torch.int8)
    scale, zero = (torch.randn(k // size, n, dtype=torch.bfloat16) for _ in range(2))
    both = scale[:1], zero[:1]  # one group: the transpose is contiguous, too
    packed = torch.empty(n, k // 2, dtype=torch.int8)
    expected = torch.empty(n, k)
    for column in range(k):
        half = codes[:, column] & 15
        of = column // 2
        packed[:, of] = half if column % 2 == 0 else packed[:, of] | half << 4
        expected[:, column] = codes[:, column] * scale[column // size].float() + zero[column // size].float()
    weight = ao.Int4Tensor(packed, scale, zero, [1, size], torch.Size((n, k)))
    q = QuantizedWeight.from_torchao(weight)
    assert (q.format, q.zero_points.dtype) == ("int4", torch.bfloat16)
    assert_owns(q, packed, scale, zero)
    assert_owns(QuantizedWeight.from_torchao(ao.Int4Tensor(packed, *both, [1, k], torch.Size((n, k)))), *both)
    assert_same_bits(q, expected)
    scaled = ao.Int4Tensor(packed, scale, zero, [1, size], torch.Size((n, k)), act_pre_scale=torch.ones(k))
    for wrong, message in ((scaled, "act_pre_scale"), (torch.randn(4, 4), "Tensor is no tensor of torchao")):
        with pytest.raises(ValueError, match=message):
            QuantizedWeight.from_torchao(wrong)


def tinygemm_words(codes):
    """``_convert_weight_to_int4pack`` of torch, as its kernel writes: (n, k) of 0 to 15, inner_k_tiles = 8."""
    n, k = codes.shape
    words = torch.zeros(n // 8, k // 128, 32, 4, dtype=torch.int64)
    for lane in range(32):
        rows = codes[lane // 4 :: 8].long()
        for inner in range(0, 8, 2):
            first = inner * 16 + lane % 4 * 2
            ks = [first, first + 1, first + 8, first + 9, first + 16, first + 17, first + 24, first + 25]
            v = [rows[:, of::128] for of in ks]
            places = (v[0], v[2], v[4], v[6], v[1], v[3], v[5], v[7])
            words[:, :, lane, inner // 2] = sum(place << 4 * i for i, place in enumerate(places))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


@pytest.mark.parametrize(("n", "k"), [(16, 1024), (20, 1152)])
def test_torchao_tinygemm(ao, n, k):
    from torchao.quantization.quant_primitives import _dequantize_affine_tinygemm
    from torchao.quantization.utils import pack_tinygemm_scales_and_zeros

    size, padded = 128, (-(-n // 8) * 8, -(-k // 1024) * 1024)
    codes = torch.randint(16, padded, dtype=torch.int32)
    scale, zero = (torch.randn(padded[0], padded[1] // size, dtype=torch.bfloat16) for _ in range(2))
    expected = _dequantize_affine_tinygemm(codes, (1, size), scale, zero, torch.int32, 0, 15)
    both = pack_tinygemm_scales_and_zeros(scale, zero)
    words = tinygemm_words(codes)
    if torch.cuda.is_available():
        pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8).cuda()
        assert torch.equal(torch.ops.aten._convert_weight_to_int4pack(pairs, 8).cpu(), words)
    weight = ao.Int4TilePackedTo4dTensor(words, both, [1, size], torch.Size((n, k)))
    q = QuantizedWeight.from_torchao(weight)
    assert q.dtype == torch.bfloat16
    assert_same_bits(q, expected[:n, :k])


# What a weight keeps


def of_bitsandbytes(weight, absmax):
    numbers = torch.tensor(NORMAL_FLOAT)
    state = {"quant_type": "nf4", "blocksize": 64, "shape": (16, 64), "dtype": torch.float32}
    return QuantizedWeight.from_bitsandbytes(weight, SimpleNamespace(absmax=absmax, code=numbers, **state))


def of_compressed_tensors(kind, bits, symmetric=True):
    weights = {"type": kind, "num_bits": bits, "symmetric": symmetric, "strategy": "channel"}
    return lambda **tensors: QuantizedWeight.from_compressed_tensors(tensors, weights)


def constructed():
    """Each constructor, and the tensors of a layer by the names of its arguments."""
    n, k, by = 16, 64, torch.tensor(0.5)
    nvfp4, fp8, mxfp4 = layouts.nvfp4(n, k, by.double()), layouts.fp8(n, k)[0], layouts.mxfp4(n, k)[0]
    scales, codes = {"weight_scale": torch.rand(n, 1)}, torch.randint(-128, 128, (n, k)).to(torch.int8)
    words = {"weight_packed": layouts.packed(n, k)[0]["weight_packed"], "weight_shape": torch.tensor([n, k])}
    yield QuantizedWeight.from_gptq, layouts.gptq(n, k, size=k)[0]
    yield QuantizedWeight.from_gptq, layouts.gptq(n, 8, size=8)[0]  # one word for each row
    yield QuantizedWeight.from_awq, layouts.awq(n, k, size=k)[0]
    yield of_bitsandbytes, {"weight": layouts.nf4(n, k)[0]["weight"], "absmax": torch.rand(n)}
    yield QuantizedWeight.from_fp8, fp8
    yield QuantizedWeight.from_mxfp4, dict(zip(("blocks", "scales"), mxfp4.values(), strict=True))
    yield QuantizedWeight.from_nvfp4, {"weight": nvfp4[0], "weight_scale": nvfp4[1], "weight_scale_2": by}
    yield of_compressed_tensors("float", 8), {"weight": fp8["weight"], **scales}
    zeros = {"weight_zero_point": codes[:, :1]}
    yield of_compressed_tensors("int", 8, symmetric=False), {"weight": codes, **scales, **zeros}
    yield of_compressed_tensors("int", 4), {**words, **scales}


def test_arguments_that_are_no_tensors():
    for convert, tensors in constructed():
        for name in tensors if convert is not of_bitsandbytes else ():
            with pytest.raises(TypeError, match=f"^fastgemm: {name} must be a torch.Tensor, got float"):
                convert(**tensors | {name: 0.5})


def test_sizes_of_nothing():
    n, words = 8, torch.zeros(1, 1, dtype=torch.int32)
    for k, groups in ((1, 0), (0, 1)):
        tensors = torch.zeros(k, n, dtype=torch.int32), words.expand(groups, 1), torch.ones(groups, n)
        with pytest.raises(ValueError, match=f"{groups} groups of . are not those of K = {8 * k}"):
            QuantizedWeight.from_gptq(*tensors)
    for wrong, error in (((0, 1), ValueError), (128, ValueError), (("1", 1), TypeError)):
        with pytest.raises(error, match="block_size must be"):
            QuantizedWeight.from_fp8(*layouts.fp8(n, 16)[0].values(), block_size=wrong)


def test_a_weight_keeps_no_memory_of_a_checkpoint():
    """A layer may be a part of a tensor, such as one of all experts, and the tensor may change afterwards."""
    for convert, tensors in constructed():
        given = {name: torch.stack((x, x))[1] for name, x in tensors.items()}
        q = convert(**given)
        assert_owns(q, *given.values())
        before = q.dequantize()
        for x in given.values():
            x.zero_()
        assert torch.equal(q.dequantize(), before)


# fp8, mxfp4 and nvfp4, as their formats define them


def test_fp8():
    n, k = 200, 300
    codes = torch.randn(n, k).to(torch.float8_e4m3fn)
    for scales, granularity, rows, columns in (
        (torch.rand(2, 3), "128x128", 128, 128),
        (torch.rand(n, 1), "channel", 1, k),
        (torch.rand(n), "channel", 1, k),
        (torch.rand(()), "tensor", n, k),
        (torch.rand(1), "tensor", n, k),
    ):
        matrix = scales.reshape(-(-n // rows), -(-k // columns))
        expected = codes.float() * matrix[torch.arange(n)[:, None] // rows, torch.arange(k) // columns]
        q = QuantizedWeight.from_fp8(codes, scales)
        assert (q.format, q.granularity, q.dtype) == ("fp8", granularity, torch.bfloat16)
        assert_same_bits(q, expected)
    q = QuantizedWeight.from_fp8(codes, torch.rand(4, 5, dtype=torch.bfloat16), block_size=(64, 64))
    assert q.block_size == (64, 64)
    for weight, scales, message in (
        (codes, torch.rand(3, 3), r"expected one, one for each row, or \(2, 3\)"),
        (codes.to(torch.float8_e5m2), torch.rand(1), "float8_e5m2"),
        (codes.view(torch.int8).fill_(127).view(torch.float8_e4m3fn), torch.rand(1), "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            QuantizedWeight.from_fp8(weight, scales)


def test_mxfp4():
    tensors, expected = layouts.mxfp4(12, 160)
    blocks, scales = tensors.values()
    q = QuantizedWeight.from_mxfp4(blocks, scales)
    assert (q.format, q.scales.dtype) == ("mxfp4", torch.float8_e8m0fnu)
    assert_same_bits(q, expected)
    assert_same_bits(q, expected.bfloat16())
    with pytest.raises(ValueError, match="one by one"):
        QuantizedWeight.from_mxfp4(blocks[None], scales[None])
    with pytest.raises(ValueError, match="scales of mxfp4"):
        QuantizedWeight.from_mxfp4(blocks, scales[:, :2])


def test_nvfp4():
    by = torch.tensor(0.001)
    codes, scales, expected = layouts.nvfp4(12, 64, by.double())
    q = QuantizedWeight.from_nvfp4(codes, scales, by)
    assert (q.format, q.group_size) == ("nvfp4", 16)
    assert_same_bits(q, expected)
    for arguments, message in (
        ((codes, scales.float(), by), "scales of nvfp4"),
        ((codes, scales, scales), "one number"),
        ((codes[:, :3], scales, by), "codes of nvfp4"),
    ):
        with pytest.raises(ValueError, match=message):
            QuantizedWeight.from_nvfp4(*arguments)
