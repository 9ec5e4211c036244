"""What the ranks of test_distributed.py do: operands cut up over a mesh, and what must come out of an op on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from reference import Expected, assert_right, expected_gemm, random_tensor
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode

R, P, AVERAGE = Replicate(), Partial(), Partial("avg")
NAMED = {"R": R, "P": P, "avg": AVERAGE, "max": Partial("max")} | {f"S{dim}": Shard(dim) for dim in range(4)}
_meshes: dict[tuple[int, ...], DeviceMesh] = {}


def placements(names: str) -> list[Placement]:
    """``"S0"``, or ``"S0 R"`` on a mesh of two dimensions."""
    return [NAMED[name] for name in names.split()]


def mesh_of(*shape: int) -> DeviceMesh:
    if shape not in _meshes:
        kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
        _meshes[shape] = init_device_mesh(kind, shape)
    return _meshes[shape]


def place(full: Tensor, mesh: DeviceMesh, where: Sequence[Placement]) -> DTensor:
    """``full``, which every rank has, as a DTensor. The parts of a Partial sum are disjoint, so that it is exact."""
    local = full
    for dim, placement in enumerate(where):
        if placement.is_partial():
            owner = torch.randint(mesh.size(dim), full.shape)
            local = torch.where(owner == mesh.get_local_rank(dim), local, 0)
            if placement == AVERAGE:
                local = local * mesh.size(dim)
    pending = [placement if placement.is_partial() else R for placement in where]
    return DTensor.from_local(local.to(mesh.device_type), mesh, pending, run_check=False).redistribute(
        mesh, where
    )


def assert_result(
    result: DTensor, expected: Expected, where: Sequence[Placement], communication: int | None
) -> None:
    assert isinstance(result, DTensor), type(result)
    assert list(result.placements) == list(where), f"{result.placements} instead of {where}"
    assert result.shape == expected.value.shape and result.dtype == expected.dtype
    assert result.to_local().dtype == expected.dtype
    assert_right(result.full_tensor(), expected, f"{where} after {communication} collectives")


def collectives(call: Callable[[], Any]) -> tuple[Any, int]:
    with CommDebugMode() as counted:
        result = call()
    return result, counted.get_total_counts()


def check_product(
    call: Callable[..., DTensor],
    mesh: Sequence[int],
    shapes: Sequence[Sequence[int] | None],
    names: Sequence[str | None],
    result: str,
    *,
    dtype: torch.dtype = torch.float32,
    moves: bool = False,
    **options: Any,
) -> None:
    """``call(a, b, c, **options)`` of operands placed as ``names`` say is right and placed as ``result`` says.

    Without ``moves``, no device sends anything. ``shapes`` are those of op(a), op(b) and c.
    """
    on = mesh_of(*mesh)
    op_a, op_b = (random_tensor(*shape, dtype=dtype) for shape in shapes[:2])
    a = op_a.mT.contiguous() if options.get("trans_a") else op_a
    b = op_b.mT.contiguous() if options.get("trans_b") else op_b
    of_result = expected_gemm(
        op_a, op_b, **{name: options[name] for name in ("out_dtype",) if name in options}
    ).dtype
    c = None if len(shapes) < 3 else random_tensor(*shapes[2], dtype=of_result)
    expected = expected_gemm(
        op_a,
        op_b,
        c,
        **{name: options[name] for name in ("alpha", "beta", "out_dtype") if name in options},
    )
    operands = [
        place(operand, on, placements(where))
        for operand, where in zip((a, b, c), names, strict=False)
        if operand is not None
    ]
    got, count = collectives(lambda: call(*operands, **options))
    assert (count > 0) == moves, f"{count} collectives"
    assert_result(got, expected, placements(result), count)
