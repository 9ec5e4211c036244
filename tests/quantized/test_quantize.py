"""quantize_weight: scales and zero points as documented, and every weight at the nearest code."""

import fastgemm
import pytest
import torch
from fastgemm._quantized import formats
from fastgemm._quantized.formats import CODES, FORMATS
from fastgemm._quantized.rounding import _bounds
from reference import every_device
from torch import Tensor

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
# format, arguments, rows and columns of a block in a weight of 70 x 150
WAYS = [
    ("int4", {}, (1, 128)),
    ("int4", {"group_size": 32, "zero_points": True}, (1, 32)),
    ("int4", {"granularity": "tensor"}, (70, 150)),
    ("int8", {}, (1, 150)),
    ("int8", {"granularity": "128x128", "zero_points": True}, (128, 128)),
    ("int8", {"granularity": "tensor", "zero_points": True}, (70, 150)),
    ("int8", {"granularity": "group", "group_size": 7}, (1, 7)),
    ("fp8", {}, (1, 150)),
    ("fp8", {"granularity": "128x128"}, (128, 128)),
    ("nf4", {}, (1, 64)),
    ("nf4", {"granularity": "channel"}, (1, 150)),
    ("mxfp4", {}, (1, 32)),
    ("nvfp4", {}, (1, 16)),
]
every_way = pytest.mark.parametrize("format, options, block", WAYS, ids=lambda v: str(v).replace("'", ""))


def numbers(format: str) -> Tensor:
    """What the codes stand for, in order."""
    code = FORMATS[format].code
    if CODES[code].bits == 4:
        return torch.tensor(sorted(set(CODES[code].numbers)), dtype=torch.float64)
    if code == "int8":
        return torch.arange(-128.0, 128, dtype=torch.float64)
    every = torch.arange(256, dtype=torch.uint8)
    return every[every & 127 != 127].view(torch.float8_e4m3fn).double().unique()


def blocks_of(x: Tensor, block: tuple[int, int]) -> list[list[Tensor]]:
    return [list(rows.split(block[1], 1)) for rows in x.split(block[0])]


@every_device
@pytest.mark.parametrize(
    "dtype, format, options, block",
    [((BF16, F16, F32)[i % 3], *way) for i, way in enumerate(WAYS)],
    ids=lambda v: str(v).replace("'", ""),
)
def test_scales_are_those_documented_and_codes_are_the_nearest(
    format, options, block, dtype, device, monkeypatch
):
    monkeypatch.setattr(formats, "ROWS_HAVE", 16 * 150)  # several chunks
    n, k = 70, 150
    if device == "cuda" and block[1] == 7:
        pytest.skip("groups of 7 are for CPUs")
    w = (torch.randn(n, k) * torch.rand(n, 1)).to(dtype).mT.contiguous().mT
    w[3] = 0
    before = w.clone()
    q = fastgemm.quantize_weight(w, format, **options)
    assert torch.equal(w, before)
    assert (q.shape, q.dtype, q.format, q.block_size) == (w.shape, dtype, format, block)
    scales, zeros = q.scales, q.zero_points
    largest = torch.tensor([[b.abs().max().float() for b in row] for row in blocks_of(w, block)])
    assert (zeros is not None) == options.get("zero_points", False)
    of = numbers(format)
    if zeros is not None:
        highs = torch.tensor([[b.max().clamp(min=0).float() for b in row] for row in blocks_of(w, block)])
        lows = torch.tensor([[b.min().clamp(max=0).float() for b in row] for row in blocks_of(w, block)])
        expected = ((highs - lows) / (15 if format == "int4" else 255)).to(scales.dtype)
    elif format == "mxfp4":
        exponents = torch.where(largest > 0, largest.double().log2().floor() - 2, -127)
        expected = (exponents + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
    elif format == "nvfp4":
        by = largest.max() / (6 * 448)
        torch.testing.assert_close(q.global_scale, by, rtol=0, atol=0)
        expected = (largest / 6 / by).to(torch.float8_e4m3fn)
    else:
        top = {"int4": 7, "int8": 127, "fp8": 448, "nf4": 1}[format]
        expected = (largest / top).to(BF16 if "group" in q.granularity else F32)
    assert scales.dtype == expected.dtype
    assert torch.equal(formats.bits_of(scales), formats.bits_of(expected))

    rows, columns = torch.arange(n) // block[0], torch.arange(k) // block[1]
    step = scales.double()[rows][:, columns] * (1 if q.global_scale is None else q.global_scale.double())
    zero = 0 if zeros is None else zeros.double()[rows][:, columns]
    reachable = (of - zero[..., None] if zeros is not None else of) * step[..., None]
    nearest = (w.double()[..., None] - reachable).abs().amin(-1)
    error = (w.double() - q.dequantize(F32).double()).abs()
    assert (error <= nearest + 2**-21 * (w.double().abs() + step)).all()
    assert (q.dequantize()[3] == 0).all()


@every_device
def test_errors_of_a_normal_distribution(device):
    """Relative to the weight. The bounds are 3 percent above what these formats have."""
    w = torch.randn(256, 1024)
    bounds = {"int4": 0.119, "int8": 0.0085, "fp8": 0.0273, "nf4": 0.0946, "mxfp4": 0.1175, "nvfp4": 0.0976}
    for format, bound in bounds.items():
        q = fastgemm.quantize_weight(w, format)
        error = ((q.dequantize() - w).norm() / w.norm()).item()
        assert 0.8 * bound < error < bound, (format, error)


def plain_codes(q: fastgemm.QuantizedWeight) -> list[float]:
    scale = q.scales.double().flatten()[0] * (1 if q.global_scale is None else q.global_scale.double())
    return (q.dequantize(F32).double() / scale).flatten().tolist()


def test_ties_are_rounded_to_even_and_large_numbers_saturate():
    def codes(format: str, w: list[float], **options: object) -> list[float]:
        return plain_codes(fastgemm.quantize_weight(torch.tensor([w]), format, **options))

    assert codes("int4", [7, 0.5, 1.5, 2.5, -0.5, -3.5, 6.5, -6.5]) == [7, 0, 2, 2, 0, -4, 6, -6]
    assert codes("int8", [127, 0.5, -1.5, 126.5, -126.5]) == [127, 0, -2, 126, -126]
    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7.9]
    even = [0, 1, 1, 2, 2, 4, 4, 6]
    assert codes("mxfp4", [*ties, *(-x for x in ties)]) == [*even, *(-x for x in even)]
    assert codes("fp8", [448, 432, 400, 0.001953125 / 2, -17]) == [448, 448, 384, 0, -16]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@every_way
def test_what_is_not_finite_makes_the_scale_of_its_block_nan(format, options, block, value):
    w = torch.randn(70, 150)
    w[5, 100] = value
    result = fastgemm.quantize_weight(w, format, **options).dequantize()
    expected = torch.zeros(70, 150, dtype=torch.bool)
    rows, columns = 5 // block[0] * block[0], 100 // block[1] * block[1]
    expected[rows : rows + block[0], columns : columns + block[1]] = True
    if format == "nvfp4":
        expected[:] = True
    assert torch.equal(result.isnan(), expected)


@pytest.mark.parametrize("format", FORMATS)
def test_extreme_weights(format):
    zeros = fastgemm.quantize_weight(torch.zeros(4, 40), format)
    assert (zeros.dequantize() == 0).all() and zeros.scales.float().isfinite().all()
    for size in (1e-44, 1e-40, 1e-30, 1e30, 3e38):
        w = torch.randn(4, 40).clamp(-1, 1) * size
        result = fastgemm.quantize_weight(w, format).dequantize()
        assert result.isfinite().all() and (result.abs() <= 1.25 * w.abs().max() + 1e-40).all(), size
    on_meta = fastgemm.quantize_weight(torch.empty(70, 150, device="meta"), format)
    assert on_meta.is_meta and on_meta.nbytes == fastgemm.quantize_weight(torch.randn(70, 150), format).nbytes


def test_one_sided_weights_use_all_codes_of_zero_points():
    for sign in (1, -1):
        w = sign * (torch.rand(8, 64) + 1)
        q = fastgemm.quantize_weight(w, "int8", granularity="channel", zero_points=True)
        assert ((q.dequantize() - w).abs() <= q.scales / 2 * 1.001).all()


@pytest.mark.parametrize(
    "error, message, arguments",
    [
        (ValueError, "unknown format 'int3'; accepted: int4, int8", ("int3", {})),
        (ValueError, "unknown granularity 'row'; accepted: tensor", ("int4", {"granularity": "row"})),
        (ValueError, "mxfp4 has groups of 32, and no other scales", ("mxfp4", {"granularity": "channel"})),
        (ValueError, "nvfp4 has groups of 16, and no other scales", ("nvfp4", {"group_size": 32})),
        (ValueError, "group_size=0 is not for granularity 'group'", ("int4", {"group_size": 0})),
        (ValueError, "'channel'", ("int8", {"granularity": "channel", "group_size": 32})),
        (ValueError, "nf4 has no zero points; int4 and int8", ("nf4", {"zero_points": True})),
        (ValueError, r"unknown format \['int4'\]; accepted: int4, int8", (["int4"], {})),
        (ValueError, "unknown granularity {}; accepted: tensor", ("int4", {"granularity": {}})),
        (ValueError, r"unknown activations \['row'\]; accepted: 'tensor'", ("fp8", {"activations": ["row"]})),
        (ValueError, "got bf16 scales of blocks of 1x32", ("fp8", {"activations": "row", "group_size": 32})),
        (TypeError, "group_size must be an int, got str", ("int4", {"group_size": "32"})),
        (TypeError, "group_size must be an int, got float", ("int4", {"group_size": 32.0})),
    ],
)
def test_wrong_arguments(error, message, arguments):
    with pytest.raises(error, match=f"^fastgemm.quantize_weight: .*{message}"):
        fastgemm.quantize_weight(torch.randn(4, 64), arguments[0], **arguments[1])
    with pytest.raises(error, match=f"^fastgemm.nn.quantize: .*{message}"):
        fastgemm.nn.quantize(torch.nn.Linear(64, 4), arguments[0], **arguments[1])


def test_wrong_weights():
    for error, message, w in [
        (TypeError, "w must be a torch.Tensor, got list", [[1.0]]),
        (TypeError, "got torch.float64", torch.randn(4, 4).double()),
        (ValueError, r"must be an ordinary \(N, K\), got shape \(4,\)", torch.randn(4)),
        (TypeError, "w must be a torch.Tensor, got NoneType", None),
        (NotImplementedError, "w has layout torch.sparse_coo", torch.eye(4).to_sparse()),
        (ValueError, r"ordinary", fastgemm.quantize_weight(torch.randn(4, 4), "int8")),
    ]:
        with pytest.raises(error, match=f"^fastgemm.quantize_weight: .*{message}"):
            fastgemm.quantize_weight(w, "int4")


def test_compiled_scales_of_blocks_of_rows():
    w = torch.randn(130, 300)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda w: fastgemm.quantize_weight(w, "int8", granularity="128x128").dequantize()
    )
    torch.testing.assert_close(compiled(w), w, rtol=0, atol=0.03)


def test_zero_points_of_numbers_whose_difference_overflows():
    w = torch.tensor([[3e38, -3e38, 0.0, 1.0]])
    q = fastgemm.quantize_weight(w, "int8", zero_points=True)
    assert ((q.dequantize() - w).abs() <= 6e38 / 255).all()


@pytest.mark.parametrize("format", FORMATS)
def test_defaults_of_dtype_and_device_do_not_matter(format):
    w = torch.randn(3, 80)
    expected = fastgemm.quantize_weight(w, format).dequantize()
    before = torch.get_default_dtype()
    for default in (BF16, torch.float64):
        _bounds.cache_clear()
        torch.set_default_dtype(default)
        try:
            assert torch.equal(fastgemm.quantize_weight(w, format).dequantize(), expected)
            fastgemm.quantize_weight(w[:, :0], "int8", granularity="128x128")
        finally:
            torch.set_default_dtype(before)
    _bounds.cache_clear()
    with torch.device("meta"):
        assert torch.equal(fastgemm.quantize_weight(w, format).dequantize(), expected)
