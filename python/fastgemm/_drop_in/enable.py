"""``fastgemm.enable``: torch's products by fastgemm in the whole process, or by the environment."""

from __future__ import annotations

import os
import warnings

from .. import _override_library
from .._introspect import set_everywhere, set_tunes_all
from .._typing import Precision
from ..table import checked_choice
from . import exit_report
from .routed import Routed
from .scope import Choice, measure_first_calls

VARIABLE, TUNES = "FASTGEMM_PATCH", "FASTGEMM_TUNE"


def enable(
    level: int | None = None,
    *,
    kernel: str | None = None,
    precision: Precision | None = None,
    invariant: bool = False,
    count: bool = True,
    tune: bool = False,
    extend: bool = False,
) -> Routed:
    """Computes torch's matrix products by fastgemm in the whole process, in every thread, until :func:`disable`.

    A :class:`fastgemm.patch` is asked first, and passes calls on to ``enable``. A second call replaces the
    arguments of the first.

    Args:
        level: as for :class:`fastgemm.patch`.
        kernel: as for :class:`fastgemm.patch`.
        precision: as for :class:`fastgemm.patch`.
        invariant: as for :class:`fastgemm.patch`.
        count: as for :class:`fastgemm.patch`.
        tune: measures a product where it first runs, also one of :func:`fastgemm.matmul`, ``gemm`` and ``linear``
            without a level or kernel. Up to six kernels that may be the fastest are timed. This usually takes
            50 ms, and at most 1 s besides one run of the product. From then on, the fastest one computes all
            products of that signature, in later processes, too. docs/drop_in.md says what is not measured.
        extend: as for :class:`fastgemm.patch`.

    Returns:
        The live counts of the products that are routed from now on.

    Raises:
        RuntimeError: this build has no library for this torch; the message says how to get one.
        TypeError: ``level`` is no int.
        ValueError: an unknown level, kernel or precision.

    Examples:
        >>> import torch, fastgemm
        >>> routed = fastgemm.enable()
        >>> c = torch.randn(64, 32) @ torch.randn(32, 48)
        >>> fastgemm.disable()
        >>> routed.ops
        Counter({'mm': 1})
    """
    level, kernel = checked_choice(level, kernel, precision, invariant, "fastgemm.enable")
    _override_library.require("fastgemm.enable")
    routed = Routed()
    counts = routed._counts if count else None
    choice = Choice(level, kernel, precision, counts, extend=bool(extend))
    frame = choice.frame()  # made before anything changes, because it may raise
    _tune_all(bool(tune))
    set_everywhere(False, frame)
    return routed


def disable() -> None:
    """Ends :func:`enable`. Active patches and ``FASTGEMM_PATCH`` are not affected.

    Returns:
        None.

    Raises:
        Nothing: without :func:`enable` before it, there is nothing to end.
    """
    set_everywhere(False, None)
    _tune_all(False)


_tuned_by_environment = False


def _tune_all(wanted: bool) -> None:
    if wanted or _tuned_by_environment:
        measure_first_calls()
    set_tunes_all(wanted or _tuned_by_environment)


def tune_by_environment() -> None:
    """``FASTGEMM_TUNE=1`` measures every product of the process where it first runs: torch's products under a
    patch, and fastgemm's own."""
    global _tuned_by_environment
    wanted = os.environ.get(TUNES, "")
    if wanted not in ("", "0", "1"):
        warnings.warn(f"fastgemm: {TUNES} must be 1 or 0, got {wanted!r}: ignored", stacklevel=2)
    _tuned_by_environment = wanted == "1"
    if _tuned_by_environment:
        _tune_all(True)


def enable_by_environment() -> None:
    """``FASTGEMM_PATCH=1`` does what :func:`enable` does, without counts; ``report`` prints counts at exit."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted in ("", "0"):
        return
    if wanted not in ("1", "report"):
        message = f"fastgemm: {VARIABLE} must be 1, report or 0, got {wanted!r}: ignored"
        warnings.warn(message, stacklevel=2)
    elif not _override_library.register():
        why_not, remedy = _override_library.load()[1], _override_library.HOW_TO_BUILD
        warnings.warn(f"fastgemm: {VARIABLE}={wanted}, but {why_not}; {remedy}", stacklevel=2)
    elif wanted == "1":
        set_everywhere(True, Choice(None, None, None, None).frame())
    else:
        exit_report.report(lambda counts: set_everywhere(True, Choice(None, None, None, counts).frame()))
