"""A kernel that reads memory and does nothing else: what bounds a product of which one operand is large.

A copy is no such bound: DRAM that is read alone delivers more than half of what a copy reads and writes. Each
thread has four loads of 16 bytes on their way, in one block of 1024 threads a multiprocessor, side by side over
the whole operand; evict-first, as nothing is read twice.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

THREADS = 1024
WORDS = tl.constexpr(4 * THREADS)  # of a block's loads that are side by side


@triton.jit
def _words(source, at, words):
    return tl.load(source + at, mask=at < words, other=0, eviction_policy="evict_first")


@triton.jit
def _read(source, words, result):
    step = tl.num_programs(0) * WORDS
    lanes = tl.arange(0, WORDS)
    found = tl.zeros((WORDS,), dtype=tl.int32)
    for first in range(tl.program_id(0) * WORDS, words, 4 * step):
        a = _words(source, first + lanes, words)
        b = _words(source, first + step + lanes, words)
        c = _words(source, first + 2 * step + lanes, words)
        d = _words(source, first + 3 * step + lanes, words)
        found ^= a ^ b ^ c ^ d
    # Hardly ever is a word of the result written, which the compiler cannot know.
    tl.store(result + lanes, found, mask=found == 0x7FC12345)


def plain_read(x: Tensor) -> Callable[[], Tensor]:
    """A call that reads the whole words of ``x``, a dense CUDA tensor whatever its strides, and returns ``x``.
    ValueError where it has more than 7 GiB, whose words 32 bits do not count."""
    if x.nbytes > 7 << 30:
        raise ValueError(f"{x.nbytes} bytes are more than 7 GiB")
    flat = x.as_strided((x.numel(),), (1,)).view(torch.uint8)
    words = flat[: flat.numel() // 4 * 4].view(torch.int32)
    result = torch.empty(WORDS.value, dtype=torch.int32, device=x.device)
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count

    def call() -> Tensor:
        _read[(blocks,)](words, words.numel(), result, num_warps=THREADS // 32)
        return x

    return call
