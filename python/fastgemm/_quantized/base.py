"""The tensors of a packed weight, and the order in which they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import layout
from .checks import check_dtype
from .formats import Packing, Parts

if TYPE_CHECKING:
    from typing_extensions import Self

INNER = ("_codes", "_scales", "_zeros", "_global", "_order")
"""The attributes that hold tensors."""
ATTRIBUTES = (*INNER, "_packing", "_format", "_transposed", "_activations")
"""All attributes."""


class Packed(Tensor):
    """A tensor without data of its own, which holds the tensors of a weight. It is the part of
    :class:`QuantizedWeight` that products and torch's functions use."""

    _codes: Tensor
    _scales: Tensor | None
    _zeros: Tensor | None
    _global: Tensor | None
    _order: Tensor | None
    _packing: Packing
    _format: str
    _transposed: bool
    _activations: str | None

    @classmethod
    def _wrap(
        cls,
        parts: Parts,
        packing: Packing,
        by: Tensor | None,
        order: Tensor | None,
        format: str,
        dtype: torch.dtype,
        transposed: bool = False,
        activations: str | None = None,
    ) -> Self:
        """Makes a weight of tensors in the order that ``packing`` says, without checks."""
        n, k = packing.n, packing.k
        made: Self = Tensor._make_wrapper_subclass(
            cls,
            (k, n) if transposed else (n, k),
            strides=(1, k) if transposed else (k, 1),
            dtype=dtype,
            device=parts.codes.device,
        )
        made._codes, made._scales, made._zeros = parts
        made._global, made._order = by, order
        made._packing, made._format, made._transposed = packing, format, transposed
        made._activations = activations
        return made

    def _inner(self) -> tuple[Tensor | None, ...]:
        return self._codes, self._scales, self._zeros, self._global, self._order

    def _plain(self) -> Parts:
        parts = Parts(self._codes, self._scales, self._zeros)
        return layout.to_plain(parts, self._packing) if self._packing.units else parts

    def _ordered(self, units: bool) -> Self:
        """The weight in units or in the plain order: the weight itself if it is in that order. This works on any
        device: tests and the simulator use units on CPUs."""
        if units == self._packing.units:
            return self
        convert = layout.to_units if units else layout.to_plain
        parts = convert(Parts(self._codes, self._scales, self._zeros), self._packing)
        return self._like(parts, self._global, self._order, packing=self._packing._replace(units=units))

    def _like(
        self,
        parts: Parts,
        by: Tensor | None,
        order: Tensor | None,
        *,
        packing: Packing | None = None,
        dtype: torch.dtype | None = None,
        transposed: bool | None = None,
    ) -> Self:
        """A weight with other tensors. Everything that is not given is taken from this weight."""
        transposed = self._transposed if transposed is None else transposed
        facts = packing or self._packing, by, order, self._format, dtype or self.dtype, transposed
        return self._wrap(parts, *facts, self._activations)

    def _map(self, function: Callable[[Tensor], Tensor], **options: Any) -> Self:
        """A weight with the results of a function of each of this weight's tensors."""
        codes, *others = (None if x is None else function(x) for x in self._inner())
        assert codes is not None
        scales, zeros, by, order = others
        return self._like(Parts(codes, scales, zeros), by, order, **options)

    def _on(self, device: torch.device, dtype: torch.dtype, non_blocking: bool = False) -> Self:
        """A copy on a device, in the order of that device."""
        check_dtype(dtype)
        if device == self.device:
            return self._map(torch.clone, dtype=dtype)
        # If a GPU takes part, the order is changed there.
        units = self._has_units_on(device)
        source = self if self.device.type == "cpu" or units else self._ordered(False)
        moved = source._map(lambda x: x.to(device, non_blocking=non_blocking), dtype=dtype)
        return moved._ordered(units)

    def _has_units_on(self, device: torch.device) -> bool:
        """Whether products there read units. Products that round their inputs read rows of codes."""
        return device.type == "cuda" and self._activations is None

    def _transpose(self) -> Self:
        return self._map(lambda x: x, transposed=not self._transposed)

    def share_memory_(self) -> Self:
        """Moves the tensors to memory that processes share; torch's own would move a storage, which is not
        there."""
        for x in self._inner():
            if x is not None:
                x.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether processes share the memory of the tensors."""
        return self._codes.is_shared()
