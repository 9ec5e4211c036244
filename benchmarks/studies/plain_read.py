"""A kernel that only reads memory. Its time is a lower bound for a product with one large operand.

A copy is no such bound, because DRAM reads faster when nothing is written. Each thread has four loads of 16 bytes
in flight. Each multiprocessor has one block of 1024 threads. Together the blocks' loads are contiguous. The loads
are evict-first, because nothing is read twice.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

THREADS = 1024
WORDS = tl.constexpr(4 * THREADS)  # words of a block's contiguous loads


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
    # Almost no word is ever written. But the compiler cannot know this, so it keeps the loads.
    tl.store(result + lanes, found, mask=found == 0x7FC12345)


def plain_read(x: Tensor) -> Callable[[], Tensor]:
    """A call that reads the whole words of ``x`` and returns ``x``. ``x`` is a dense CUDA tensor with any strides.
    Raises ValueError if it has more than 7 GiB, because words are counted in 32 bits."""
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
