"""The checks that the ranks of test_distributed.py run. They shard operands over a mesh, and compare the results
of ops.

Names of placements: R is replicated, S0 sharded along dimension 0, P a partial sum, avg a partial mean; ``S0 R``
is for a mesh of two dimensions. ``"S0, R -> S0"`` means that operands placed S0 and R give a result placed S0
without communication. ``"S0, R => S0"`` means the same with communication, and ``?`` is any placement.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import fastgemm
import torch
import torch.distributed as dist
from reference import Expected, assert_right, expected_gemm, random_tensor, result_dtype, wrapped
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode

AVERAGE = Partial("avg")
NAMED = {"R": Replicate(), "P": Partial(), "avg": AVERAGE, "max": Partial("max")}
NAMED |= {f"S{dim}": Shard(dim) for dim in range(4)}
LEAST = -(2**31)  # the least int32; random float32 numbers are far above
_meshes: dict[tuple[int, ...], DeviceMesh] = {}


def placements(names: str) -> list[Placement]:
    return [NAMED[name] for name in names.split()]


def parsed(case: str) -> tuple[list[str], str | None, bool]:
    """The operands' placements, the result's (None if torch's cost model decides), and whether data move."""
    operands, arrow, result = re.split(r" ([-=]>) ", case)
    return operands.split(", "), None if result == "?" else result, arrow == "=>"


def cases(text: str) -> list[str]:
    return [" ".join(case.split()) for case in text.split(";")]


def mesh_of(*shape: int) -> DeviceMesh:
    if shape not in _meshes:
        kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
        _meshes[shape] = init_device_mesh(kind, shape)
    return _meshes[shape]


def place(full: Tensor, mesh: DeviceMesh, where: str) -> DTensor:
    """Makes a DTensor of ``full``, which every rank has. Parts of a Partial sum are disjoint, so it is exact."""
    local, pending = full, []
    for dim, placement in enumerate(placements(where)):
        pending.append(placement if placement.is_partial() else Replicate())
        if placement.is_partial():
            owned = torch.randint(mesh.size(dim), full.shape) == mesh.get_local_rank(dim)
            rest = torch.zeros_like(local) if placement != NAMED["max"] else torch.full_like(local, LEAST)
            local = torch.where(owned, local * mesh.size(dim) if placement == AVERAGE else local, rest)
    on_device = DTensor.from_local(local.to(mesh.device_type), mesh, pending, run_check=False)
    return on_device.redistribute(mesh, placements(where))


def transposed(names: str, rank: int) -> str:
    """The placements of x.mT, given those of x."""
    swapped = {f"S{rank - 2}": f"S{rank - 1}", f"S{rank - 1}": f"S{rank - 2}"}
    return " ".join(swapped.get(name, name) for name in names.split())


def assert_result(result: DTensor, expected: Expected, where: str | None) -> None:
    """Checks the placement ``where``, unless it is None because torch's cost model decides."""
    assert isinstance(result, DTensor), type(result)
    if where is not None:
        assert list(result.placements) == placements(where), f"{result.placements} instead of {where}"
    assert result.dtype == result.to_local().dtype == expected.dtype
    assert result._spec.tensor_meta.dtype == expected.dtype, "torch's cached metadata of the result"
    assert result.shape == expected.value.shape
    assert_right(result.full_tensor(), expected, str(result.placements))


def run(call: Callable[[], Any], moves: bool) -> Any:
    """Runs ``op`` and asserts that devices communicate if and only if ``moves``."""
    with CommDebugMode() as counted:
        result = call()
    assert (counted.get_total_counts() > 0) == moves, dict(counted.get_comm_counts())
    return result


def check_product(
    case: str,
    shapes: Sequence[Sequence[int]],
    *,
    mesh: Sequence[int] = (2,),
    dtype: torch.dtype = torch.float32,
    op: Callable[..., Any] = fastgemm.gemm,
    **options: Any,
) -> None:
    """Checks ``op(a, b, c, **options)``. Case and shapes are for op(a), op(b) and, if there are three, c."""
    names, result, moves = parsed(case)
    on = mesh_of(*mesh)
    values = [random_tensor(*shape, dtype=dtype) for shape in shapes[:2]]
    arithmetic = {name: options[name] for name in ("alpha", "beta", "out_dtype") if name in options}
    if len(shapes) > 2:
        of_result = options.get("out_dtype") or result_dtype(dtype)
        values.append(random_tensor(*shapes[2], dtype=of_result))
    expected = expected_gemm(*values, **arithmetic)
    for index, flag in enumerate(("trans_a", "trans_b")):
        if options.get(flag):
            values[index] = values[index].mT.contiguous()
            names[index] = transposed(names[index], values[index].dim())
    operands = [place(value, on, where) for value, where in zip(values, names, strict=True)]
    assert_result(run(lambda: op(*operands, **options), moves), expected, result)


def check_products_that_differ_in_one_argument() -> None:
    """torch caches data about a product. It must not use the data for another product with the same shapes and
    placements."""
    square, half = [(8, 8)] * 2, {"dtype": torch.bfloat16}
    for _ in range(2):
        check_product("S1, R -> P", square, trans_b=True)  # both shard a along its last dimension
        check_product("S0, R -> S0", square, trans_a=True)
        check_product("R, S0 -> P", square, trans_a=True)  # and these shard b along its first
        check_product("R, S1 -> S1", square, trans_b=True)
        check_product("S0, R -> S0", square, alpha=2, **half)
        check_product("S0, R -> S0", square, out_dtype=torch.float32, **half)


def check_overloads(sizes: Sequence[int]) -> None:
    """The ops that the functions call and the ops that torch.compile sees have the same rules."""
    m, k, n = sizes
    ops = torch.ops.fastgemm
    for op in (ops._matmul.default, ops._gemm.default, ops.gemm.default):
        check_product("S0, R -> S0", [(m, k), (k, n)], op=op)
        check_product("S1, S0 -> P", [(m, k), (k, n)], op=op)
    for op in (ops._transpose.default, ops.transpose.default):
        check_transpose("S0 -> S1", (m, n), op=op)
    for op in (ops._add.default, ops.add.default):
        check_add("S1, S1 -> S1", [(m, n)] * 2, op=op)


def check_with_gradients(
    case: str,
    shapes: Sequence[Sequence[int]],
    call: Callable[..., Tensor],
    sharded: Callable[..., Tensor] | None = None,
) -> None:
    """Compares a call with the same call of sharded operands, by another function if there is one. Shapes may be
    fewer than the operands of the case. Gradients are compared, too."""
    on, (names, result, moves) = mesh_of(2), parsed(case)
    values = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    placed = [
        place(value, on, where).requires_grad_()
        for value, where in zip(values, names[: len(shapes)], strict=True)
    ]
    for value in values:
        value.requires_grad_()
    sharded = sharded or call
    expected = call(*values)
    with torch.no_grad():
        got = run(lambda: sharded(*placed), moves)
    if result is not None:
        assert list(got.placements) == placements(result), got.placements
    torch.testing.assert_close(got.full_tensor().cpu(), expected.detach())
    seed = torch.randn_like(expected)
    expected.backward(seed)
    sharded(*placed).redistribute(on, placements("R")).backward(place(seed, on, "R"))
    for mine, value in zip(placed, values, strict=True):
        torch.testing.assert_close(mine.grad.full_tensor().cpu(), value.grad)


def check_linear(
    case: str,
    shapes: Sequence[Sequence[int]],
    *,
    activation: str | None = None,
    op: Callable[..., Any] = fastgemm.linear,
) -> None:
    """Case and shapes are for x, weight, bias and residual, which may be missing."""

    def call(function: Callable[..., Tensor], x: Tensor, weight: Tensor, *added: Tensor) -> Tensor:
        bias, residual = (*added, None, None)[:2]
        return function(x, weight, bias, activation=activation, residual=residual)

    check_with_gradients(case, shapes, partial(call, fastgemm.linear), partial(call, op))


def check_grouped(
    case: str, shapes: Sequence[Sequence[int]], ends: Sequence[int] | None, activation: str | None = None
) -> None:
    """Case and shapes are for a, b and bias, which may be missing; every device has the ends of the groups."""
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)

    def call(ends: Tensor | None, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        return fastgemm.grouped_mm(a, b, ends, bias=bias, activation=activation)

    placed_ends = None if offs is None else place(offs, mesh_of(2), "R")
    check_with_gradients(case, shapes, partial(call, offs), partial(call, placed_ends))


def check_sequences(shapes: Sequence[Sequence[int]]) -> None:
    """x has three dimensions, which torch cannot flatten if the devices' parts of them differ in size. Checks the
    op that torch.compile sees, the function and the layer."""
    of_all = cases("S0, R, R -> S0; S1, R, R -> S1; R, S0, S0 -> S2")
    for op in (torch.ops.fastgemm.linear.default, fastgemm.linear):
        for case in (*of_all, "P, R, R => ?"):
            check_linear(case, shapes, activation="gelu", op=op)
        check_linear("P, R, R -> P", shapes, op=op)
    for case in (*of_all, "P, R, R -> P"):
        check_with_gradients(case, shapes, fastgemm.nn.linear)


def check_transpose(case: str, shape: Sequence[int], op: Callable[..., Any] = fastgemm.transpose) -> None:
    (where,), result, moves = parsed(case)
    for dtype in (torch.float32, torch.int32) if where != "avg" else (torch.float32,):
        a = random_tensor(*shape, dtype=dtype)
        got = run(lambda a=a: op(place(a, mesh_of(2), where)), moves)
        assert list(got.placements) == placements(result), got.placements
        assert got.full_tensor().cpu().equal(a.mT)


def check_add(
    case: str,
    shapes: Sequence[Sequence[int]],
    *,
    dtype: torch.dtype = torch.float32,
    alpha: float = 1,
    op: Callable[..., Any] = fastgemm.add,
) -> None:
    names, result, moves = parsed(case)
    values = [random_tensor(*shape, dtype=dtype) for shape in shapes]
    a, b = (x.double() if dtype.is_floating_point else x.long() for x in values)
    if dtype.is_floating_point:
        expected = Expected(a + alpha * b, a.abs() + abs(alpha) * b.abs(), 1, dtype, dtype)
    else:
        expected = Expected(wrapped(a + int(alpha) * b, dtype), None, 1, dtype, dtype)
    operands = [place(x, mesh_of(2), where) for x, where in zip(values, names, strict=True)]
    got = run(lambda: op(*operands, alpha=alpha), moves)
    if op is fastgemm.add_:
        assert got is operands[0]
    assert_result(got, expected, result)


def check_gradients(case: str, shapes: Sequence[Sequence[int]], **options: Any) -> None:
    """Gradients of a product and their placements must equal torch's. The case names the operands and the result's
    gradient."""
    on, (names, seed_where, _) = mesh_of(2), parsed(case)
    for index, flag in enumerate(("trans_a", "trans_b")):
        names[index] = transposed(names[index], 2) if options.get(flag) else names[index]
    values = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    seed = torch.randn(7, 5, dtype=torch.float64)

    def gradients(product: Callable[..., Any], *operands: Tensor) -> list[Tensor]:
        leaves = [operand.detach().requires_grad_() for operand in operands]
        result = product(*leaves)
        if isinstance(result, DTensor):
            result.redistribute(on, placements(seed_where)).backward(place(seed, on, seed_where))
        else:
            result.backward(seed)
        return [leaf.grad for leaf in leaves]

    def with_torch(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        a, b = (a.mT if options.get("trans_a") else a), (b.mT if options.get("trans_b") else b)
        result = options.get("alpha", 1) * (a @ b)
        return result if c is None else result + options.get("beta", 1) * c

    def ours(*operands: Tensor) -> Tensor:
        return fastgemm.gemm(*operands, **options)

    placed = [place(value, on, where) for value, where in zip(values, names, strict=True)]
    expected = gradients(with_torch, *values)
    like_torch = gradients(with_torch, *placed)
    for got, value, like in zip(gradients(ours, *placed), expected, like_torch, strict=True):
        assert got.placements == like.placements, f"{got.placements}, torch's are {like.placements}"
        torch.testing.assert_close(got.full_tensor().cpu(), value, rtol=1e-12, atol=1e-12)


def check_gradients_of_transpose_and_add() -> None:
    on = mesh_of(2)
    a, b, seed = (torch.randn(7, 5, dtype=torch.float64) for _ in range(3))
    of_a, of_b = (place(x, on, "S0").requires_grad_() for x in (a, b))
    result = fastgemm.transpose(fastgemm.add(of_a, of_b, alpha=3))
    result.backward(place(seed.mT.contiguous(), on, "S1"))
    for leaf, value in ((of_a, seed), (of_b, 3 * seed)):
        assert list(leaf.grad.placements) == placements("S0")
        torch.testing.assert_close(leaf.grad.full_tensor().cpu(), value)


def check_choice(sizes: Sequence[int]) -> None:
    """Every rank's part must equal, bit for bit, the requested kernel's product of the operands' parts."""
    m, k, n = sizes
    on = mesh_of(2)
    a, b = place(torch.randn(m, k), on, "S1"), place(torch.randn(k, n), on, "S0")
    seen = set()
    device = on.device_type
    rows = [row for row in fastgemm.kernels("gemm", device) if row.available and row.takes(torch.float32)]
    choices = [{"kernel": row.name, "precision": row.precision} for row in rows]
    choices += [{"level": row.level, "precision": "ieee"} for row in rows if row.role == "rung"]
    for choice in choices:
        try:
            expected = fastgemm.matmul(a.to_local(), b.to_local(), **choice)
        except RuntimeError as refusal:
            assert "cannot run" in str(refusal)
            continue
        assert fastgemm.matmul(a, b, **choice).to_local().equal(expected), choice
        seen.add(expected.double().sum().item())
    assert len(seen) > 1, "all kernels round alike, so the test cannot distinguish them"
    for wrong in ({"level": 8}, {"kernel": "no such kernel"}, {"precision": "no such precision"}):
        for call in (lambda w=wrong: fastgemm.matmul(a, b, **w), lambda w=wrong: fastgemm.gemm(a, b, **w)):
            assert raised(ValueError, call)
    for op in (fastgemm.transpose, lambda x, **w: fastgemm.add(x, x, **w)):
        assert raised(ValueError, lambda op=op: op(a, level=8))
        assert raised(ValueError, lambda op=op: op(a, kernel="no such kernel"))


def raised(kind: type[Exception], call: Callable[[], Any]) -> str:
    """The message of the exception that the call raises."""
    try:
        call()
    except kind as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{kind.__name__} was not raised")


def check_refusals() -> None:
    on = mesh_of(2)
    a = torch.randn(4, 4).to(on.device_type)
    sharded = place(a.cpu(), on, "S0")
    for call in (
        lambda: fastgemm.matmul(sharded, sharded, out=torch.empty_like(sharded)),
        lambda: fastgemm.transpose(sharded, out=torch.empty_like(sharded)),
        lambda: fastgemm.add(sharded, sharded, out=torch.empty_like(sharded)),
    ):
        assert "sharding strategy" in raised(NotImplementedError, call)
    assert "mixed torch.Tensor and DTensor" in raised(RuntimeError, lambda: fastgemm.matmul(sharded, a))
    quantized, whole = fastgemm.quantize_weight(a, "int8"), place(a.cpu(), on, "R")
    experts, ids = torch.ones(2, 8, 4), torch.zeros(4, 1, dtype=torch.int64)
    of_moe = [place(t, on, "R") for t in (experts, experts[:, :4].mT.contiguous(), ids, torch.ones(4, 1))]
    for name, call in (
        ("moe", lambda: fastgemm.moe(whole, *of_moe)),
        ("linear", lambda: fastgemm.linear(sharded, quantized)),
        ("nn.linear", lambda: fastgemm.nn.linear(sharded, quantized)),
        ("matmul", lambda: fastgemm.matmul(sharded, quantized.mT)),
    ):
        assert f"fastgemm.{name}: x is a DTensor" in raised(NotImplementedError, call)
    integers = place(torch.ones(4, 4, dtype=torch.int32), on, "P")
    replicated = place(torch.ones(4, 4, dtype=torch.int32), on, "R")
    assert "in-place" in raised(RuntimeError, lambda: fastgemm.add_(integers, replicated))


def check_compiled(sizes: Sequence[int]) -> None:
    m, k, n = sizes
    on = mesh_of(2)

    def mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return fastgemm.matmul(fastgemm.matmul(x, up).relu(), fastgemm.transpose(down), level=5)

    x, up, down = torch.randn(m, k), torch.randn(k, n), torch.randn(k, n)
    placed = [place(t, on, where) for t, where in ((x, "R"), (up, "S1"), (down, "S1"))]
    seed = place(torch.randn(m, k), on, "R")

    def outcome(call: Callable[..., Any]) -> list[DTensor]:
        leaves = [t.detach().requires_grad_() for t in placed]
        result = call(*leaves)
        result.redistribute(on, placements("R")).backward(seed)
        return [result, *(leaf.grad for leaf in leaves)]

    compiled = torch.compile(mlp, fullgraph=True, backend="aot_eager")
    for got, value in zip(outcome(compiled), outcome(mlp), strict=True):
        assert got.placements == value.placements
        torch.testing.assert_close(got.full_tensor(), value.full_tensor())
