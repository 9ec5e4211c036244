"""Where the simulator's counters differ from the hardware's (measured by tools/ncu_check.py), and why."""

from __future__ import annotations

import re
from typing import Any

Record = dict[str, Any]  # one launch; "counts" has [simulator, hardware] by counter

# Why counters of a kernel differ: kernel, counters, reason. Reasons about nvcc were seen in the machine code
# (cuobjdump -sass); reasons about lanes at edges follow from the source.
AT_ENDS = "at row ends, lanes skip iterations of a loop; the simulator groups the n-th accesses of all lanes"
EXPLAINED: tuple[tuple[str, str, str], ...] = (
    (r"gemm_tiled_kernel", "shared load", "nvcc reads four k of a row of A with one `LDS.128`"),
    (
        *(r"gemm_float4_kernel<65>", "shared load"),
        "nvcc uses `LDS.128` and `LDS.64` where it can prove that addresses are aligned",
    ),
    (
        *(r"gemm_wmma_kernel", "shared"),
        "the compiler decides how `wmma` loads and stores a fragment; the simulator does it element by element",
    ),
    (
        *(r"gemm_wmma_kernel", "load sectors"),
        "a padded line is in two rows of banks, so `cp.async` writes it in two passes, each with its own sectors",
    ),
    (
        *(r"(gemm_warp_specialized|packed::gemm)_kernel", "load"),
        "blocks poll each other's flags until they are set",
    ),
    (
        # 20 sectors for 512 bytes instead of 17, in each of three problems
        *(r"gemm_cp_async_kernel", "load sectors"),
        "if rows begin in the middle of a sector, each quarter of a warp requests its own sectors",
    ),
    (
        *(r"transpose_copy_kernel", ""),
        "lanes at row ends copy element by element in loops that other lanes skip; the simulator groups the"
        " n-th accesses of all lanes",
    ),
    (
        *(r"transpose_pipelined_kernel<.*\(Rows\)2>", ""),
        "at the edge of `src`, lanes skip iterations of a loop; the simulator groups all lanes' n-th accesses",
    ),
    (
        # 1 to 5 % of the accesses, where neither extent is a multiple of the tile's
        *(r"transpose_(vectorized|saturating)_kernel", "shared load"),
        AT_ENDS,
    ),
    (
        *(r"transpose_vectorized_kernel|decode_kernel<.*BFloat16", "store"),
        AT_ENDS,
    ),
    (r"gemm_(one_wave|mma_ldmatrix)_kernel<.*BFloat16", "store sectors", AT_ENDS),
    (
        *(r"gemm_one_wave_kernel<Tile<\d+, \d+, [24], 1>", "shared"),
        "sums for another block of a cluster are generic stores, which the hardware counts separately; the"
        " simulator splits one load of each block, after the cluster's barrier",
    ),
    (
        # 34 of 128: 2 for rows, 32 for columns
        *(r"planes::gemm_kernel<planes::Shape<planes::Fp16x3", "load"),
        "a thread's 64 sums have 34 scales: nvcc loads each scale once, but the source reads scales for each sum",
    ),
    (
        # 8 of 17
        *(r"gemm_dmma_rest_kernel|planes::\w+_kernel<.*Bf16x6Rest|residues::(multiply|join)_kernel", "load"),
        "nvcc loads each limit that decides about a tile once, but the source reads the limits for each pair",
    ),
    (
        *(r"residues::join_kernel", "store"),
        "nvcc stores two of a thread's eight pairs element by element",
    ),
    (
        *(r"planes::decode::decode_kernel", "shared store"),
        "nvcc clears the flags of eight warps by two `STS.128`",
    ),
    (
        *(r"residues::scale_kernel", "store"),
        "nvcc stores the 32 bytes of a row's scale by four `STG.64`, the simulator by two of 16 bytes",
    ),
    (
        *(r"residues::(cut|scale|survey)_kernel", "shared load"),
        "nvcc reads the votes of all warps by two `LDS.128`, and only in warps that need the result",
    ),
    (r"residues::measure_kernel", "shared load", "nvcc reads both sums of a chunk by one `LDS.128`"),
)


def differences(record: Record) -> dict[str, str | None]:
    """The counters that are not equal, each with the reason, or None if no reason is known."""

    def reason(counter: str) -> str | None:
        found = (
            why
            for name, counters, why in EXPLAINED
            if re.match(name, record["kernel"]) and counters in counter
        )
        return next(found, None)

    return {name: reason(name) for name, (ours, theirs) in record["counts"].items() if ours != theirs}
