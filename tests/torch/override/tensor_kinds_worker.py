"""Calls ops with tensors of a kind, inside and outside of a patch. test_tensor_kinds_patch.py runs this in a
separate process.

It prints the name of each call before the call, so that the parent knows which call crashed the process.
"""

import contextlib
import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import fastgemm
import torch
from tensor_kinds import KINDS, Kind, dense_of, form_of
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves


def unnamed(sizes: Any) -> str:
    """Sizes as text. Symbols of jagged dimensions are replaced, because they count all jagged tensors so far."""
    return re.sub(r"j\d+", "j", str(sizes))


# The arguments: tensors x and y of the kind, 4 x 4 or batches of three; p, a plain tensor of the same shape; w and
# v, a plain matrix and a plain vector.
PRODUCTS: dict[str, Callable[..., Any]] = {
    "x @ y": lambda x, y, p, w, v: x @ y,
    "x @ p": lambda x, y, p, w, v: x @ p,
    "p @ x": lambda x, y, p, w, v: p @ x,
    "x @ w": lambda x, y, p, w, v: x @ w,
    "w @ x": lambda x, y, p, w, v: w @ x,
    "x @ v": lambda x, y, p, w, v: x @ v,
    "v @ x": lambda x, y, p, w, v: v @ x,
    "x.mH @ x": lambda x, y, p, w, v: x.mH @ x,
    "linear(x, w, v)": lambda x, y, p, w, v: functional.linear(x, w, v),
    "linear(p, x)": lambda x, y, p, w, v: functional.linear(p, x),
    "einsum(x, p)": lambda x, y, p, w, v: torch.einsum("...ij,...kj->...ik", x, p),
    "tensordot": lambda x, y, p, w, v: torch.tensordot(x, w, 1),
    "vecdot": lambda x, y, p, w, v: torch.linalg.vecdot(x, y),
    "matrix_power": lambda x, y, p, w, v: torch.linalg.matrix_power(x, 3),
    "cdist": lambda x, y, p, w, v: torch.cdist(x, p),
    "bilinear": lambda x, y, p, w, v: functional.bilinear(x, y, torch.stack([w] * 4), v),
    "pinv": lambda x, y, p, w, v: torch.linalg.pinv(x),
    "attention": lambda x, y, p, w, v: functional.scaled_dot_product_attention(x, y, x),
    "matmul out=new": lambda x, y, p, w, v: torch.matmul(x, y, out=x.new_empty(p.shape)),
    "matmul out=x": lambda x, y, p, w, v: torch.matmul(p, p, out=x),
    "matmul out=float64": lambda x, y, p, w, v: torch.matmul(x, y, out=p.double()),
    "matmul out=int": lambda x, y, p, w, v: torch.matmul(x, x, out=p.int()),
}
MATRIX_PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": lambda x, y, p, w, v: torch.mm(x, y),
    "mm(x, p)": lambda x, y, p, w, v: torch.mm(x, p),
    "dot": lambda x, y, p, w, v: torch.dot(x[0], y[1]),
    "addmm(p, x, y)": lambda x, y, p, w, v: torch.addmm(p, x, y),
    "addmm(p, x, p)": lambda x, y, p, w, v: torch.addmm(p, x, p, alpha=2, beta=3),
    "addmm(x, p, p)": lambda x, y, p, w, v: torch.addmm(x, p, p),
    "addmm imaginary alpha": lambda x, y, p, w, v: torch.addmm(p, x, y, alpha=1j),
    "addmm beta=1e40": lambda x, y, p, w, v: torch.addmm(p, x, y, beta=1e40),
    "addmv": lambda x, y, p, w, v: torch.addmv(v, x, v),
    "sparse.mm": lambda x, y, p, w, v: torch.sparse.mm(x, p),
    "_int_mm": lambda x, y, p, w, v: torch._int_mm(x, y),
    "mm out=x": lambda x, y, p, w, v: torch.mm(p, p, out=x),
    "mm out=empty": lambda x, y, p, w, v: torch.mm(x, y, out=x.new_empty(0)),
    "addmm out=x": lambda x, y, p, w, v: torch.addmm(p, p, p, out=x),
    "x.addmm_": lambda x, y, p, w, v: x.addmm_(p, p, alpha=2),
    "p.addmm_": lambda x, y, p, w, v: p.addmm_(x, y, beta=2),
}
BATCH_PRODUCTS: dict[str, Callable[..., Any]] = {
    "bmm": lambda x, y, p, w, v: torch.bmm(x, y),
    "bmm(x, x.mT)": lambda x, y, p, w, v: torch.bmm(x, x.transpose(1, 2)),
    "bmm(x, p)": lambda x, y, p, w, v: torch.bmm(x, p),
    "bmm(p, x)": lambda x, y, p, w, v: torch.bmm(p, x),
    "bmm(x, expanded)": lambda x, y, p, w, v: torch.bmm(x, w.expand(3, 4, 4)),
    "baddbmm(p, x, y)": lambda x, y, p, w, v: torch.baddbmm(p, x, y),
    "baddbmm(x, p, p)": lambda x, y, p, w, v: torch.baddbmm(x, p, p, alpha=2, beta=3),
    "baddbmm imaginary beta": lambda x, y, p, w, v: torch.baddbmm(p, x, y, beta=1j),
    "addbmm": lambda x, y, p, w, v: torch.addbmm(w, x, y),
    "baddbmm out=x": lambda x, y, p, w, v: torch.baddbmm(p, p, p, out=x),
    "x.baddbmm_": lambda x, y, p, w, v: x.baddbmm_(p, p, beta=2),
    "p.baddbmm_": lambda x, y, p, w, v: p.baddbmm_(x, y),
}
# Queries of torch about a tensor, not products. Some have no schema.
OTHERS: dict[str, Callable[..., Any]] = {
    "sizes": lambda x, y, p, w, v: unnamed((x.shape, x.size(0), x.stride(), x.numel(), x.is_contiguous())),
    "repr": lambda x, y, p, w, v: len(repr(x)) > 0,
    "norm": lambda x, y, p, w, v: torch.linalg.vector_norm(x),
    "x + y": lambda x, y, p, w, v: x + y,
    "softmax": lambda x, y, p, w, v: x.softmax(-1),
    "contiguous": lambda x, y, p, w, v: x.contiguous(),
    "conj": lambda x, y, p, w, v: x.conj() * 1,
    "unbind": lambda x, y, p, w, v: x.unbind(),
    "hfft": lambda x, y, p, w, v: torch.fft.hfft(x),
    "x.copy_": lambda x, y, p, w, v: x.copy_(p),
}
OPS = {2: PRODUCTS | MATRIX_PRODUCTS | OTHERS, 3: PRODUCTS | BATCH_PRODUCTS | OTHERS}
# Rounding errors grow with the condition number of x, and in the derivative with its square.
INVERSES = ("pinv",)
# Relative to the largest value. Inverses and their gradients enlarge rounding errors.
ROUNDING = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-3, torch.complex64: 1e-3}


def with_gradients(op: Callable[..., Any]) -> Callable[..., Any]:
    """An op that returns its result, the gradients of its operands, and x after the call."""

    def function(x: Tensor, y: Tensor, *plain: Tensor) -> Any:
        result = op(x, y, *plain)
        roots = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
        wanted = [t for t in (x, y) if t.requires_grad and torch.is_grad_enabled()]
        grads: Any = None
        if roots and wanted and not any(root is x for root in roots):
            ones = [torch.ones_like(root) for root in roots]
            grads = torch.autograd.grad(roots, wanted, ones, allow_unused=True)
        return result, grads

    return function


@dataclass(frozen=True)
class Raised:
    """The type of an error. The error itself is not kept, because its traceback would hold torch's guards."""

    error: type[Exception]
    message: str


def outcome(kind: Kind, op: Callable[..., Any], plain: list[Tensor], inside: Callable[[], Any]) -> Any:
    """The exception, or the results: forms and values of tensors, and other objects."""
    p, w, v = plain[2].clone(), plain[3].clone(), plain[4].clone()

    def function(x: Tensor, y: Tensor) -> Any:
        with inside():
            return with_gradients(op)(x, y, p, w, v)

    try:
        results = tree_leaves(kind.call(function, plain[0].clone(), plain[1].clone()))
        values = dense_of if kind.has_values else lambda result: None
        return [(form_of(r), values(r)) if isinstance(r, Tensor) else r for r in results]
    except Exception as error:
        return Raised(type(error), str(error))


def within_rounding(values: Any, torchs: Any) -> bool:
    if not isinstance(torchs, Tensor):
        return type(values) is type(torchs) and all(map(within_rounding, values or (), torchs or ()))
    tolerance = ROUNDING.get(torchs.dtype, 2e-2)
    if not torchs.is_floating_point() and not torchs.is_complex():
        return torch.equal(values, torchs)
    wide = torch.complex128 if torchs.is_complex() else torch.float64
    values, torchs = values.to(wide), torchs.to(wide)
    scale = torchs[torchs.isfinite()].abs().amax().item() if torchs.isfinite().any() else 1.0
    return torch.allclose(values, torchs, rtol=tolerance, atol=tolerance * max(scale, 1.0), equal_nan=True)


def difference(patched: Any, torchs: Any) -> str | None:
    if isinstance(torchs, Raised) or isinstance(patched, Raised):
        both = isinstance(torchs, Raised) and isinstance(patched, Raised)
        if both and patched.error is torchs.error:
            return None
        said = [
            f"{r.error.__name__}: {r.message}"[:160] if isinstance(r, Raised) else "a result"
            for r in (patched, torchs)
        ]
        return f"{said[0]}, by torch {said[1]}"
    for mine, torch_s in zip(patched, torchs, strict=True):
        if not isinstance(torch_s, tuple):
            if mine != torch_s:
                return f"{mine}, by torch {torch_s}"
        elif mine[0] != torch_s[0]:
            return f"{mine[0]}, by torch {torch_s[0]}"
        elif not within_rounding(mine[1], torch_s[1]):
            return f"{mine[1]}, by torch {torch_s[1]}"[:300]
    return None


def cases(kind: Kind, device: str) -> Iterator[tuple[str, Callable[..., Any], list[Tensor], bool]]:
    """Every op, half of them in inference mode."""
    for rank in kind.ranks:
        shape = (3, 4, 4) if rank == 3 else (4, 4)
        for name, op in OPS[rank].items():
            inference = bool(torch.randint(2, ()))
            plain = [torch.randn(size, device=device) for size in (shape, shape, shape, (4, 4), (4,))]
            if name in INVERSES:
                plain[0] += 5 * torch.eye(4, device=device)
            yield f"{name}, {rank}-D{', inference mode' * inference}", op, plain, inference


def differences(device: str, kind: Kind, left_out: list[str]) -> dict[str, str]:
    """The differences, by case."""
    torch_has_none = device == "cuda" and kind in (
        KINDS["int32"],
        KINDS["int64"],
    )  # torch lacks these products on a GPU, but fastgemm has them
    # Several members of a batch share memory, and a GPU writes them in any order.
    overlaps = device == "cuda" and kind in (KINDS["expanded"], KINDS["overlapping"])
    found = {}
    for name, op, plain, inference in cases(kind, device):
        if name in left_out or (overlaps and name.startswith(("x.", "matmul out=x"))):
            continue
        with torch.inference_mode(inference):
            print(json.dumps({"torch alone": name}), flush=True)
            torchs = outcome(kind, op, plain, contextlib.nullcontext)
            print(json.dumps({"patched": name}), flush=True)
            result = outcome(kind, op, plain, fastgemm.patch)
        why = difference(result, torchs)
        if why is not None and not (torch_has_none and isinstance(torchs, Raised)):
            found[name] = why
    return found


def tell(group: list[tuple[str, str]], seed: int, left_out: list[str]) -> None:
    """Prints what differs, for each device and kind of the group."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    for device, kind in group:
        found = differences(device, KINDS[kind], [name for of, name in left_out if of == kind])
        print(json.dumps({"differences": found}), flush=True)
