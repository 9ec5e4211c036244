"""Tests level=None on a CPU. It chooses by predicted times, which measured products correct."""

from __future__ import annotations

import math
from collections.abc import Iterator

import fastgemm
import pytest
import torch
from check_cpu_choices import CAUTION, held_out, pick, qualities
from fastgemm import _introspect
from fastgemm._tune.cpu import WORTH_LEAVING
from fastgemm.bench.timing import geometric_mean
from fit_cpu_costs import DATA, FILES, GRANITE_RAPIDS, NARROW, PROCESSORS, ZEN4, choices, points, problem_of
from static_tables.generate import ARITHMETIC_TYPES as TYPES

if not all((DATA / file).is_file() for files in FILES.values() for file in files):
    pytest.skip("the measurements are not here", allow_module_level=True)

# This processor, described as one that was not measured.
UNMEASURED = {"model": "of a type that was not measured", "clock": 3e9, "l2": 1 << 20, "l3": 32 << 20}
UNMEASURED |= {"core_bandwidth": 20e9, "bandwidth": 100e9}
OTHER_CACHE = {"l2": 3 << 19}  # with this, no processor counts as measured, so only constants decide
AVX2 = {"isa": "avx2", "vnni": False, "dot_bf16": False, "amx_bf16": False, "amx_int8": False, "fp16": False}
AVX2 |= {"vector_issue": 2.0}
AARCH64 = AVX2 | {"isa": "baseline", "mmla_bf16": True, "mmla_int8": True, "vector_issue": 1.0}


@pytest.fixture
def processor() -> Iterator:
    """Replaces the description of this processor by another one."""
    yield lambda **properties: _introspect.set_cpu(UNMEASURED | properties)
    _introspect.set_cpu(None)
    _introspect.reset_cpu_costs()


def chosen(dtype: str, m: int, n: int, k: int, threads: int = 1) -> str:
    out = {"int8": "int32"}.get(dtype, dtype)
    return _introspect.chosen(("gemm", "cpu", dtype, out, "ieee", False, False, False, threads, 1, m, n, k))


def seconds(kernel: str, dtype: str, size: int, threads: int = 1, **cpu: object) -> float:
    problem = dtype, "ieee", 1, size, size, size, False, False
    return dict(_introspect.cpu_predictions(problem, threads, ZEN4 | OTHER_CACHE | cpu))[kernel]


MEASURED_TYPES = {family: NARROW if family == "without_tiles" else (*TYPES,) for family in PROCESSORS}


@pytest.mark.parametrize(
    ("family", "dtype"), [(family, dtype) for family, types in MEASURED_TYPES.items() for dtype in types]
)
def test_predictions_pick_what_was_measured_to_be_fast(family, dtype):
    """On average over all measured points, beside the fastest kernel and beside torch."""
    of_best, of_torch = zip(*choices(family, dtype), strict=True)
    assert len(of_best) > 75
    assert geometric_mean(of_best) < 1.02
    assert geometric_mean(of_torch) < 0.98


@pytest.mark.parametrize("family", PROCESSORS)
def test_predictions_pick_well_for_held_out_products(family):
    pytest.importorskip("scipy")
    found = qualities(held_out(family, most_folds=2))
    assert len(found) == 2 * len(MEASURED_TYPES[family])
    of_best = [ratio for quality in found.values() for ratio in quality.of_best]
    of_torch = [ratio for quality in found.values() for ratio in quality.of_torch]
    assert geometric_mean(of_best) < 1.05
    assert sum(ratio > 1.25 for ratio in of_best) < 0.06 * len(of_best)
    assert sum(ratio > 1.03 for ratio in of_torch) < 0.06 * len(of_torch)


@pytest.mark.parametrize(
    ("dtype", "batch", "sizes", "layout", "torch_wins"),
    [
        ("float16", 1, (12, 1, 4096), "NN", True),  # torch's dot products, without a call of oneDNN
        ("float16", 1, (2, 1, 4000), "NT", True),
        ("float16", 1, (50000, 1, 16), "NN", False),
        (
            "float16",
            1,
            (9, 2048, 2048),
            "NT",
            True,
        ),  # the second group of few_rows.h is for float32 and float64
        ("float16", 1, (10, 1000, 2048), "NT", True),
        ("float32", 1, (12, 1024, 1024), "NT", False),
        ("float32", 1, (10, 4096, 1024), "NT", False),
        ("float32", 1, (2048, 48, 320), "NN", True),
        ("float64", 1, (2048, 24, 128), "NN", True),
        ("float32", 1, (5, 500, 160), "TT", False),  # MKL multiplies 2 to 7 such rows number by number
        ("float16", 1000, (16, 9, 1), "NN", True),  # one call of oneDNN for the whole batch
        ("float16", 17, (128, 12, 4), "NN", True),
        ("float32", 200, (1, 16, 12), "NT", True),
        ("float32", 200, (1, 16, 12), "NN", False),
        ("bfloat16", 1, (4096, 8, 512), "NN", False),  # without tiles, oneDNN does not win
        ("bfloat16", 1, (10000, 8, 512), "NN", False),
        ("bfloat16", 1, (512, 1536, 48), "TT", False),
    ],
)
def test_the_choice_between_torch_and_the_kernels(dtype, batch, sizes, layout, torch_wins):
    """Measured on an Emerald Rapids with one thread. The slower one takes 1.3 to 10 times as long."""
    problem = (dtype, "ieee", batch, *sizes, *(letter == "T" for letter in layout))
    predicted = dict(_introspect.cpu_predictions(problem, 1, PROCESSORS["without_tiles"]))
    assert (pick(predicted) == "torch") == torch_wins, predicted


@pytest.mark.parametrize("family", PROCESSORS)
def test_predicted_times_are_near_those_measured(family):
    off = []
    for p in points(family):
        predicted = dict(_introspect.cpu_predictions(problem_of(p), p["threads"], PROCESSORS[family]))
        off += [abs(math.log(predicted[name] / spent)) for name, spent in p["seconds"].items()]
    assert sorted(off)[len(off) // 2] < 0.12
    assert sorted(off)[len(off) * 9 // 10] < 0.5


@pytest.mark.parametrize("family", PROCESSORS)
def test_constants_are_those_of_the_measurements(family):
    pytest.importorskip("scipy")
    from fit_cpu_costs import counts_of, fitted

    measured = points(family)
    for (kernel, dtype), costs in fitted(measured, counts_of(family, measured)).items():
        shipped = _introspect.cpu_costs(kernel, dtype, PROCESSORS[family])
        assert shipped == pytest.approx(costs, rel=0.02, abs=1e-3), kernel


def test_every_kernel_from_level_4_on_is_predicted():
    amx = {"amx_bf16": True, "amx_int8": True}
    for dtype in TYPES:
        problem = dtype, "ieee", 1, 64, 64, 64, False, False
        predicted = {
            name
            for cpu in (ZEN4 | amx, ZEN4 | AARCH64)
            for name, _ in _introspect.cpu_predictions(problem, 1, cpu)
        }
        rows = fastgemm.kernels("gemm", "cpu", getattr(torch, dtype))
        assert predicted == {row.name for row in rows if row.level >= 4 and row.role == "rung"}


def test_predictions_scale_with_the_processor():
    base = seconds("pipelined", "float32", 2048)
    assert seconds("pipelined", "float32", 2048, clock=7.2e9) == pytest.approx(base / 2, rel=0.1)
    assert base / 17 < seconds("pipelined", "float32", 2048, 16, bandwidth=320e9) < base / 8
    avx2 = seconds("pipelined", "float32", 2048, isa="avx2", vector_issue=1.0)
    assert 1.9 * base < avx2 < 2.4 * base
    assert seconds("pipelined", "float32", 2048, vector_issue=2.0) < 0.7 * base
    assert seconds("amx_bf16", "bfloat16", 2048, amx_bf16=True) < seconds("dot_bf16", "bfloat16", 2048)
    assert seconds("torch", "float16", 1024) > 10 * seconds("torch", "float16", 1024, fp16=True)
    two = {"vector_issue": 2.0}  # vectors of 64 bytes, which MKL leaves alone on AMD's processors
    for dtype in ("float32", "float64"):
        assert seconds("torch", dtype, 2048, **two) > 1.7 * seconds(
            "torch", dtype, 2048, **two, mkl_avx2=False
        )
    assert seconds("torch", "bfloat16", 2048, **two) == seconds("torch", "bfloat16", 2048)
    small = seconds("pipelined", "float32", 64)
    assert small == seconds("pipelined", "float32", 64, 16), "too little work to share"


def test_kernels_need_their_units():
    def names(dtype: str, **cpu: object) -> set[str]:
        problem = dtype, "ieee", 1, 64, 64, 64, False, False
        return {name for name, _ in _introspect.cpu_predictions(problem, 1, ZEN4 | cpu)}

    assert names("bfloat16", **AVX2) == {"simd", "microkernel", "pipelined", "torch"}
    assert names("bfloat16") - names("bfloat16", **AVX2) == {"dot_bf16"}
    assert names("int8", amx_int8=True) - names("int8", **AVX2) == {"dot_int8", "amx_int8"}
    assert names("bfloat16", **AARCH64) - names("bfloat16", **AVX2) == {"mmla_bf16"}
    assert names("int8", **AARCH64) - names("int8", **AVX2) == {"mmla_int8"}


@pytest.mark.parametrize(
    ("dtype", "kernel"), [("bfloat16", "mmla_bf16"), ("int8", "mmla_int8")], ids=lambda x: x
)
@pytest.mark.parametrize("size", [7, 33, 300, 3000])
@pytest.mark.parametrize("threads", [1, 16])
def test_matrix_instructions_of_aarch64_are_what_level_6_takes(dtype, kernel, size, threads):
    """If predictions are equal, the first row of the table is chosen."""
    problem = dtype, "ieee", 1, size, size, size, False, False
    order = [name for name, _ in _introspect.cpu_predictions(problem, threads, ZEN4 | AARCH64)]
    assert order.index(kernel) < order.index("pipelined")


@pytest.mark.parametrize("cores", [8, 64])
def test_a_processor_that_was_not_measured_gets_own_kernels_where_they_are_known_to_win(processor, cores):
    """They win with one thread on AMD's processors, and with any number where torch has no fast product."""
    processor(cores=cores, **AVX2, mkl_avx2=True)
    slow_in_torch = "float16", "bfloat16", "int8", "int32"
    for threads, dtypes in ((1, ("float64", "float32", *slow_in_torch)), (cores, slow_in_torch)):
        for dtype in dtypes:
            assert chosen(dtype, 1024, 1024, 1024, threads) in ("microkernel", "pipelined"), (dtype, threads)
    processor(cores=cores, **AVX2, mkl_avx2=False)
    for dtype in ("float64", "float32"):
        assert chosen(dtype, 1024, 1024, 1024) == "torch", (
            "MKL's kernels for Intel were not measured with AVX2"
        )
    a, b = torch.randn(300, 200), torch.randn(200, 100)
    assert torch.allclose(fastgemm.matmul(a, b), a @ b, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("size", [8, 3000])
def test_unmeasured_transposes_use_the_highest_rung(processor, size, threads):
    processor(cores=8)
    for bits in ("bits8", "bits32", "bits128"):
        key = ("transpose", "cpu", bits, bits, "ieee", False, False, False, threads, 1, size, 3, 0)
        assert _introspect.chosen(key) == "pipelined"
    a = torch.randn(size, 3)
    assert torch.equal(fastgemm.transpose(a), a.t())


def test_torch_is_left_only_for_what_is_clearly_faster(processor):
    processor(**AVX2)
    own = [1.0 if name == "call" else 0.0 for name in _introspect.CPU_COUNTS]
    for kernel in ("simd", "microkernel", "pipelined"):
        _introspect.set_cpu_costs(kernel, "float32", own)
    for factor, kernel in ((0.99 * WORTH_LEAVING, "torch"), (1.01 * WORTH_LEAVING, "pipelined")):
        _introspect.set_cpu_costs("torch", "float32", [factor * cost for cost in own])
        assert (chosen("float32", 64, 64, 64) == "torch") == (kernel == "torch")


def test_flags_that_rule_torch_out_leave_own_kernels(processor):
    processor(**AVX2)
    free = [0.0] * len(_introspect.CPU_COUNTS)
    _introspect.set_cpu_costs("torch", "float32", free)
    assert chosen("float32", 256, 256, 256) == "torch"
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        assert chosen("float32", 256, 256, 256) in ("simd", "microkernel", "pipelined")
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before


def test_constants_of_this_processor_replace_those_shipped(processor):
    processor(**AVX2)
    shipped = _introspect.cpu_costs("simd", "float32")
    _introspect.set_cpu_costs("simd", "float32", [0.0] * len(_introspect.CPU_COUNTS))
    assert chosen("float32", 512, 512, 512) == "simd"
    _introspect.reset_cpu_costs()
    assert _introspect.cpu_costs("simd", "float32") == shipped
    assert chosen("float32", 512, 512, 512) != "simd"
    with pytest.raises(ValueError, match="not predicted"):
        _introspect.set_cpu_costs("naive", "float32", shipped)


@pytest.mark.parametrize(
    ("properties", "family", "knowledge"),
    [
        (GRANITE_RAPIDS, "granite_rapids", "measured"),
        (GRANITE_RAPIDS | {"l2": 5 << 18}, "granite_rapids", "predicted"),
        (
            GRANITE_RAPIDS | AVX2 | {"isa": "avx512", "l2": 1 << 20},
            "granite_rapids",
            "predicted",
        ),  # Skylake-SP
        (ZEN4, "zen4", "measured"),
        (ZEN4 | {"vector_issue": 2.0}, "zen4", "predicted"),  # Zen 5
        (ZEN4 | AVX2 | {"l2": 1 << 19}, "zen3", "measured"),
        (ZEN4 | AVX2 | {"l2": 5 << 18, "mkl_avx2": False}, "zen3", "predicted"),  # Alder Lake
        (ZEN4 | AARCH64, "zen3", "predicted"),
    ],
)
def test_a_processor_is_known_by_its_features_and_caches(properties, family, knowledge):
    """The number of its model does not matter."""
    properties = properties | {"model": "even if MKL is told to report another one"}
    assert _introspect.cpu_family(properties) == family
    assert _introspect.cpu_knowledge(properties) == knowledge


@pytest.mark.parametrize("dtype", NARROW)
def test_without_tiles_narrow_types_have_constants_of_their_own(dtype):
    """A machine may switch the tile unit off. Then oneDNN and the kernels use products of pairs and quads."""
    with_tiles, without = PROCESSORS["granite_rapids"], PROCESSORS["without_tiles"]
    for kernel in ("pipelined", "torch"):
        others = [_introspect.cpu_costs(kernel, dtype, cpu) for cpu in (with_tiles, ZEN4)]
        assert _introspect.cpu_costs(kernel, dtype, without) not in others
        same = (_introspect.cpu_costs(kernel, "float32", cpu) for cpu in (with_tiles, without))
        assert next(same) == next(same)


def test_a_library_that_was_not_measured_may_be_faster():
    """MKL's kernels for AVX-512, on a processor that differs from the measured one only in its cache."""
    problem = ("float32", "ieee", 1, 8, 8, 8, False, False)
    cache = {"l2": 5 << 18}
    models = {}
    for name, cpu in (("measured", GRANITE_RAPIDS), ("predicted", GRANITE_RAPIDS | cache)):
        costs, counts = (
            _introspect.cpu_costs("torch", "float32", cpu),
            _introspect.cpu_counts("torch", problem, 1, cpu),
        )
        model = sum(count * cost for count, cost in zip(counts, costs, strict=True))
        models[name] = dict(_introspect.cpu_predictions(problem, 1, cpu))["torch"] / model
    assert models["predicted"] == pytest.approx(1 / CAUTION)
    assert models["measured"] > 0.9


def test_what_was_measured_of_one_product_serves_its_neighbours(processor):
    """On an AVX2 processor, one kernel is much slower at 1024 than predicted."""
    processor(**AVX2, mkl_avx2=True)
    both = [("float32", "ieee", 1, *sizes, False, False) for sizes in ((1025, 1000, 1023), (24, 30, 24))]
    names = ("simd", "microkernel", "pipelined", "torch")
    before = [dict(_introspect.cpu_predictions(problem, 1)) for problem in both]
    at = ("float32", "ieee", 1, 1024, 1024, 1024, False, False)
    expected = dict(_introspect.cpu_predictions(at, 1))
    version = chosen("float32", 1025, 1000, 1023)
    assert version in ("microkernel", "pipelined")
    slower = {name: expected[name] * (3 if name in ("microkernel", "pipelined") else 1) for name in names}
    _introspect.add_cpu_point(at, 1, list(slower.items()))
    after = [dict(_introspect.cpu_predictions(problem, 1)) for problem in both]
    assert after[0]["pipelined"] == pytest.approx(3 * before[0]["pipelined"], rel=0.1)
    assert after[1]["pipelined"] == pytest.approx(before[1]["pipelined"], rel=0.2)
    assert chosen("float32", 1025, 1000, 1023) == "torch", "the remembered decision is made again"
    assert _introspect.cpu_knowledge() == "predicted"
    _introspect.reset_cpu_costs()
    assert chosen("float32", 1025, 1000, 1023) == version


def test_impossible_times_are_refused():
    problem = ("float32", "ieee", 1, 8, 8, 8, False, False)
    for threads, seconds in ((1, 0.0), (1, math.nan), (1, math.inf), (0, 1.0)):
        with pytest.raises(ValueError, match=r"threads|seconds"):
            _introspect.add_cpu_point(problem, threads, [("pipelined", seconds)])


def test_unknown_properties_are_refused():
    with pytest.raises(ValueError, match="gigahertz"):
        _introspect.set_cpu({"gigahertz": 3})
    with pytest.raises(ValueError, match="isa"):
        _introspect.set_cpu({"isa": "avx9"})
