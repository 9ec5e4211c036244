"""``fastgemm.patch``: torch's own products, computed by fastgemm."""

from __future__ import annotations

import contextlib
import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from .. import _override_library
from .._typing import Precision
from ..table import checked_choice
from .routed import Routed
from .scope import Choice, Entry, enter, leave, measure_first_calls

try:  # called by torch._dynamo.eval_frame.skip_code; importing torch._dynamo would take 1 s
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:
    set_code_exec_strategy = None  # type: ignore[assignment]  # another torch has none

F = TypeVar("F", bound=Callable[..., Any])


class _Entered(threading.local):
    """The entries of a patch in this thread, innermost last."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []


_Threads = weakref.WeakKeyDictionary[Entry, str]
"""The name of an entry's thread, for error messages."""


def _not_inside(threads: list[str]) -> str:
    """The error if a thread leaves a patch that it has not entered; ``threads``: the names of those that have."""
    here = f"fastgemm.patch: left in thread {threading.current_thread().name!r}, which is not in it"
    if not threads:
        return f"{here}: each entry is left once"
    names = ", ".join(sorted({repr(name) for name in threads}))
    return f"{here}, but {names}: it stays entered there. Leave it in the thread that entered it"


def _hide_from_dynamo(*functions: Any) -> None:
    """Excludes these functions from torch.compile, which looks at every Python frame between two graphs."""
    for function in functions:
        function._torchdynamo_disable = True  # for a with block, which torch 2.15 would trace into
        if set_code_exec_strategy is not None:
            skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)  # a frame, and those it calls
            set_code_exec_strategy(function.__code__, skip)


# The code of a generator or coroutine runs after the decorated call has ended.
_NOT_PLAIN = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


class patch(contextlib.ContextDecorator):  # lower case, because it is used like a function
    """Computes torch's matrix products by fastgemm, in a ``with`` block or in a function that it decorates.

    It routes ``mm``, ``bmm``, ``addmm``, ``baddbmm`` and all functions that call them, in Python and in C++
    (``torch.matmul``, ``@``, ``linear``, ``einsum``, ``cdist``), ``grouped_mm`` and ``scaled_mm``. Values agree to
    within rounding, dtype, shape, strides and device are torch's, gradients work, and a backward pass inside the
    block is routed too. torch computes products of integers of 8 and 16 bits, which have other types in fastgemm,
    and products that a level or kernel does not take. Other ops are not affected: vectors, convolutions, fused
    attention; sparse, nested, fake and meta tensors.

    The patch is active in the thread that entered it, and in autograd's threads for a backward pass started
    there; :func:`enable` is active in the whole process. A patch may be entered again, nested, and shared by
    threads. With nested patches, the innermost is asked first, and passes calls on to the next one. A deep or
    pickled copy is not active, and begins with the original's counts; ``copy.copy`` shares the counts.

    Args:
        level: 1 to 7, a rung of the ladder; ``None``: the fastest kernel known for each problem. A product that
            the level cannot compute goes to torch.
        kernel: the name of one kernel, instead of a level.
        precision: of float32 and complex64 products, see :func:`fastgemm.matmul`. ``None`` follows torch.
        invariant: the bits of a row do not depend on the other rows, see :func:`fastgemm.matmul`. This also holds
            for products of a backward pass.
        count: whether the :class:`Routed` that ``with`` binds counts, which takes some 0.05 us a product.
        tune: measures a product where it first runs, see :func:`fastgemm.enable`.
        extend: also computes products that torch refuses, because it has no kernel for their types, layouts,
            alignments, scales or a bias (docs/drop_in.md lists them). Without it, they raise as they do without a
            patch.

    Raises:
        TypeError: ``level`` is no int, or a generator or coroutine function is decorated.
        ValueError: an unknown level, kernel or precision.
        RuntimeError: this build has no library for this torch (the message says how to get one); or a thread
            leaves the patch without having entered it.

    Examples:
        >>> import torch, fastgemm
        >>> x, w = torch.randn(64, 32), torch.randn(48, 32)
        >>> with fastgemm.patch() as routed:
        ...     y = torch.nn.functional.linear(x, w)
        >>> routed.ops
        Counter({'mm': 1})
    """

    def __init__(
        self,
        level: int | None = None,
        *,
        kernel: str | None = None,
        precision: Precision | None = None,
        invariant: bool = False,
        count: bool = True,
        tune: bool = False,
        extend: bool = False,
    ) -> None:
        self._level, self._kernel = checked_choice(level, kernel, precision, invariant, "fastgemm.patch")
        self._precision = precision
        self._counts, self._tune, self._extend = count, bool(tune), bool(extend)
        self._entered = _Entered()
        self._threads = _Threads()
        self.routed: Routed = Routed()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_entered", "_threads")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _entered=_Entered(), _threads=_Threads())

    def __enter__(self) -> Routed:
        _override_library.require("fastgemm.patch")
        if self._tune:
            measure_first_calls()
        counts = self.routed._counts if self._counts else None
        choice = Choice(self._level, self._kernel, self._precision, counts, self._tune, self._extend)
        entry = enter(choice)
        self._entered.entries.append(entry)
        self._threads[entry] = threading.current_thread().name
        return self.routed

    def __exit__(self, *error: Any) -> None:
        if not self._entered.entries:
            raise RuntimeError(_not_inside(list(self._threads.values())))
        entry = self._entered.entries.pop()
        self._threads.pop(entry, None)
        leave(entry)

    def __call__(self, function: F) -> F:
        if inspect.isclass(function) or any(is_kind(function) for is_kind in _NOT_PLAIN):
            raise TypeError("fastgemm.patch: decorates plain functions: use it as a context manager inside")
        return super().__call__(function)


_hide_from_dynamo(patch.__init__, patch.__enter__, patch.__exit__)
