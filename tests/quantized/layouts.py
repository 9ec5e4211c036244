"""Layers in the layouts of published checkpoints, and the weights that they stand for.

Each function draws codes and scales for ``(n, k)``, and returns the tensors by their names in a file, without the
layer's, and the weight in float32."""

import json

import torch
from fastgemm._quantized.formats import NORMAL_FLOAT

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FP4 = torch.tensor([*FP4, *(-x for x in FP4)])


def pack_words(rows, bits, order=None):
    """Rows of codes, packed along each row into int32 words; ``order``: the column of each place of a word."""
    each = 32 // bits
    words = torch.zeros(rows.shape[0], rows.shape[1] // each, dtype=torch.int64)
    for column in range(words.shape[1]):
        for place in range(each):
            of = order[place] if order else place
            words[:, column] |= rows[:, column * each + of].long() << bits * place
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def draw_scales(*shape, dtype=torch.float16):
    """Scales with which products with a random input are not far from 1."""
    return ((torch.rand(shape) + 0.5) / 64).to(dtype)


def gptq(n, k, bits=4, size=32, g_idx=None, zeros=None, version=1, dtype=torch.float16):
    """AutoGPTQ's qlinear_cuda.py; ``zeros``: all zero points, as they are."""
    groups = -(-k // size)
    codes, scales = torch.randint(2**bits, (n, k)), draw_scales(groups, n, dtype=dtype)
    zeros = torch.randint(1, 2**bits, (groups, n)) if zeros is None else torch.full((groups, n), zeros)
    of = torch.arange(k) // size if g_idx is None else g_idx
    weight = torch.empty(n, k)
    for column in range(k):
        weight[:, column] = (codes[:, column] - zeros[of[column]]) * scales[of[column]].float()
    stored = zeros - (2 - version) & 2**bits - 1
    tensors = {"qweight": pack_words(codes, bits).t().contiguous(), "qzeros": pack_words(stored, bits)}
    return tensors | {"scales": scales, "g_idx": of.int()}, weight


def awq(n, k, size=32):
    """AutoAWQ's gemm.py."""
    codes, zeros = torch.randint(16, (n, k)), torch.randint(16, (k // size, n))
    scales = draw_scales(k // size, n)
    weight = torch.empty(n, k)
    for column in range(k):
        weight[:, column] = (codes[:, column] - zeros[column // size]) * scales[column // size].float()
    tensors = {"qweight": pack_words(codes.t(), 4, AWQ_ORDER), "qzeros": pack_words(zeros, 4, AWQ_ORDER)}
    return tensors | {"scales": scales}, weight


def nf4(n, k):
    """The packed state of bitsandbytes, with nested scales."""
    codes = torch.randint(16, (n, k))
    outer, nested = torch.rand(-(-n * k // 64 // 256)), torch.linspace(-1, 1, 256)
    absmax = torch.randint(256, (n * k // 64,), dtype=torch.uint8)
    scales = nested[absmax.long()] * outer.repeat_interleave(256)[: len(absmax)] + 0.1
    weight = torch.tensor(NORMAL_FLOAT)[codes] * scales.reshape(n, -1).repeat_interleave(64, 1)
    flat = codes.flatten().to(torch.uint8)
    sizes = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [n, k]}
    sizes |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.1}
    tensors = {
        "weight": (flat[::2] << 4 | flat[1::2])[:, None],
        "weight.absmax": absmax,
        "weight.quant_map": torch.tensor(NORMAL_FLOAT),
        "weight.nested_absmax": outer,
        "weight.nested_quant_map": nested,
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(
            list(json.dumps(sizes).encode()), dtype=torch.uint8
        ),
    }
    return tensors, weight


def fp8(n, k, block=(128, 128), name="weight_scale_inv", dtype=torch.float32):
    codes = torch.randn(n, k).to(torch.float8_e4m3fn)
    scales = draw_scales(-(-n // block[0]), -(-k // block[1]), dtype=dtype)
    rows, columns = torch.arange(n)[:, None] // block[0], torch.arange(k) // block[1]
    return {"weight": codes, name: scales}, codes.float() * scales[rows, columns].float()


def packed(n, k, size=32, bits=4):
    """compressed-tensors' pack-quantized, with zero points."""
    largest = 2 ** (bits - 1)
    codes, zeros = torch.randint(2 * largest, (n, k)), torch.randint(2 * largest, (n, k // size))
    scales = draw_scales(n, k // size, dtype=torch.bfloat16)
    of = torch.arange(k) // size
    tensors = {
        "weight_packed": pack_words(codes, bits),
        "weight_zero_point": pack_words(zeros.t(), bits).t().contiguous(),
        "weight_scale": scales,
        "weight_shape": torch.tensor([n, k]),
    }
    return tensors, (codes - zeros[:, of]) * scales[:, of].float()


def mxfp4(n, k):
    """gpt-oss's blocks."""
    blocks = torch.randint(256, (n, k // 32, 16), dtype=torch.uint8)
    scales = torch.randint(116, 122, (n, k // 32), dtype=torch.uint8)
    weight = torch.empty(n, k)
    for column in range(k):
        byte = blocks[:, column // 32, column % 32 // 2]
        number = FP4[(byte >> 4 if column % 2 else byte & 15).long()]
        weight[:, column] = number * torch.exp2(scales[:, column // 32].float() - 127)
    return {"weight_blocks": blocks, "weight_scales": scales}, weight


def nvfp4(n, k, by):
    """Codes in rows, and scales of 16 weights; ``by`` is the global scale, which is stored separately."""
    codes = torch.randint(256, (n, k // 2), dtype=torch.uint8)
    scales = (torch.rand(n, k // 16) * 400).to(torch.float8_e4m3fn)
    weight = torch.empty(n, k)
    for column in range(k):
        byte = codes[:, column // 2]
        number = FP4[(byte >> 4 if column % 2 else byte & 15).long()].double()
        weight[:, column] = number * scales[:, column // 16].double() * by  # rounded once
    return codes, scales, weight
