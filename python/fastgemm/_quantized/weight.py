"""The tensor that holds a packed weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import functions, layout
from .formats import CODES, FORMATS, SCALE_NAMES, SCALES, Packing, Parts, ZeroKind, row_chunks

LOGICAL = (torch.bfloat16, torch.float16, torch.float32)
INNER = ("_codes", "_scales", "_zeros", "_global", "_order")


class QuantizedWeight(Tensor):
    """A weight of a linear layer, ``(N, K)``, in codes of 4 or 8 bits.

    It stands for ``(code - zero point) * scale * global scale``, or ``(code * scale + zero point) * global
    scale`` if the zero points have the dtype of the scales. One scale, and one zero point, serves each block of
    codes. :func:`fastgemm.quantize_weight` makes such weights; this constructor takes codes as they are.

    There is one copy of the codes, in the order of the device: rows on a CPU, the units of
    csrc/core/packed_weight.h on a GPU. Tensors that the constructor takes, those that properties return, and
    files have the plain order of rows.

    ``fastgemm.linear(x, q)``, ``torch.nn.functional.linear(x, q)``, and ``x @ q.mT``, by any of its names,
    multiply by it. A copy, ``detach``, ``to``, ``t`` and ``mT``, ``torch.empty_like``, pickling, ``torch.save``
    and ``torch.load`` give such weights. All other functions of torch raise NotImplementedError: call them on
    :meth:`dequantize`. No gradient reaches a weight, and ``requires_grad`` cannot be set.

    Args:
        codes: ``(N, ceil(K / 2))`` uint8 for formats of 4 bits, the even column in the low half of a byte;
            ``(N, K)`` int8 or float8_e4m3fn for ``"int8"`` and ``"fp8"``. 4 bits are value + 8 in ``"int4"``,
            an index into the 16 numbers of NormalFloat in ``"nf4"``, else OCP's e2m1.
        scales: one for each block, ``(ceil(N / block_size[0]), ceil(K / block_size[1]))``; float32, bfloat16,
            float16, float8_e8m0fnu or float8_e4m3fn.
        zero_points: of the shape of ``scales``: int8, subtracted from the code; or of the dtype of ``scales``,
            added.
        format: ``"int4"``, ``"int8"``, ``"fp8"``, ``"nf4"``, ``"mxfp4"`` or ``"nvfp4"``.
        block_size: rows and columns of a block.
        columns: K, if it is odd and the codes have 4 bits.
        global_scale: a float32 tensor of one element that scales the whole weight, or None.
        order: ``(K,)``: stored column j is column ``order[j]`` of the weight (GPTQ's act-order), or None.
        dtype: bfloat16, float16 or float32: what :meth:`dequantize` returns and ``.dtype`` says.

    Raises:
        TypeError: an argument is no tensor, or has no suitable dtype.
        ValueError: unknown ``format``; shapes or devices do not fit together; a code of e4m3 is NaN; on a GPU,
            blocks for which it has no order.
    """

    _codes: Tensor
    _scales: Tensor | None
    _zeros: Tensor | None
    _global: Tensor | None
    _order: Tensor | None
    _packing: Packing
    _format: str
    _transposed: bool

    def __new__(
        cls,
        codes: Tensor,
        scales: Tensor,
        zero_points: Tensor | None = None,
        *,
        format: str,
        block_size: tuple[int, int],
        columns: int | None = None,
        global_scale: Tensor | None = None,
        order: Tensor | None = None,
        dtype: torch.dtype = torch.bfloat16,
    ) -> QuantizedWeight:
        parts = Parts(codes, scales, zero_points)
        packing = _checked(parts, format, block_size, columns)
        check_dtype(dtype)
        if global_scale is not None:
            global_scale = _checked_global(global_scale, codes.device)
        if order is not None:
            order = _checked_order(order, packing.k, codes.device)
        if codes.dtype == torch.float8_e4m3fn:
            _refuse_nan(codes)
        parts = Parts(*(None if x is None else x.detach().contiguous() for x in parts))  # type: ignore[arg-type]
        made = wrap(parts, packing, global_scale, order, format, dtype)
        return made if not has_units(codes.device) else made._ordered(True)

    # Facts

    @property
    def format(self) -> str:
        """The name of the format."""
        return self._format

    @property
    def block_size(self) -> tuple[int, int]:
        """Rows and columns that share a scale."""
        return self._packing.group_n, self._packing.group_k

    @property
    def group_size(self) -> int:
        """Columns that share a scale."""
        return self._packing.group_k

    @property
    def granularity(self) -> str:
        """``"tensor"``, ``"channel"`` or ``"group"``, or the block of codes with one scale, as ``"128x128"``."""
        n, k = self.block_size
        if self._packing.by_rows:
            return "channel" if n == 1 else "tensor" if n >= self._packing.n else f"{n} rows"
        return "group" if n == 1 else f"{n}x{k}"

    @property
    def codes(self) -> Tensor:
        """The codes, in the plain order."""
        return self._plain().codes

    @property
    def scales(self) -> Tensor:
        """The scales, ``(blocks of rows, blocks of columns)``."""
        scales = self._plain().scales
        assert scales is not None
        return scales

    @property
    def zero_points(self) -> Tensor | None:
        """The zero points, of the shape of the scales, or None."""
        return self._plain().zeros

    @property
    def global_scale(self) -> Tensor | None:
        """The scale of the whole weight, a float32 tensor of one element, or None."""
        return self._global

    @property
    def order(self) -> Tensor | None:
        """The column of the weight that each stored column is, int32 of ``(K,)``, or None."""
        return self._order

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """The bytes of everything that is stored."""
        return sum(x.nbytes for x in self._inner() if x is not None)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        n, k = self.block_size
        scale = str(SCALES[self._packing.scale]).removeprefix("torch.")
        what = {"tensor": "one scale", "channel": "a scale for each row", "group": f"groups of {k}"}
        facts = [
            f"{self._format!r}",
            f"shape={tuple(self.shape)}",
            what.get(self.granularity, f"blocks of {n} x {k}"),
        ]
        facts += [f"{scale} scales"]
        facts += ["zero points"] if self._packing.zero != "none" else []
        facts += ["act-order"] if self._order is not None else []
        return f"QuantizedWeight({', '.join(facts)}, dtype={self.dtype}, device='{self.device}')"

    # Values

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The weight as an ordinary tensor.

        Args:
            dtype: bfloat16, float16 or float32; None is the weight's own ``dtype``.

        Returns:
            ``(N, K)``, or ``(K, N)`` of a transposed weight. Every number is computed in float32 and rounded
            once.

        Raises:
            TypeError: another ``dtype``.
        """
        dtype = self.dtype if dtype is None else dtype
        check_dtype(dtype)
        parts = Parts(self._codes, self._scales, self._zeros)
        weight = layout.dequantize(parts, self._packing, self._global, self._order, dtype)
        return weight.mT if self._transposed else weight

    # Orders in memory

    def _inner(self) -> tuple[Tensor | None, ...]:
        return self._codes, self._scales, self._zeros, self._global, self._order

    def _plain(self) -> Parts:
        parts = Parts(self._codes, self._scales, self._zeros)
        return layout.to_plain(parts, self._packing) if self._packing.units else parts

    def _ordered(self, units: bool) -> QuantizedWeight:
        """The weight in units, or in the plain order; itself if it is. Whatever its device: tests and the
        simulator use units on CPUs."""
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
    ) -> QuantizedWeight:
        """A weight of other tensors that has what is not given from this one."""
        transposed = self._transposed if transposed is None else transposed
        return wrap(parts, packing or self._packing, by, order, self._format, dtype or self.dtype, transposed)

    def _map(self, function: Callable[[Tensor], Tensor], **options: Any) -> QuantizedWeight:
        """A weight whose tensors are results of a function of these."""
        codes, *others = (None if x is None else function(x) for x in self._inner())
        assert codes is not None
        scales, zeros, by, order = others
        return self._like(Parts(codes, scales, zeros), by, order, **options)

    def _on(self, device: torch.device, dtype: torch.dtype, non_blocking: bool = False) -> QuantizedWeight:
        """A copy on a device, in its order."""
        check_dtype(dtype)
        if device == self.device:
            return self._map(torch.clone, dtype=dtype)
        # The order changes on the GPU, if one takes part.
        source = self if self.device.type == "cpu" or has_units(device) else self._ordered(False)
        moved = source._map(lambda x: x.to(device, non_blocking=non_blocking), dtype=dtype)
        return moved._ordered(has_units(device))

    def _transpose(self) -> QuantizedWeight:
        return self._map(lambda x: x, transposed=not self._transposed)

    # torch's protocols

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Any, ...]]:
        names = [name for name, x in zip(INNER, self._inner(), strict=True) if x is not None]
        return names, (self._packing, self._format, self.dtype, self._transposed)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], facts: tuple[Any, ...], outer_size: object, outer_stride: object
    ) -> QuantizedWeight:
        packing, format, dtype, transposed = facts
        codes, scales, zeros, by, order = (inner.get(name) for name in INNER)
        assert codes is not None
        return wrap(Parts(codes, scales, zeros), packing, by, order, format, dtype, transposed)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return functions.call(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return functions.dispatch(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedWeight:
        copy = self._map(torch.clone)
        memo[id(self)] = copy = _parameter_like(self, copy)
        return copy

    def __copy__(self) -> QuantizedWeight:
        return _parameter_like(self, self._map(lambda x: x))

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        parts = self._plain()
        facts = {
            "format": self._format,
            "block_size": self.block_size,
            "columns": self._packing.k,
            "dtype": self.dtype,
            "transposed": self._transposed,
            "parameter": isinstance(self, torch.nn.Parameter),
        }
        return rebuild, (*parts, self._global, self._order, facts)


def rebuild(
    codes: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    by: Tensor | None,
    order: Tensor | None,
    facts: dict[str, Any],
) -> QuantizedWeight:
    """A weight of what a file holds: tensors in the plain order, and the rest."""
    transposed, parameter = facts.pop("transposed"), facts.pop("parameter")
    made = QuantizedWeight(codes, scales, zeros, global_scale=by, order=order, **facts)
    made = made._transpose() if transposed else made
    return torch.nn.Parameter(made, requires_grad=False) if parameter else made  # type: ignore[return-value]


def wrap(
    parts: Parts,
    packing: Packing,
    by: Tensor | None,
    order: Tensor | None,
    format: str,
    dtype: torch.dtype,
    transposed: bool = False,
) -> QuantizedWeight:
    """A weight of tensors that are in the order that ``packing`` says, without checks."""
    n, k = packing.n, packing.k
    made: QuantizedWeight = Tensor._make_wrapper_subclass(
        QuantizedWeight,
        (k, n) if transposed else (n, k),
        strides=(1, k) if transposed else (k, 1),
        dtype=dtype,
        device=parts.codes.device,
    )
    made._codes, made._scales, made._zeros = parts
    made._global, made._order = by, order
    made._packing, made._format, made._transposed = packing, format, transposed
    return made


def check_dtype(dtype: torch.dtype) -> None:
    """Raises TypeError if a weight cannot be of a dtype."""
    if dtype not in LOGICAL:
        raise TypeError(f"fastgemm: a QuantizedWeight is bfloat16, float16 or float32, not {dtype}")


def _parameter_like(weight: QuantizedWeight, copy: QuantizedWeight) -> QuantizedWeight:
    is_parameter = isinstance(weight, torch.nn.Parameter)
    return torch.nn.Parameter(copy, requires_grad=False) if is_parameter else copy  # type: ignore[return-value]


def has_units(device: torch.device) -> bool:
    return device.type == "cuda"


def _checked(parts: Parts, format: str, block_size: tuple[int, int], columns: int | None) -> Packing:
    """The packing of the tensors that a constructor was given."""
    codes, scales, zeros = parts
    for name, x in (("codes", codes), ("scales", scales), ("zero_points", zeros)):
        if not isinstance(x, Tensor) and not (x is None and name == "zero_points"):
            raise TypeError(f"fastgemm: {name} must be a torch.Tensor, got {type(x).__name__}")
        if x is not None and (x.dim() != 2 or x.device != codes.device):
            raise ValueError(
                f"fastgemm: {name} must have 2 dimensions and the device of the codes, {codes.device}; got shape "
                f"{tuple(x.shape)} on {x.device}"
            )
    assert scales is not None
    if format not in FORMATS:
        raise ValueError(f"fastgemm: unknown format {format!r}; accepted: {', '.join(FORMATS)}")
    kind = FORMATS[format].code
    if codes.dtype != CODES[kind].dtype:
        raise TypeError(f"fastgemm: codes of {format!r} must be {CODES[kind].dtype}, got {codes.dtype}")
    if scales.dtype not in SCALE_NAMES:
        accepted = ", ".join(str(dtype) for dtype in SCALE_NAMES)
        raise TypeError(f"fastgemm: scales must have one of the types {accepted}; got {scales.dtype}")
    if len(block_size) != 2 or min(block_size) < 1:
        raise ValueError(f"fastgemm: block_size must be two positive sizes, got {block_size}")
    zero: ZeroKind = "none"
    if zeros is not None:
        if zeros.dtype not in (torch.int8, scales.dtype) or zeros.dtype.itemsize == 1 != (
            zeros.dtype == torch.int8
        ):
            raise TypeError(f"fastgemm: zero_points must be int8 or {scales.dtype}, got {zeros.dtype}")
        zero = "subtracted" if zeros.dtype == torch.int8 else "added"
    n, width = codes.shape
    k = width * (8 // CODES[kind].bits) if columns is None else columns
    packing = Packing(n, k, kind, SCALE_NAMES[scales.dtype], zero, int(block_size[0]), int(block_size[1]))
    if packing.code_shape != (n, width):
        raise ValueError(f"fastgemm: codes of shape {tuple(codes.shape)} do not hold {k} columns")
    for name, x in (("scales", scales), ("zero_points", zeros)):
        if x is not None and tuple(x.shape) != packing.groups:
            raise ValueError(
                f"fastgemm: {name} of a weight of {n} x {k} in blocks of {block_size[0]} x {block_size[1]} "
                f"must have shape {packing.groups}, got {tuple(x.shape)}"
            )
    return packing


def _checked_global(by: Tensor, device: torch.device) -> Tensor:
    if not isinstance(by, Tensor) or by.numel() != 1 or by.device != device:
        raise ValueError(f"fastgemm: global_scale must be a tensor of one element on {device}")
    return by.detach().to(torch.float32).reshape(())


def _checked_order(order: Tensor, k: int, device: torch.device) -> Tensor:
    if not isinstance(order, Tensor) or tuple(order.shape) != (k,) or order.device != device:
        raise ValueError(f"fastgemm: order must be a tensor of {k} columns on {device}")
    if not _has_no_data(order) and not torch.equal(
        order.long().sort().values, torch.arange(k, device=device)
    ):
        raise ValueError("fastgemm: order must have every column once")
    return order.detach().to(torch.int32)


def _has_no_data(x: Tensor) -> bool:
    return x.is_meta or isinstance(x, torch._subclasses.FakeTensor)


def _refuse_nan(codes: Tensor) -> None:
    if _has_no_data(codes):
        return
    for begin, end in row_chunks(*codes.shape):
        if (codes[begin:end].view(torch.uint8) & 127).eq(127).any():
            raise ValueError("fastgemm: a code of float8_e4m3fn is NaN; codes must be numbers")
