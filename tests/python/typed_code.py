"""Programs of users, with each public name's arguments and results. mypy checks them, test_types.py runs them.

A wrong call has a comment that ignores its error. mypy reports such a comment if there is no error.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import fastgemm
import fastgemm.distributed
import torch
from torch import Tensor, nn
from typing_extensions import assert_type


def products(a: Tensor, b: Tensor, out: Tensor) -> None:
    assert_type(fastgemm.matmul(a, b), Tensor)
    assert_type(fastgemm.matmul(a, b, level=2, precision="ieee", out=out), Tensor)
    assert_type(fastgemm.matmul(a, b, kernel="blocked", out_dtype=torch.float32), Tensor)
    assert_type(fastgemm.matmul(a, b, invariant=True), Tensor)
    assert_type(fastgemm.gemm(a, b, out, alpha=2, beta=0.5, trans_a=True, trans_b=False), Tensor)
    assert_type(fastgemm.gemm(a, a, trans_b=True, symmetric=True, out=out), Tensor)
    assert_type(fastgemm.linear(a, b, None, activation="gelu_tanh", residual=out), Tensor)


def experts(a: Tensor) -> None:
    ends = torch.tensor([1, 4], dtype=torch.int32)
    b = a.expand(2, 4, 4)
    assert_type(fastgemm.grouped_mm(a, b, ends, bias=a[0], activation="swiglu", invariant=True), Tensor)
    assert_type(fastgemm.grouped_mm(a, b, ends, rows=torch.arange(4), level=5), Tensor)
    ids = torch.zeros(4, 1, dtype=torch.int64)
    assert_type(fastgemm.moe(a, b, a[:, :2].expand(2, 4, 2), ids, a[:, :1], precision="ieee"), Tensor)
    assert callable(fastgemm.nn.experts_forward)


def quantized(a: Tensor) -> None:
    q = fastgemm.quantize_weight(a, "int4", granularity="group", group_size=16, zero_points=True)
    assert_type(q, fastgemm.QuantizedWeight)
    assert_type(fastgemm.linear(a, q, activation="silu", invariant=True), Tensor)
    assert_type(a @ q.mT, Tensor)
    assert_type(q.dequantize(torch.float16), Tensor)
    assert_type(q.codes, Tensor)
    assert_type(q.zero_points, Tensor | None)
    assert_type(q.nbytes, int)
    assert_type(fastgemm.quantize_weight(a, "fp8", activations="1x128").activations, str | None)
    again = fastgemm.QuantizedWeight(
        q.codes,
        q.scales,
        q.zero_points,
        format=q.format,
        block_size=q.block_size,
        global_scale=q.global_scale,
    )
    assert_type(nn.Parameter(again, requires_grad=False), nn.Parameter)


def scaled(a: Tensor) -> None:
    codes, scale = fastgemm.quantize_fp8(a, "row", scale_dtype=torch.float32)
    assert_type(fastgemm.quantize_fp8(a, transposed=True), tuple[Tensor, Tensor, Tensor, Tensor])
    flag = bool(a.dim())
    both = fastgemm.quantize_fp8(a, transposed=flag)
    assert_type(both, tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor])
    assert_type(scale, Tensor)
    fastgemm.scaled_mm(codes, codes.mT, scale, scale.mT, out_dtype=torch.float32, precision="promoted")
    ends, experts = torch.tensor([len(a)], dtype=torch.int32), codes.mT[None]
    y = fastgemm.scaled_grouped_mm(codes, experts, scale, scale.mT[None], ends, recipe_a="row", level=1)
    assert_type(y, Tensor)
    code = torch.float8_e4m3fn
    fastgemm.scaled_mm(codes, codes.mT, scale, scale.mT, activation="swiglu", out_dtype=code, out_scale="row")
    pair = fastgemm.linear(a, a, activation="swiglu", out_dtype=code, out_scale="1x128")
    assert_type(pair, tuple[Tensor, Tensor])
    assert_type(fastgemm.linear(a, a, out_dtype=code, out_scale=torch.ones(())), Tensor)


def wrong_scaled(a: Tensor) -> None:
    fastgemm.quantize_fp8(a, "column")  # type: ignore[call-overload]
    fastgemm.linear(a, a, out_dtype=torch.float8_e4m3fn, out_scale="column")  # type: ignore[call-overload]
    fastgemm.scaled_mm(a, a, a)  # type: ignore[call-arg]
    fastgemm.scaled_grouped_mm(a, a, a, a, a, precision="fast")  # type: ignore[call-arg]


def wrong_quantized(a: Tensor) -> None:
    fastgemm.quantize_weight(a, "int4", granularity="row")  # type: ignore[arg-type]
    fastgemm.quantize_weight(a)  # type: ignore[call-arg]
    fastgemm.QuantizedWeight(a, a)  # type: ignore[call-arg]


def wrong_products(a: Tensor, b: Tensor, precision: str) -> None:
    fastgemm.matmul(a, [[1.0]])  # type: ignore[arg-type]
    fastgemm.matmul(a, b, 3)  # type: ignore[call-arg]
    fastgemm.matmul(a, b, level="3")  # type: ignore[arg-type]
    fastgemm.matmul(a, b, impl="blocked")  # type: ignore[call-arg]
    fastgemm.matmul(a, b, precision="fp32")  # type: ignore[arg-type]
    fastgemm.matmul(a, b, precision=precision)  # type: ignore[arg-type]
    fastgemm.gemm(a, b, alpha=a)  # type: ignore[arg-type]
    fastgemm.linear(a, b, activation="tanh")  # type: ignore[call-overload]
    fastgemm.matmull(a, b)  # type: ignore[attr-defined]


def moves_and_sums(a: Tensor, b: Tensor) -> None:
    assert_type(fastgemm.transpose(a, level=3), Tensor)
    assert_type(fastgemm.add(a, b, alpha=2.0), Tensor)
    assert_type(fastgemm.add_(a, b), Tensor)


def patches(a: Tensor) -> None:
    with fastgemm.patch(level=2, precision="ieee") as routed:
        assert_type(a @ a, Tensor)
    assert_type(routed, fastgemm.Routed)
    assert_type(routed.ops, Counter[str])
    assert_type(routed.passed_on, Counter[tuple[str, str]])
    assert_type(routed.total, int)
    assert_type(routed.as_dict(), dict[str, Any])

    @fastgemm.patch(invariant=True)
    def squared(x: Tensor, times: int = 1) -> list[Tensor]:
        return [x @ x] * times

    assert_type(squared(a, times=2), list[Tensor])


@fastgemm.patch()
def wrong_squares(x: Tensor) -> None:
    wrong_squares("x")  # type: ignore[arg-type]
    fastgemm.patch(2, "blocked")  # type: ignore[call-arg]
    fastgemm.enable(precision="bf16")  # type: ignore[arg-type]


def everywhere() -> None:
    assert_type(fastgemm.enable(kernel="blocked", count=False), fastgemm.Routed)
    fastgemm.disable()


class Model(nn.Module):
    """Has an attribute that modules do not have."""

    width = 3


def layers(x: Tensor) -> None:
    model = Model()
    assert_type(fastgemm.nn.convert(model, level=2, only=lambda name, layer: bool(name)).width, int)
    assert_type(fastgemm.nn.fuse(model, precision="ieee"), Model)
    assert_type(fastgemm.nn.revert(model), nn.Module)
    report = fastgemm.nn.quantize(model, "int4", skip=(), group_size=32)
    assert_type(report, fastgemm.nn.QuantizationReport)
    for quantized_layer in report:
        assert_type(quantized_layer, fastgemm.nn.QuantizedLayer)
        assert_type(quantized_layer.product_error, float | None)
    fastgemm.nn.quantize(model, "fp8", activations="row")
    layer = fastgemm.nn.Linear(4, 4, bias=False, dtype=torch.float32, activation="relu")
    assert_type(layer(x), Any)  # as for each module of torch
    assert_type(layer.forward(x), Tensor)
    assert_type(layer.activation, Literal["relu", "gelu", "gelu_tanh", "silu"] | None)
    assert_type(fastgemm.nn.Sequential(layer).forward(x), Tensor)
    assert_type(fastgemm.nn.linear(x, layer.weight, level=2), Tensor)
    assert_type(fastgemm.nn.conv1d(x, layer.weight), Tensor)


def wrong_layers(model: Model) -> None:
    fastgemm.nn.convert(model, fuse=True)  # type: ignore[arg-type]
    fastgemm.nn.convert([model])  # type: ignore[type-var]
    fastgemm.nn.quantize(model, granularity="row")  # type: ignore[arg-type]
    fastgemm.nn.quantize(model, "fp8", activations="1x32")  # type: ignore[arg-type]
    fastgemm.nn.load_quantized(model, 3)  # type: ignore[arg-type]
    fastgemm.nn.Linear(4, 4, activation="tanh")  # type: ignore[arg-type]
    fastgemm.nn.Linear4  # type: ignore[attr-defined]  # noqa: B018


def the_table() -> None:
    rows = fastgemm.kernels("gemm", torch.device("cpu"), torch.float32)
    assert_type(rows, list[fastgemm.KernelInfo])
    assert_type(rows[0].level, int)
    assert_type(rows[0].op, Literal["gemm", "transpose", "add"])
    assert_type(rows[0].unavailable, str | None)
    assert_type(rows[0].takes(torch.float16), bool)
    assert_type(fastgemm.build_info()["version"], Any)


def wrong_rows(row: fastgemm.KernelInfo) -> None:
    fastgemm.kernels("multiply")  # type: ignore[arg-type]
    fastgemm.kernels(dtype="float32")  # type: ignore[arg-type]
    row.level = 3  # type: ignore[misc]


def measurements(a: Tensor) -> None:
    tuned = fastgemm.autotune(a, a, budget=0.0, save=False)
    assert_type(tuned, fastgemm.tuning.Tuned)
    assert_type(tuned.timings, tuple[fastgemm.tuning.Timing, ...])
    assert_type(tuned.timings[0].seconds, float)
    assert_type(fastgemm.tuning.autotune(a, op="transpose", budget=0.0, save=False).kernel, str)
    assert_type(fastgemm.tuning.cache_file(), Path)
    fastgemm.tuning.limit_workspace(1 << 30)
    fastgemm.tuning.limit_workspace(None)
    fastgemm.tuning.clear_cache(disk=False)


def wrong_measurements(a: Tensor) -> None:
    fastgemm.autotune(a, op="add")  # type: ignore[arg-type]
    fastgemm.tuning.cleared()  # type: ignore[attr-defined]
    fastgemm.tune(60)  # type: ignore[call-arg]


def with_a_gpu(shown: Sequence[str] = ("float16",)) -> None:
    """Not run, because it measures for two minutes."""
    tuning = fastgemm.tune(seconds=60, dtypes=[torch.float16, *shown], progress=lambda text, share: None)
    assert_type(tuning, fastgemm.Tuning)
    assert_type(tuning.seconds, float)
    assert_type(tuning.as_json(), dict[str, Any])


def explanations(a: Tensor) -> None:
    report = fastgemm.explain("transpose", level=3, shape=(32, 32))
    assert_type(report, fastgemm.Report)
    assert_type(report.sites[0].conflict, float | None)
    assert_type(report.to_dict(), dict[str, Any])
    assert_type(report.to_json(), str)
    with fastgemm.simulate(gpu="H200"):
        assert_type(fastgemm.transpose(a, level=2), Tensor)


def wrong_explanations() -> None:
    fastgemm.explain("gemm")  # type: ignore[call-arg]
    fastgemm.explain("gemm", shape=64)  # type: ignore[arg-type]


def shards() -> None:
    fastgemm.distributed.register()
