"""Sharded operands: how gemm, linear, grouped_mm, transpose and add run on DTensors.

A ``torch.distributed.tensor.DTensor`` is a tensor that is distributed over a mesh of devices. The rules below
tell torch for which placements an op needs no communication, and the placement of the result. torch moves
operands that fit no rule (``redistribute``), and runs the op on the part of each device. So

>>> mesh = init_device_mesh("cuda", (2,))                              # doctest: +SKIP
>>> x, w = distribute_tensor(x, mesh, [Replicate()]), distribute_tensor(w, mesh, [Shard(1)])  # doctest: +SKIP
>>> fastgemm.matmul(x, w, level=5)      # every device multiplies by its columns: Shard(1)   # doctest: +SKIP

needs no further call: the rules are registered as soon as ``torch.distributed.tensor`` is imported, which
``import fastgemm`` does not do (it takes a second). Gradients follow, since they are gemm, transpose and add
themselves. Placements are those of torch's own products; docs/scale.md says what each costs.

A product over a sharded K is a ``Partial`` sum, rounded to the result's dtype on every device before it is added
up: ``out_dtype=torch.float32`` keeps the sum of float16 and bfloat16 products in float32.

Each rule names all arguments of its ops, so that a new one cannot be overlooked. Every device runs the op
with the keyword arguments of the call. Most of them mean the same for a part as for the whole: the choice of
a kernel (``level``, ``impl``, ``precision``), ``out_dtype``, and the scales, because a sum of scaled parts is
the scaled sum. The rules explain the arguments that restrict where an op can run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from ._import_hooks import call_after_import
from ._ops.gated import SWIGLU

if TYPE_CHECKING:
    from torch.distributed.tensor import Placement
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

    Rule = tuple[list[Placement], list[Placement]]  # of the results; of the arguments that are tensors

__all__ = ["register"]


def __dir__() -> list[str]:
    return __all__


_DTENSOR = "torch.distributed.tensor"
_LINEAR = ("sum", "avg")  # a linear function may be applied before these reductions


def register() -> None:
    """Registers the sharding rules with torch; a second call is harmless. Raises ImportError in a torch without
    DTensor.

    It is called automatically once both fastgemm and ``torch.distributed.tensor`` are imported.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.experimental import register_sharding

    ops = torch.ops.fastgemm
    rules = {
        _gemm_rules: [ops._matmul.default, ops._gemm.default, ops.gemm.default],
        _linear_rules: [ops._fused_linear.default, ops.linear.default],
        _grouped_rules: [ops._grouped_mm.default, ops.grouped_mm.default],
        _transpose_rules: [ops._transpose.default, ops.transpose.default],
        _add_rules: [ops._add.default, ops.add.default],
        _add_in_place_rules: [ops.add_.default],
    }
    known = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    for rule, overloads in rules.items():
        register_sharding(overloads)(rule)
        for op in overloads:
            # torch caches the result of a rule. The key of the cache has the operands' shapes and placements,
            # and these keyword arguments. register_sharding names only arguments of type int; then a product
            # with trans_a=True would get the cached result of one without.
            known[op].static_kwargkey = [a.name for a in op._schema.arguments if a.kwarg_only]
            # The arguments hold no lists of tensors, either: torch 2.11 takes 80 us to look for them.
            known[op].needs_pytree = False


def register_on_import() -> None:
    """Calls :func:`register` now if ``torch.distributed.tensor`` is imported, otherwise after its import."""
    call_after_import(_DTENSOR, _register_or_warn)


def _register_or_warn() -> None:
    """Only warns if torch has changed its experimental interface: torch.compile imports DTensor without need."""
    try:
        register()
    except (ImportError, AttributeError, KeyError) as error:
        message = f"fastgemm: no rules for sharded operands (DTensor) in torch {torch.__version__}: {error!r}"
        warnings.warn(message, stacklevel=2)


def _aligned(operand: DTensorSpec, shape: Sequence[int], dim: int) -> Placement:
    """The placement of an operand that broadcasts to ``shape``, if the result is sharded along ``dim``."""
    from torch.distributed.tensor import Replicate, Shard

    own = dim - (len(shape) - operand.ndim)
    return Shard(own) if own >= 0 and operand.shape[own] == shape[dim] else Replicate()


def _may_be_partial(operand: DTensorSpec) -> bool:
    """Whether torch may be told to take ``operand`` as a Partial sum.

    torch turns a replicated tensor into one by dividing by the number of devices, which is wrong for integers.
    """
    assert operand.tensor_meta is not None  # torch calls rules with shapes and dtypes
    return operand.tensor_meta.dtype.is_floating_point or all(p.is_partial() for p in operand.placements)


def _gemm_rules(
    a: DTensorSpec,
    b: DTensorSpec,
    c: DTensorSpec | None = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    level: int | None = None,
    impl: str | None = None,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
    symmetric: bool = False,
) -> Iterator[Rule]:
    """alpha * op(a) @ op(b) + beta * c. The first of several rules that need no communication is taken.

    A symmetric result cannot be sharded along its rows or columns: a device's part would not be symmetric. It can
    be a Partial sum: each summand is mirrored from its lower triangle, and so the total is symmetric, too.

    An invariant kernel sums over a device's part of K; docs/invariant.md says what is promised then.
    """
    from torch.distributed.tensor import Partial, Replicate, Shard

    m_of_a, k_of_a = (a.ndim - 1, a.ndim - 2) if trans_a else (a.ndim - 2, a.ndim - 1)
    k_of_b, n_of_b = (b.ndim - 1, b.ndim - 2) if trans_b else (b.ndim - 2, b.ndim - 1)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[m_of_a], b.shape[n_of_b])
    m, n = len(batch), len(batch) + 1

    def rule(result: Placement, of_a: Placement, of_b: Placement, of_c: Placement) -> Rule:
        return [result], [of_a, of_b] if c is None else [of_a, of_b, of_c]

    def sharded(dim: int, of_a: Placement, of_b: Placement) -> Rule:
        return rule(Shard(dim), of_a, of_b, Replicate() if c is None else _aligned(c, shape, dim))

    yield rule(Replicate(), Replicate(), Replicate(), Replicate())
    if not symmetric:
        yield sharded(m, Shard(m_of_a), Replicate())
        yield sharded(n, Replicate(), Shard(n_of_b))
    for dim in range(m):
        if shape[dim] != 1:
            yield sharded(dim, _aligned(a, shape, dim), _aligned(b, shape, dim))
    if c is not None and not _may_be_partial(c):
        return
    # The devices' parts of c must add up to c, so c is Partial, too. If each device had all of c, c would be
    # added several times.
    yield rule(Partial(), Shard(k_of_a), Shard(k_of_b), Partial())
    for pending in map(Partial, _LINEAR):
        if _may_be_partial(a):
            yield rule(pending, pending, Replicate(), pending)
        if _may_be_partial(b):
            yield rule(pending, Replicate(), pending, pending)


def _linear_rules(
    x: DTensorSpec,
    weight: DTensorSpec,
    bias: DTensorSpec | None = None,
    residual: DTensorSpec | None = None,
    *,
    activation: str | None = None,
    level: int | None = None,
    impl: str | None = None,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Iterator[Rule]:
    """activation(x @ weight.T + bias) + residual: an activation is not linear, so it needs whole sums."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    def rule(result: Placement, of_x: Placement, of_weight: Placement, of_bias: Placement) -> Rule:
        added = ([] if bias is None else [of_bias]) + ([] if residual is None else [result])
        return [result], [of_x, of_weight, *added]

    last = x.ndim - 1
    yield rule(Replicate(), Replicate(), Replicate(), Replicate())
    for dim in range(last):
        yield rule(Shard(dim), Shard(dim), Replicate(), Replicate())
    yield rule(Shard(last), Replicate(), Shard(0), Shard(0))
    if activation is not None:
        return
    # Each device adds its part of the bias and of the residual, as it does with c of a product.
    if _may_be_partial(x):
        yield rule(Partial(), Shard(last), Shard(1), Partial())
    for pending in map(Partial, _LINEAR):
        if _may_be_partial(x):
            yield rule(pending, pending, Replicate(), pending)
        if _may_be_partial(weight):
            yield rule(pending, Replicate(), pending, pending)


def _grouped_rules(
    a: DTensorSpec,
    b: DTensorSpec,
    offs: DTensorSpec | None = None,
    bias: DTensorSpec | None = None,
    *,
    activation: str | None = None,
    level: int | None = None,
    impl: str | None = None,
    invariant: bool = False,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Iterator[Rule]:
    """Products of groups. Every device has the ends of all groups. A dimension that groups divide is not sharded,
    and the dimension of the groups is not sharded either: a group begins where the group before it ends, which may
    be on another device."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    grouped = {(2, 3): "m", (3, 2): "n", (2, 2): "k"}.get((a.ndim, b.ndim), "")
    m, n = (0, 1) if grouped in ("m", "n") else (1, 2)

    def rule(result: Placement, of_a: Placement, of_b: Placement, of_bias: Placement) -> Rule:
        last = ([] if offs is None else [Replicate()]) + ([] if bias is None else [of_bias])
        return [result], [of_a, of_b, *last]

    yield rule(Replicate(), Replicate(), Replicate(), Replicate())
    if not grouped:
        yield rule(Shard(0), Shard(0), Shard(0), Shard(0) if bias and bias.ndim == 2 else Replicate())
    if grouped != "m":
        yield rule(Shard(m), Shard(a.ndim - 2), Replicate(), Replicate())
    if grouped != "n" and activation != SWIGLU:  # which pairs columns of both halves
        yield rule(Shard(n), Replicate(), Shard(b.ndim - 1), Shard(bias.ndim - 1 if bias else 0))
    if activation is not None or (bias is not None and not _may_be_partial(bias)):
        return
    if grouped != "k":
        yield rule(Partial(), Shard(a.ndim - 1), Shard(b.ndim - 2), Partial())
    for pending in map(Partial, _LINEAR):
        if _may_be_partial(a):
            yield rule(pending, pending, Replicate(), pending)
        if _may_be_partial(b):
            yield rule(pending, Replicate(), pending, pending)


def _transpose_rules(a: DTensorSpec, *, level: int | None = None, impl: str | None = None) -> Iterator[Rule]:
    from torch.distributed.tensor import Replicate, Shard

    yield [Replicate()], [Replicate()]
    rows, columns = a.ndim - 2, a.ndim - 1
    for dim in range(a.ndim):
        yield [Shard({rows: columns, columns: rows}.get(dim, dim))], [Shard(dim)]
    for pending in a.placements:  # elements only move, so any reduction may follow
        if pending.is_partial():
            yield [pending], [pending]


def _add_rules(
    a: DTensorSpec, b: DTensorSpec, *, alpha: float = 1.0, level: int | None = None, impl: str | None = None
) -> Iterator[Rule]:
    """a + alpha * b: linear in both at once."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    shape = torch.broadcast_shapes(a.shape, b.shape)
    yield [Replicate()], [Replicate(), Replicate()]
    for dim, size in enumerate(shape):
        if size != 1:
            yield [Shard(dim)], [_aligned(a, shape, dim), _aligned(b, shape, dim)]
    if _may_be_partial(a) and _may_be_partial(b):
        for pending in map(Partial, _LINEAR):
            yield [pending], [pending, pending]


def _add_in_place_rules(
    a: DTensorSpec, b: DTensorSpec, *, alpha: float = 1.0, level: int | None = None, impl: str | None = None
) -> Iterator[Rule]:
    """The op returns nothing, and torch leaves out the rules that would move ``a``."""
    for _result, operands in _add_rules(a, b):
        yield [], operands
