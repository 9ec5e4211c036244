"""The two orders of packed weights: units against the loops that csrc/core/packed_weight.h describes."""

import fastgemm
import pytest
import torch
from fastgemm._quantized import formats, layout
from fastgemm._quantized.formats import CODES, SCALES, blocks
from torch import Tensor
from weights import KINDS, SHAPES, kind_id, random_weight, values


def place_in_unit(bits: int, r: int, c: int) -> tuple[int, int]:
    """The byte and the bit of a code, as in the header."""
    thread, step = r // 16 * 32 + r % 8 * 4 + c % 8 // 2, c // 16
    p, odd = r // 8 % 2 + c % 16 // 8 * 2, c % 2
    if bits == 4:
        bit = 4 * p + 16 * odd
        return (step // 4 * 128 + thread) * 16 + step % 4 * 4 + bit // 8, bit % 8
    return (step // 2 * 128 + thread) * 16 + step % 2 * 8 + p // 2 * 4 + p % 2 + 2 * odd, 0


def scale_in_unit(group_n: int, group_k: int, r: int, c: int) -> int:
    group = 0 if group_k >= 128 else c // group_k
    return group * 64 + r // 16 * 16 + r % 8 * 2 + r // 8 % 2 if group_n == 1 else group


def element(memory: Tensor, dtype: torch.dtype, at: int) -> float:
    return memory[at : at + dtype.itemsize].clone().view(dtype).double().item()


def at_place(u: fastgemm.QuantizedWeight, r: int, c: int) -> tuple[int, float, float | None]:
    """The bits, the scale and the zero point of one code, as the header finds them in units."""
    packing, bits = u._packing, CODES[u._packing.code].bits
    group_n, group_k = layout.unit_groups(packing)
    unit = u._codes[r // 64, c // 128]
    byte, bit = place_in_unit(bits, r % 64, c % 128)
    code = int(unit[byte]) >> bit & (15 if bits == 4 else 255)
    if packing.by_rows:
        return code, float(u._scales[r]), None if u._zeros is None else float(u._zeros[r])
    scale_dtype, zero_dtype = SCALES[packing.scale], packing.zero_dtype
    count = (64 if group_n == 1 else 1) * max(1, 128 // group_k)
    at_scales = 64 * 128 * bits // 8
    at_zeros = at_scales + blocks(count * scale_dtype.itemsize, 16) * 16
    i = scale_in_unit(group_n, group_k, r % 64, c % 128)
    scale = element(unit, scale_dtype, at_scales + i * scale_dtype.itemsize)
    return (
        code,
        scale,
        None if zero_dtype is None else element(unit, zero_dtype, at_zeros + i * zero_dtype.itemsize),
    )


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_units_are_those_of_the_header(kind):
    n, k = 130, 387
    q = random_weight(n, k, kind)
    units, codes, scales, zeros = q._ordered(True), q.codes.view(torch.uint8), q.scales, q.zero_points
    if CODES[q._packing.code].bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), 2).flatten(1)
    for r, c in zip(torch.randint(n, (300,)).tolist(), torch.randint(k, (300,)).tolist(), strict=True):
        block = r // q.block_size[0], c // q.block_size[1]
        zero = None if zeros is None else zeros[block].double().item()
        assert at_place(units, r, c) == (int(codes[r, c]), scales[block].double().item(), zero), (r, c)


def same_bits(x: Tensor | None, y: Tensor | None) -> bool:
    if x is None or y is None:
        return x is y
    return x.shape == y.shape and x.dtype == y.dtype and torch.equal(formats.bits_of(x), formats.bits_of(y))


@pytest.mark.parametrize("shape", SHAPES, ids=kind_id)
@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_both_orders_are_the_same_weight_and_convert_bit_by_bit(kind, shape, monkeypatch):
    monkeypatch.setattr(formats, "ROWS_HAVE", 64 * 400)  # several chunks
    q = random_weight(*shape, kind, order=True)
    if shape[1] % 2 and q.codes.dtype == torch.uint8:
        q.codes[:, -1] &= 15  # the other half of the byte belongs to no weight
    units = q._ordered(True)
    assert all(map(same_bits, q._inner(), units._ordered(False)._inner()))
    result = q.dequantize(torch.float32)
    # Product, sum and the multiplication by the global scale are rounded, each relative to the largest term.
    torch.testing.assert_close(result.double(), values(q), rtol=2**-22, atol=2**-22 * 20)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        assert torch.equal(q.dequantize(dtype), result.to(dtype))
        assert torch.equal(units.dequantize(dtype), result.to(dtype))


@pytest.mark.parametrize("shape", [(0, 64), (5, 0)], ids=kind_id)
@pytest.mark.parametrize("format", formats.FORMATS)
def test_empty_weights(format, shape):
    q = fastgemm.quantize_weight(torch.zeros(shape), format)
    units = q._ordered(True)
    assert all(map(same_bits, q._inner(), units._ordered(False)._inner()))
    assert q.dequantize().shape == units.dequantize().shape == shape


def test_padding_is_the_number_zero():
    """Kernels read whole units; what is beyond the weight must not be NaN."""
    for kind in KINDS:
        u = random_weight(3, 129, kind)._ordered(True)
        if u._packing.by_rows:
            continue
        group_n, group_k = layout.unit_groups(u._packing)
        packing = u._packing._replace(n=64, k=256, group_n=group_n, group_k=group_k)
        whole = layout.dequantize(formats.Parts(u._codes, None, None), packing, None, None, torch.float32)
        assert whole[3:].eq(0).all() and whole[:, 129:][:3].isfinite().all(), kind


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_units_of_a_large_weight_take_3_percent_more_at_most(kind):
    q = random_weight(1024, 2048, kind)
    if q._packing.by_rows or layout.unit_groups(q._packing) == q.block_size:  # else scales are repeated
        assert q._ordered(True).nbytes <= 1.03 * q.nbytes


@pytest.mark.parametrize("group", [1, 8, 40, 136])
def test_groups_that_no_gpu_takes(group):
    q = random_weight(8, 300, ("int4", "f32", "none", (1, group)))
    with pytest.raises(ValueError, match=f"groups of {group} along K are for CPUs only"):
        q._ordered(True)
