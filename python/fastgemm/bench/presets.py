"""Named sets of problems for ``fastgemm bench``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .problems import Add, Gemm, Problem, Transpose

Choice = tuple[tuple[str, int | str], ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A problem, and the choices of kernels to time on it; an empty choice means the fastest known kernel."""

    problem: Problem
    group: str
    choices: tuple[Choice, ...] = ((),)
    threads: int | None = None
    allocate: bool = False
    optional: bool = False  # a choice that cannot run here is left out, not an error
    slow_rungs: bool = False  # on a GPU: also time slow rungs
    in_bytes: bool = False  # a product that is bound by reading its largest operand: GB/s instead of TFLOPS


def cubes(*sizes: int) -> list[Shape]:
    return [(n, n, n) for n in sizes]


def _layers(tokens: tuple[int, ...], **weights: tuple[int, int]) -> list[Shape]:
    """(tokens, out_features, in_features) of linear layers."""
    return [(m, out, inner) for m in tokens for out, inner in weights.values()]


# The linear layers of well-known transformers: (out_features, in_features), weights as torch.nn.Linear stores
# them. Queries, keys and values are one product, and so are the gate and up projections.
TRANSFORMERS: dict[str, list[Shape]] = {
    "gpt2": _layers((1, 128), qkv=(2304, 768), out=(768, 768), up=(3072, 768), down=(768, 3072)),
    "bert-large": _layers((1, 128), qkv=(3072, 1024), out=(1024, 1024), up=(4096, 1024), down=(1024, 4096)),
    "vit-b/16": _layers((197,), qkv=(2304, 768), out=(768, 768), up=(3072, 768), down=(768, 3072)),
    "qwen2.5-0.5b": _layers((1, 128), qkv=(1152, 896), out=(896, 896), gate_up=(9728, 896), down=(896, 4864)),
    "llama-3-8b": _layers(
        (1, 128), qkv=(6144, 4096), out=(4096, 4096), gate_up=(28672, 4096), down=(4096, 14336)
    ),
}

GEMM_SHAPES: dict[str, list[Shape]] = {
    "squares": cubes(128, 256, 512, 1024, 2048, 4096),
    "small": [*cubes(16, 32, 48, 64, 96, 128, 192, 256), (64, 64, 64, 64), (256, 32, 32, 32)],
    "skinny": [
        (1, 4096, 4096),
        (8, 4096, 4096),
        (32, 4096, 4096),
        (4096, 1, 4096),
        (4096, 8, 4096),
        (4096, 64, 4096),
        (4096, 4096, 8),
        (4096, 4096, 64),
        (64, 64, 65536),
    ],
    "odd": [*cubes(63, 127, 257, 511, 1023, 2049), (1000, 777, 3001), (513, 1025, 2049), (77, 3001, 999)],
}
TRANSPOSE_SHAPES: dict[str, list[Shape]] = {
    "squares": [(n, n) for n in (256, 512, 1024, 2048, 4096, 8192)],
    "small": [*((n, n) for n in (8, 16, 32, 64, 128)), (256, 32, 32)],
    "skinny": [(16, 1 << 20), (1 << 20, 16), (3, 1 << 21), (1 << 21, 3), (64, 262144)],
    "odd": [*((n, n) for n in (257, 1023, 4097, 6145)), (1000, 3001), (12289, 777)],
}
ADD_SHAPES: dict[str, list[Shape]] = {
    name: [s for s in shapes if len(s) == 2] for name, shapes in TRANSPOSE_SHAPES.items()
}
PRESETS = ("squares", "small", "skinny", "odd", "transformers")


def from_shape(op: str, shape: Shape, dtype: torch.dtype, layout: str = "NN") -> Problem:
    """A problem from sizes: gemm [B x] M x N x K, transpose [B x] R x C, add R x C; of a single size a cube or a
    square. ValueError otherwise."""
    ranks = {"gemm": (3, 4), "transpose": (2, 3), "add": (2,)}[op]
    if len(shape) == 1:
        shape *= min(ranks)
    if len(shape) not in ranks:
        forms = {"gemm": "N, MxNxK or BxMxNxK", "transpose": "N, RxC or BxRxC", "add": "N or RxC"}[op]
        raise ValueError(f"a shape of {op} is {forms}, got {'x'.join(map(str, shape))}")
    batch = shape[0] if len(shape) == max(ranks) and op != "add" else 1
    sizes = shape[-min(ranks) :]
    if op == "gemm":
        m, n, k = sizes
        return Gemm(m, n, k, dtype=dtype, layout=layout, batch=batch)
    rows, cols = sizes
    return (
        Transpose(rows, cols, dtype=dtype, batch=batch) if op == "transpose" else Add(rows, cols, dtype=dtype)
    )


def shapes(preset: str, op: str) -> dict[str, list[Shape]]:
    """Shapes of a preset by group. Raises ValueError if the preset has none for the op."""
    if preset == "transformers":
        if op != "gemm":
            raise ValueError("the preset transformers has only products (--op gemm)")
        return dict(TRANSFORMERS)
    return {preset: {"gemm": GEMM_SHAPES, "transpose": TRANSPOSE_SHAPES, "add": ADD_SHAPES}[op][preset]}


def preset_cases(
    preset: str,
    op: str,
    dtypes: list[torch.dtype],
    layouts: list[str],
    choices: tuple[Choice, ...],
    threads: int | None,
) -> list[Case]:
    """The cases of a preset."""
    cases = []
    for dtype in dtypes:
        for layout in ["NT"] if preset == "transformers" else layouts:
            for group, members in shapes(preset, op).items():
                for shape in members:
                    problem = from_shape(op, shape, dtype, layout)
                    name = str(dtype).removeprefix("torch.")
                    cases.append(
                        Case(problem, f"{group} {name}", choices, threads, allocate=preset == "small")
                    )
    return cases
