"""What tools/ncu_check.py found: the simulator's counters against the hardware's, as a table and with reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from render.markdown import table

Record = dict[str, Any]  # one launch; its "counts" hold [simulator, hardware] by counter

GLOBAL = ("load requests", "load sectors", "store requests", "store sectors", "bulk copies")
SHARED = ("shared loads", "shared load wavefronts", "shared stores", "shared store wavefronts")

# Why counters of a kernel differ: a kernel, counters, the reason. What nvcc does was seen in the machine code
# (cuobjdump -sass); what lanes do at edges follows from the source.
AT_ENDS = "at the ends of rows lanes skip turns of a loop; the simulator takes their n-th accesses together"
EXPLAINED: tuple[tuple[str, str, str], ...] = (
    (r"gemm_tiled_kernel", "shared load", "nvcc reads four k of a row of A with one `LDS.128`"),
    (
        *(r"gemm_float4_kernel<float, 65>", "shared load"),
        "nvcc reads what it can prove aligned with `LDS.128` and `LDS.64`",
    ),
    (
        *(r"gemm_wmma_kernel", "shared"),
        "how `wmma` loads and stores a fragment is the compiler's; the simulator does it element by element",
    ),
    (
        *(r"gemm_wmma_kernel", "load sectors"),
        "a padded line lies in two rows of banks, so that `cp.async` writes it in two passes with sectors each",
    ),
    (
        *(r"(gemm_warp_specialized|packed::gemm)_kernel", "load"),
        "blocks ask for each other's flags until they are set",
    ),
    (
        # 20 sectors for 512 bytes instead of 17, in each of three problems
        *(r"gemm_cp_async_kernel", "load sectors"),
        "where rows begin in the middle of a sector, each quarter of a warp copies with sectors of its own",
    ),
    (
        *(r"transpose_copy_kernel", ""),
        "lanes at the ends of rows copy element by element in loops that others skip, and the simulator takes"
        " the n-th accesses of all together",
    ),
    (
        *(r"transpose_pipelined_kernel<.*\(Rows\)2>", ""),
        "at the edge of `src` lanes skip turns of a loop; the simulator takes their n-th accesses together",
    ),
    (
        # 1 to 5 % of the accesses, where neither extent is a multiple of the tile's
        *(r"transpose_(vectorized|saturating)_kernel", "shared load"),
        AT_ENDS,
    ),
    (r"transpose_vectorized_kernel|decode_kernel<.*BFloat16", "store", AT_ENDS),
    (
        # 34 of 128: 2 of rows, 32 of columns
        *(r"planes::gemm_kernel<planes::Shape<planes::Fp16x3", "load"),
        "a thread's 64 sums have 34 scales, which nvcc loads once each and the source names for each sum",
    ),
    (
        # 8 of 17
        *(r"gemm_dmma_rest_kernel|planes::\w+_kernel<.*Bf16x6Rest|residues::(multiply|join)_kernel", "load"),
        "the limits by which a tile is judged: nvcc loads each once, the source names it for each pair",
    ),
    (
        *(r"residues::join_kernel", "store"),
        "nvcc stores two of a thread's eight pairs an element at a time",
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
    """Counters that are not equal, each with the reason; None: there is none."""
    return {
        name: next(
            (
                why
                for kernel, counters, why in EXPLAINED
                if re.match(kernel, record["kernel"]) and counters in name
            ),
            None,
        )
        for name, (ours, theirs) in record["counts"].items()
        if ours != theirs
    }


def equal(record: Record, counters: Iterable[str]) -> bool:
    return not differences(record).keys() & set(counters)


def _sums(records: list[Record], counters: Iterable[str]) -> str:
    """Both sums, or one where they are equal launch by launch."""
    ours, theirs = (
        sum(record["counts"].get(name, (0, 0))[side] for record in records for name in counters)
        for side in (0, 1)
    )
    if ours == theirs == 0:
        return "-"
    same = all(equal(record, counters) for record in records)
    return f"{ours:,}" if same else f"**{ours:,} / {theirs:,}**"


def _line(records: list[Record]) -> list[str]:
    first = records[0]
    reasons = dict.fromkeys(why for record in records for why in differences(record).values())
    kernel = re.sub(r"_kernel$", "", re.match(r"\w+", first["kernel"])[0])
    wavefronts = [name for name in SHARED if "wavefronts" in name]
    return [
        first["op"],
        f"`{first['row']}`",
        f"`{kernel}`",
        str(len(records)),
        _sums(records, [name for name in GLOBAL if "sectors" not in name]),
        _sums(records, [name for name in GLOBAL if "sectors" in name]),
        _sums(records, wavefronts),
        "; ".join(why or "not explained" for why in reasons),
    ]


def _count(records: list[Record], counters: Iterable[str]) -> str:
    good = [record for record in records if equal(record, counters)]
    rows = {(record["op"], record["row"]) for record in records}
    bad = {(record["op"], record["row"]) for record in records if not equal(record, counters)}
    whole = f"all those of {len(rows - bad)} of {len(rows)} rows of the kernel table"
    return f"{len(good)} of {len(records)} launches, {whole}"


def section(data: dict[str, Any]) -> str:
    """A line for each row of the kernel table and kernel that it launches, over all problems."""
    env, records = data["environment"], data["launches"]
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault((record["op"], record["row"], re.match(r"\w+", record["kernel"])[0]), []).append(
            record
        )
    header = [
        "op",
        "row",
        "kernel",
        "launches",
        "requests",
        "sectors",
        "shared wavefronts",
        "why they differ",
    ]
    lines = table(header, (_line(group) for group in groups.values()), numbers_from=3)
    head, *rest = lines.split("\n")
    marks = rest[0].rsplit(" ---: |", 1)[0] + " --- |"  # reasons are words
    intro = (
        f"Requests and sectors in global memory are equal in {_count(records, GLOBAL)};"
        f" shared wavefronts in {_count(records, [n for n in SHARED if 'wavefronts' in n])}."
        " Where they differ: simulator / hardware."
    )
    versions = (
        f"driver {env['driver']}, CUDA {env['cuda']}, Nsight Compute {env['ncu']}, torch {env['torch']}"
    )
    commit = f", commit {env['commit']}" if env["commit"] else ""
    source = f"Counted on {env['device']} ({versions}), {env['date'][:10]}{commit}, by `tools/ncu_check.py`."
    return "\n\n".join([intro, "\n".join([head, marks, *rest[1:]]), source])
