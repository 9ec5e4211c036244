"""The tensor that holds a packed weight."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import functions, layout
from .activations import Activations, check_weight
from .base import INNER, Packed
from .checks import check_dtype, global_scale_of, order_of, packing_of, refuse_nan
from .converters import Converters
from .formats import CODES, FORMATS, SCALES, Parts


class QuantizedWeight(Converters, Packed):
    """A weight of a linear layer, ``(N, K)``, in codes of 4 or 8 bits.

    It stands for ``(code - zero point) * scale * global scale``, or ``(code * scale + zero point) * global
    scale`` if the zero points have the dtype of the scales. One scale, and one zero point, serves each block of
    codes. :func:`fastgemm.quantize_weight` makes such weights; this constructor takes codes as they are.

    There is one copy of the codes, in the order of the device: rows on a CPU, the units of
    csrc/core/packed_weight.h on a GPU (rows, too, with ``activations``). Tensors that the constructor takes, those
    that properties return, and files have the plain order of rows.

    ``fastgemm.linear(x, q)``, ``torch.nn.functional.linear(x, q)``, and ``x @ q.mT`` (also as ``torch.matmul`` and
    the like) multiply by it. A copy, ``detach``, ``to``, ``t`` and ``mT``, ``torch.empty_like``, pickling,
    ``torch.save`` and ``torch.load`` give such weights. All other functions of torch raise NotImplementedError:
    call them on :meth:`dequantize`. No gradient reaches a weight, and ``requires_grad`` cannot be set.

    The constructor does not copy tensors that have the order of the device.

    Arguments of the constructor:

    - ``codes``: ``(N, ceil(K / 2))`` uint8 for formats of 4 bits, the even column in the low half of a byte;
      ``(N, K)`` int8 or float8_e4m3fn for ``"int8"`` and ``"fp8"``. 4 bits are value + 8 in ``"int4"``,
      an index into the 16 numbers of NormalFloat in ``"nf4"``, else OCP's e2m1.
    - ``scales``: one for each block, ``(ceil(N / block_size[0]), ceil(K / block_size[1]))``; float32, bfloat16,
      float16, float8_e8m0fnu or float8_e4m3fn.
    - ``zero_points``: of the shape of ``scales``: int8, subtracted from the code; or of the dtype of ``scales``,
      added.
    - ``format``: ``"int4"``, ``"int8"``, ``"fp8"``, ``"nf4"``, ``"mxfp4"`` or ``"nvfp4"``.
    - ``block_size``: rows and columns of a block.
    - ``columns``: K, if it is odd and the codes have 4 bits.
    - ``global_scale``: a float32 tensor of one element that scales the whole weight, or None.
    - ``order``: ``(K,)``: stored column j is column ``order[j]`` of the weight (GPTQ's act-order), or None.
    - ``dtype``: bfloat16, float16 or float32: what :meth:`dequantize` returns and ``.dtype`` says.
    - ``activations``: ``"tensor"``, ``"row"`` or ``"1x128"``: products round their inputs to 8 bits by this recipe
      of :func:`fastgemm.quantize_fp8`, and multiply codes by codes; or None. For ``"fp8"`` with float32 scales of
      the whole, of rows or of blocks of 128 x 128.

    Raises:
        TypeError: an argument is no tensor, or has no suitable dtype.
        ValueError: unknown ``format``; shapes or devices do not fit together; a code of e4m3 is NaN; on a GPU,
            blocks for which it has no order.
    """

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
        activations: Activations | None = None,
    ) -> QuantizedWeight:
        parts = Parts(codes, scales, zero_points)
        packing = packing_of(parts, format, block_size, columns)
        check_dtype(dtype)
        if global_scale is not None:
            global_scale = global_scale_of(global_scale, codes.device)
        check_weight(activations, format, packing, global_scale)
        if order is not None:
            order = order_of(order, packing.k, codes.device)
        if codes.dtype == torch.float8_e4m3fn:
            refuse_nan(codes)
        parts = Parts(*(None if x is None else x.detach().contiguous() for x in parts))  # type: ignore[arg-type]
        made = cls._wrap(parts, packing, global_scale, order, format, dtype, False, activations)
        return made._ordered(made._has_units_on(codes.device))

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
        """Stored column j is column ``order[j]`` of the weight; int32 of ``(K,)``, or None."""
        return self._order

    @property
    def activations(self) -> str | None:
        """The recipe by which products round their inputs to 8 bits, or None."""
        return self._activations

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
        facts += [f"activations={self._activations!r}"] if self._activations is not None else []
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

    # torch's protocols

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Any, ...]]:
        names = [name for name, x in zip(INNER, self._inner(), strict=True) if x is not None]
        return names, (self._packing, self._format, self.dtype, self._transposed, self._activations)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], facts: tuple[Any, ...], outer_size: object, outer_stride: object
    ) -> QuantizedWeight:
        packing, format, dtype, *others = facts
        codes, scales, zeros, by, order = (inner.get(name) for name in INNER)
        assert codes is not None
        return QuantizedWeight._wrap(Parts(codes, scales, zeros), packing, by, order, format, dtype, *others)

    def _stable_hash_for_caching(self) -> str:
        """The properties that compiled code depends on, for torch's cache of compiled code."""
        facts = [(x.shape, x.stride(), x.dtype, x.device) for x in self._inner() if x is not None]
        return hashlib.blake2b(repr((self.__tensor_flatten__(), facts)).encode(), digest_size=16).hexdigest()

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
        # As bytes, because torch cannot pickle all types of 8 bits.
        parts = (x.view(torch.uint8) if x is not None and x.itemsize == 1 else x for x in self._plain())
        facts = {
            "scale": self._packing.scale,
            "format": self._format,
            "block_size": self.block_size,
            "columns": self._packing.k,
            "dtype": self.dtype,
            "activations": self._activations,
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
    """Makes a weight from the contents of a file: tensors in the plain order, and the other properties."""
    facts = dict(facts)
    transposed, parameter = facts.pop("transposed"), facts.pop("parameter")
    codes, scales = (
        codes.view(CODES[FORMATS[facts["format"]].code].dtype),
        scales.view(SCALES[facts.pop("scale")]),
    )
    zeros = zeros.view(torch.int8) if zeros is not None and zeros.itemsize == 1 else zeros
    made = QuantizedWeight(codes, scales, zeros, global_scale=by, order=order, **facts)
    made = made._transpose() if transposed else made
    return torch.nn.Parameter(made, requires_grad=False) if parameter else made  # type: ignore[return-value]


def _parameter_like(weight: QuantizedWeight, copy: QuantizedWeight) -> QuantizedWeight:
    is_parameter = isinstance(weight, torch.nn.Parameter)
    return torch.nn.Parameter(copy, requires_grad=False) if is_parameter else copy  # type: ignore[return-value]
