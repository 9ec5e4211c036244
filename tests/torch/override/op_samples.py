"""The samples of torch's own tests (``op_db``) for every op that reaches a matrix product.

torch does not promise to keep these samples. If a version lacks an op, its tests are skipped. test_op_db.py finds
the ops that reach a product, so new ops are noticed.
"""

import functools
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm"})

# Ops by OpInfo.full_name, which is name and variant. Their forward pass calls one of PRODUCTS, in float32 on a
# CPU.
FORWARD = (
    *("mm", "bmm", "bmm.triton_optimized", "addmm", "addmm.decomposed", "baddbmm", "matmul", "__rmatmul__"),
    *("einsum", "tensordot", "linalg.multi_dot", "linalg.matrix_power", "linalg.pinv.singular"),
    *("cov", "corrcoef", "svd_lowrank", "pca_lowrank"),
    *(
        "nn.functional.linear",
        "nn.functional.linear_cross_entropy",
        "nn.functional.linear_cross_entropy.chunked",
    ),
    *("nn.functional.linear_cross_entropy.chunked_none", "nn.functional.multi_head_attention_forward"),
    "nn.functional.scaled_dot_product_attention",
)
# Their forward pass calls a product inside of C++, where no mode sees it.
INSIDE = (
    *("addbmm", "matrix_exp", "nn.functional.bilinear"),
    *("pinverse", "linalg.pinv", "linalg.pinv.hermitian"),
)
# Only their gradients call a product.
BACKWARD = (
    *("cdist", "norm.nuc"),
    *("cholesky", "cholesky_inverse", "cholesky_solve", "linalg.cholesky", "linalg.cholesky_ex"),
    *("lu", "lu_solve", "linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex", "linalg.lu_solve"),
    *("qr", "ormqr", "linalg.qr", "linalg.householder_product", "linalg.lstsq", "linalg.lstsq.grad_oriented"),
    *("svd", "linalg.svd", "linalg.svdvals", "linalg.eigh", "linalg.eigvalsh", "linalg.cond"),
    *("linalg.norm", "linalg.norm.subgradients_at_zero", "linalg.matrix_norm"),
    *("linalg.inv", "linalg.inv_ex", "linalg.solve", "linalg.solve_ex", "linalg.solve_triangular"),
    *("triangular_solve", "linalg.tensorinv", "linalg.tensorsolve"),
)
# These call no products, or only sparse (sampled_addmm), complex (eig) or float8 ones, which torch computes.
PASSED_ON = (
    *("mv", "addmv", "dot", "vdot", "addr", "inner", "outer", "kron", "linalg.vecdot", "linalg.eig"),
    *("sparse.mm.reduce", "sparse.sampled_addmm", "torch._scaled_mm", "torch._scaled_mm_v2"),
)
NAMES = FORWARD + INSIDE + BACKWARD + PASSED_ON
IN_PLACE = ("addmm", "addbmm", "baddbmm", "addmv", "addr")

FEW = 12  # if an op has at most this many samples, all are used
MOST_ELEMENTS = 4096  # the most elements of a tensor in a sample; larger ones only take time

Arguments = tuple[Any, tuple[Any, ...], dict[str, Any]]  # a sample's input, args, kwargs


@functools.cache
def op_db() -> dict[str, Any]:
    """Every OpInfo by its full name. The import takes seconds, so only a test that needs it imports it."""
    pytest.importorskip("expecttest", reason="torch's samples need expecttest (the extra 'test')")
    before = dict(os.environ)
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db as ops
    from torch.testing._internal.opinfo import core

    # Each series of samples looks for the unittest that asks for it, in 20 ms, and finds none here.
    for module in (common_utils, core):
        module.extract_test_fn = lambda: None
    for name in os.environ.keys() - before.keys():  # it sets inductor's cache folder for later tests
        del os.environ[name]
    return {op.full_name: op for op in ops}


def find(name: str) -> Any:
    """The OpInfo with this name. Skips the test if this torch has none."""
    if name not in op_db():
        pytest.skip(f"torch {torch.__version__} has no samples of {name}")
    return op_db()[name]


def spread_evenly(items: list[Any], most: int, turn: int = 0) -> list[Any]:
    """At most so many items: the first one, and others that depend on the turn."""
    first, rest = items[:1], items[1:]
    step = -(-len(rest) // (most - 1)) or 1
    return first + rest[turn % step :: step]


def tensors_of(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def arguments_of(sample: Any) -> Arguments:
    return sample.input, tuple(sample.args), dict(sample.kwargs)


# The types that have samples. Each type uses other samples than the previous one, so together they use most.
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex128, torch.complex64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)


def samples_of(op: Any, device: str, dtype: torch.dtype, requires_grad: bool, most: int) -> list[Any]:
    """``most`` samples, spread evenly over the small ones, or all small ones if there are at most FEW.
    Complex types include conjugates.

    Every second one is not contiguous.
    """
    # Tests draw fresh data (conftest.py). Without set_seed=False, torch would seed every sample with a constant.
    every = list(op.reference_inputs(device, dtype, requires_grad, set_seed=False))
    if dtype.is_complex and op.test_conjugated_samples:
        every += op.conjugate_sample_inputs(device, dtype, requires_grad, set_seed=False)
    small = [s for s in every if all(x.numel() <= MOST_ELEMENTS for x in tensors_of(arguments_of(s)))]
    chosen = small if len(small) <= FEW else spread_evenly(small, most, DTYPES.index(dtype))
    return [
        sample.noncontiguous() if at % 2 and is_dense(arguments_of(sample)) else sample
        for at, sample in enumerate(chosen)
    ]


def is_dense(tree: Any) -> bool:
    return all(x.layout is torch.strided for x in tensors_of(tree))


GPUS = range(torch.cuda.device_count())


def call(op: Callable[..., Any], arguments: Arguments, **more: Any) -> Any:
    """An op must draw the same random numbers in each run: a random low-rank basis decides its rounding errors."""
    first, args, kwargs = arguments
    with torch.random.fork_rng(GPUS):
        # torch.manual_seed takes milliseconds, because it records the stack for each kind of missing device.
        torch.default_generator.manual_seed(torch.initial_seed())
        if GPUS:
            torch.cuda.manual_seed_all(torch.initial_seed())
        return op(first, *args, **kwargs, **more)


def mapped(arguments: Arguments, change: Callable[[Any], Any]) -> Arguments:
    """Applies ``change`` to tensors and dtypes. A tensor that occurs twice stays one object, for attention."""
    seen: dict[int, Any] = {}

    def once(x: Any) -> Any:
        if not isinstance(x, (Tensor, torch.dtype)):
            return x
        return seen.setdefault(id(x), change(x))

    return tree_map(once, arguments)


class Recorder(TorchDispatchMode):
    """Counts the products that reach torch below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        if name in PRODUCTS:
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


def both_passes(op: Any, samples: list[Any], forward: Any, backward: Any) -> None:
    """Computes samples and their gradients, with each pass in a context."""
    for sample in samples:
        with forward:
            result = call(op, arguments_of(sample))
        roots = [x for x in tensors_of(sample.output_process_fn_grad(result)) if x.requires_grad]
        with backward:
            torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
