"""The constructors of a weight that read what other libraries have quantized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from . import float_checkpoints, from_bitsandbytes, from_compressed_tensors, from_torchao, int_checkpoints
from .plain import Plain, own

if TYPE_CHECKING:
    Self = TypeVar("Self", bound="Converters")
else:
    Self = TypeVar("Self")


class Converters:
    """Class methods that take codes, scales and zero points as they are: no number is rounded again. They are
    copied, so that the weight does not need the tensors that were given.

    None of them needs the library. If a library also rounds inputs (``act_quant_kwargs``, ``input_scale``), this
    is not part of a weight. An argument that is no tensor raises TypeError.
    """

    @classmethod
    def _of(cls: type[Self], plain: Plain, dtype: torch.dtype | None) -> Self:
        make: Any = cls
        zeros, by = (None if x is None else own(x) for x in (plain.zeros, plain.global_scale))
        return make(
            own(plain.codes),
            own(plain.scales),
            zeros,
            format=plain.format,
            block_size=plain.group,
            columns=plain.shape[1],
            global_scale=by,
            order=plain.order,
            dtype=dtype or plain.dtype,
        )

    @classmethod
    def from_gptq(
        cls: type[Self],
        qweight: Tensor,
        qzeros: Tensor,
        scales: Tensor,
        g_idx: Tensor | None = None,
        *,
        bits: int = 4,
        group_size: int | None = None,
        version: int = 1,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """The weight of a GPTQ layer (AutoGPTQ, GPTQModel).

        Args:
            qweight: ``(K * bits / 32, N)`` int32.
            qzeros: ``(groups, N * bits / 32)`` int32.
            scales: ``(groups, N)`` float16, bfloat16 or float32.
            g_idx: ``(K,)``, the group of each column, or None. Columns that are not in the order of their groups
                (act-order) are sorted; ``order`` says how.
            bits: 4 or 8.
            group_size: columns of a group; None or -1: K / groups.
            version: 1: zero points are stored minus one (``checkpoint_format`` ``"gptq"``); 2: as they are
                (``"gptq_v2"``).
            dtype: of the weight; None means the dtype of ``scales``.

        Returns:
            A weight ``(N, K)`` of the format ``"int4"`` or ``"int8"``. Zero points in the middle of the codes, as
            symmetric weights have them, are left out.

        Raises:
            ValueError: shapes, dtypes, ``bits`` or ``version`` are not as above, or groups of ``g_idx`` have
                several sizes.
        """
        plain = int_checkpoints.of_gptq(qweight, qzeros, scales, g_idx, bits, group_size, version)
        return cls._of(plain, dtype)

    @classmethod
    def from_awq(
        cls: type[Self],
        qweight: Tensor,
        qzeros: Tensor,
        scales: Tensor,
        *,
        bits: int = 4,
        group_size: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """The weight of an AWQ layer, in the layout of its ``"gemm"`` version (AutoAWQ).

        Args:
            qweight: ``(K, N / 8)`` int32.
            qzeros: ``(groups, N / 8)`` int32.
            scales: ``(groups, N)`` float16, bfloat16 or float32.
            bits: 4.
            group_size: columns of a group; None or -1: K / groups.
            dtype: of the weight; None means the dtype of ``scales``.

        Returns:
            A weight ``(N, K)`` of the format ``"int4"``.

        Raises:
            ValueError: shapes, dtypes or ``bits`` are not as above.
        """
        return cls._of(int_checkpoints.of_awq(qweight, qzeros, scales, bits, group_size), dtype)

    @classmethod
    def from_bitsandbytes(
        cls: type[Self], weight: Tensor, quant_state: Any = None, *, dtype: torch.dtype | None = None
    ) -> Self:
        """The weight of a ``bitsandbytes.nn.Linear4bit`` of the type ``"nf4"`` (QLoRA).

        Args:
            weight: its ``Params4bit``, or the packed codes of one.
            quant_state: a ``QuantState``; None means that of ``weight``. Nested scales (``compress_statistics``)
                become the float32 numbers that the library computes from them.
            dtype: of the weight; None means the dtype before quantization.

        Returns:
            A weight ``(N, K)`` of the format ``"nf4"``.

        Raises:
            ValueError: the type is not ``"nf4"``, the weight is not quantized yet, or blocks of the
                flattened weight do not lie in rows.
        """
        return cls._of(from_bitsandbytes.of_bitsandbytes(weight, quant_state), dtype)

    @classmethod
    def from_torchao(cls: type[Self], weight: Tensor, *, dtype: torch.dtype | None = None) -> Self:
        """A weight that ``torchao.quantization.quantize_`` made.

        Args:
            weight: an ``Int4Tensor``, ``Int4TilePackedTo4dTensor`` (tinygemm), ``Int8Tensor``,
                ``IntxUnpackedToInt8Tensor`` of int4 or int8, or ``Float8Tensor`` of float8_e4m3fn.
            dtype: of the weight; None means the dtype of ``weight``.

        Returns:
            A weight ``(N, K)`` of the format ``"int4"``, ``"int8"`` or ``"fp8"``.

        Raises:
            ValueError: another tensor, another type of codes, or one with an ``act_pre_scale``.
        """
        return cls._of(from_torchao.of_torchao(weight), dtype)

    @classmethod
    def from_compressed_tensors(
        cls: type[Self], tensors: Mapping[str, Tensor], weights: Any, *, dtype: torch.dtype | None = None
    ) -> Self:
        """The weight of a layer in a checkpoint of the compressed-tensors library.

        Args:
            tensors: those of the layer by their names in the file, without the layer's: ``weight_packed`` or
                ``weight``, ``weight_scale``, ``weight_shape``, ``weight_zero_point``, ``weight_g_idx``,
                ``weight_global_scale``.
            weights: the part of that name of the scheme, as in config.json, or a ``QuantizationArgs``.
            dtype: of the weight; None means the dtype of ``weight_scale``, and bfloat16 for nvfp4 and mxfp4.

        Returns:
            A weight ``(N, K)``: of the format ``"int4"`` or ``"int8"`` (pack-quantized, int-quantized), ``"fp8"``
            (float-quantized, naive-quantized), ``"nvfp4"`` or ``"mxfp4"`` (``...-pack-quantized``). The global
            scale of nvfp4, by which the library divides, becomes its float32 reciprocal.

        Raises:
            ValueError: unknown tensors, another type, number of bits or strategy, or shapes that do not fit
                together.
        """
        return cls._of(from_compressed_tensors.of_compressed_tensors(tensors, weights, dtype), dtype)

    @classmethod
    def from_fp8(
        cls: type[Self],
        weight: Tensor,
        weight_scale_inv: Tensor,
        *,
        block_size: tuple[int, int] | None = None,
        dtype: torch.dtype = torch.bfloat16,
    ) -> Self:
        """A weight of fp8 codes, which are multiplied by ``weight_scale_inv`` (as in DeepSeek-V3).

        Args:
            weight: ``(N, K)`` float8_e4m3fn.
            weight_scale_inv: one scale, ``(N,)`` or ``(N, 1)`` for rows, or one for each block; float32, bfloat16
                or float16.
            block_size: rows and columns of a block; None means what the shape says, or 128 x 128.
            dtype: of the weight.

        Returns:
            A weight ``(N, K)`` of the format ``"fp8"``.

        Raises:
            ValueError: other dtypes or shapes, or a code is NaN.
        """
        return cls._of(float_checkpoints.of_fp8(weight, weight_scale_inv, block_size, dtype), dtype)

    @classmethod
    def from_mxfp4(
        cls: type[Self], blocks: Tensor, scales: Tensor, *, dtype: torch.dtype = torch.bfloat16
    ) -> Self:
        """A weight of OCP's mxfp4, as gpt-oss stores one expert.

        Args:
            blocks: ``(N, K / 32, 16)`` uint8, the even column in the low half.
            scales: ``(N, K / 32)`` uint8 or float8_e8m0fnu: exponents + 127.
            dtype: of the weight.

        Returns:
            A weight ``(N, K)`` of the format ``"mxfp4"``.

        Raises:
            ValueError: other dtypes or shapes.
        """
        return cls._of(float_checkpoints.of_mxfp4(blocks, scales, dtype), dtype)

    @classmethod
    def from_nvfp4(
        cls: type[Self],
        weight: Tensor,
        weight_scale: Tensor,
        weight_scale_2: Tensor,
        *,
        dtype: torch.dtype = torch.bfloat16,
    ) -> Self:
        """A weight of NVIDIA's nvfp4, as modelopt stores it.

        Args:
            weight: ``(N, K / 2)`` uint8, the even column in the low half.
            weight_scale: ``(N, K / 16)`` float8_e4m3fn.
            weight_scale_2: one float32 number that scales the whole weight.
            dtype: of the weight.

        Returns:
            A weight ``(N, K)`` of the format ``"nvfp4"``.

        Raises:
            ValueError: other dtypes or shapes.
        """
        return cls._of(float_checkpoints.of_nvfp4(weight, weight_scale, weight_scale_2, dtype), dtype)
