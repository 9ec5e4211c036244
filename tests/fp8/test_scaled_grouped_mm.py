"""Tests scaled_grouped_mm on a CPU, and its kernels on the simulator or on a GPU."""

import contextlib
from itertools import accumulate, product

import fastgemm
import pytest
import torch
from reference import needs_simulator
from scaled import BF16, E4M3, E5M2, E8M0, F16, F32, assert_near, dequantized, random_codes, random_scales
from torch.library import opcheck

ON_GPU = torch.cuda.is_available()
IS_HOPPER = ON_GPU and torch.cuda.get_device_capability() == (9, 0)
OF_GPU = "cuda" if ON_GPU else pytest.param("simulator", marks=needs_simulator)
every_way = pytest.mark.parametrize("way", ["cpu", OF_GPU])
only_kernel = [needs_simulator] if not ON_GPU else [pytest.mark.skipif(not IS_HOPPER, reason="needs Hopper")]
KERNEL = "grouped_scaled_wgmma"

# Many groups are empty, some have one row more than a tile, and the last one ends before the last row.
SIZES, REST = (3, 0, 0, 65, 130, 1, 0, 20), 9


def ends(sizes):
    return torch.tensor(list(accumulate(sizes)), dtype=torch.int32)


def ranges(sizes):
    stops = list(accumulate(sizes))
    return [slice(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


def multiply(way, *tensors, **options):
    """scaled_grouped_mm on a device, or by kernels of a GPU on the simulator."""
    given = [x if x is None else x.to("cuda" if way == "cuda" else "cpu") for x in tensors]
    with fastgemm.simulate() if way == "simulator" else contextlib.nullcontext():
        return fastgemm.scaled_grouped_mm(*given, **options)


def experts(groups, n, k, recipe, code=E4M3, scale=F32):
    """Codes (G, N, K), as layers have them, and the scales of their blocks."""
    made = [random_scales(n, k, recipe, scale) for _ in range(groups)]
    return random_codes(groups, n, k, dtype=code), torch.stack(made)


def check(way, sizes, rest, n, k, recipes=("row", "row"), codes=(E4M3, E4M3), scale=F32, **options):
    rows = sum(sizes) + rest
    a, scale_a = random_codes(rows, k, dtype=codes[0]), random_scales(rows, k, recipes[0], scale)
    w, scale_w = experts(len(sizes), n, k, recipes[1], codes[1], scale)
    names = {"recipe_a": recipes[0], "recipe_b": recipes[1]}
    result = multiply(way, a, w.mT, scale_a, scale_w.mT, ends(sizes), **names, **options)
    assert result.shape == (rows, n) and not result[sum(sizes) :].any()
    exact_a = dequantized(a, scale_a, recipes[0])
    for part, codes_, scales_ in zip(ranges(sizes), w, scale_w, strict=True):
        if part.stop > part.start:
            assert_near(result[part], exact_a[part], dequantized(codes_, scales_, recipes[1]).mT)


@every_way
@pytest.mark.parametrize(
    "recipes", [("row", "row"), ("tensor", "row"), ("1x128", "128x128"), ("1x32", "1x32")]
)
def test_recipes(way, recipes):
    check(way, SIZES, REST, 24, 140, recipes, out_dtype=BF16)
    check(way, (0, 5, 0), 0, 7, 33, recipes, out_dtype=F32)


@every_way
def test_types(way):
    for codes in product((E4M3, E5M2), repeat=2):
        check(way, (2, 0, 5), 1, 9, 70, codes=codes, out_dtype=F32)
    check(way, (2, 0, 5), 1, 9, 70, scale=E8M0, out_dtype=F32)


class TestKernel:
    pytestmark = only_kernel
    way = "cuda" if ON_GPU else "simulator"

    def check(self, *args, **options):
        check(self.way, *args, kernel=KERNEL, **options)

    @pytest.mark.parametrize("out", [BF16, F32])
    def test_tiles(self, out):
        """Tiles of 256 x 64 and 256 x 128, of which some are half full, and results whose rows boxes cannot
        store."""
        self.check(SIZES, REST, 24, 140, out_dtype=out)
        self.check((130, 0, 300, 64, 65, 120, 1), 3, 264, 530, out_dtype=out)
        self.check((130, 0, 300), 3, 263, 140, out_dtype=out)
        self.check((5, 40), 0, 263, 20, out_dtype=out)

    def test_many_groups(self):
        self.check((1, 0, 3) * 40, 2, 16, 33, out_dtype=F32)

    def test_float16_is_rounded_from_float32(self):
        (a, scale_a), (b, scale_b) = (
            fastgemm.quantize_fp8(x, "row") for x in (torch.randn(30, 200), torch.randn(3, 16, 200))
        )
        given = a, b.mT, scale_a, scale_b.mT, ends((10, 0, 20))
        wide = multiply(self.way, *given, out_dtype=F32, kernel=KERNEL)
        assert torch.equal(multiply(self.way, *given, out_dtype=F16, kernel=KERNEL), wide.to(F16))

    def test_layouts(self):
        """Any strides and offsets of all operands."""
        sizes, n, k = (20, 0, 45), 40, 150
        a, scale_a = random_codes(65, k), random_scales(65, k, "row")
        w, scale_w = experts(3, n, k, "row")
        given = a, w.mT, scale_a, scale_w.mT, ends(sizes)
        expected = multiply(self.way, *given, kernel=KERNEL)
        along_m = a.view(torch.uint8).mT.contiguous().view(E4M3).mT
        along_n = w.view(torch.uint8).mT.contiguous().view(E4M3)
        space = torch.zeros(65 * 160 + 3, dtype=torch.uint8)
        moved = space[3:].view(65, 160)[:, :k]
        moved.copy_(a.view(torch.uint8))
        spread = torch.zeros(65, 2)
        spread[:, :1] = scale_a
        far = torch.zeros(3, 2, n, 3)
        far[:, 0, :, 0] = scale_w[..., 0]
        every_other = torch.zeros(6, dtype=torch.int32)
        every_other[::2] = ends(sizes)
        for change in (
            {0: along_m},
            {1: along_n},
            {0: moved.view(E4M3)},
            {2: spread[:, :1], 3: far[:, :1, :, 0]},
            {4: every_other[::2]},
        ):
            changed = [change.get(i, x) for i, x in enumerate(given)]
            assert torch.equal(multiply(self.way, *changed, kernel=KERNEL), expected)

    def test_other_groups_do_not_reach_a_row(self):
        """Codes and scales of other groups, and of rows beyond the last end, are NaN. A row has the same bits as
        without them."""
        k, n, nan = 140, 40, 0x7F
        a, scale_a = random_codes(200, k), random_scales(200, k, "row")
        w, scale_w = experts(3, n, k, "row")
        expected = multiply(self.way, a[70:130], w[1:2].mT, scale_a[70:130], scale_w[1:2].mT, ends((60,)))
        a.view(torch.uint8)[:70], a.view(torch.uint8)[130:] = nan, nan
        w.view(torch.uint8)[::2] = nan
        scale_a[130:], scale_w[2] = torch.nan, torch.inf
        result = multiply(self.way, a, w.mT, scale_a, scale_w.mT, ends((70, 60, 50)), kernel=KERNEL)
        assert torch.equal(result[70:130], expected)
        assert result[:70].isnan().all() and not result[180:].any()

    def test_ends_without_a_meaning_stay_inside(self):
        a, scale_a = random_codes(30, 40), random_scales(30, 40, "row")
        w, scale_w = experts(4, 16, 40, "row")
        wrong = torch.tensor([40, -3, 7, 1000], dtype=torch.int32)
        assert multiply(self.way, a, w.mT, scale_a, scale_w.mT, wrong, kernel=KERNEL).shape == (30, 16)

    def test_level_6_takes_it_and_says_what_it_does_not_take(self):
        a, scale_a = random_codes(30, 40), random_scales(30, 40, "row")
        w, scale_w = experts(2, 16, 40, "row")
        given = a, w.mT, scale_a, scale_w.mT, ends((10, 20))
        by_name = multiply(self.way, *given, kernel=KERNEL)
        assert torch.equal(multiply(self.way, *given, level=6), by_name)
        assert torch.equal(multiply(self.way, *given, invariant=True), by_name)


@every_way
def test_groups_of_columns_and_batches(way):
    sizes, m, k = (5, 0, 12), 20, 70
    a, scale_a = experts(3, m, k, "row")
    w, scale_w = random_codes(20, k), random_scales(20, k, "row")
    result = multiply(way, a, w.mT, scale_a, scale_w.mT, ends(sizes), out_dtype=F32)
    exact_w = dequantized(w, scale_w, "row").mT
    for part, codes, scales in zip(ranges(sizes), a, scale_a, strict=True):
        if part.stop > part.start:
            assert_near(result[:, part], dequantized(codes, scales, "row"), exact_w[:, part])
    assert result.is_contiguous() and not result[:, 17:].any()
    b, scale_b = experts(3, 9, k, "row")
    batch = multiply(way, a, b.mT, scale_a, scale_b.mT, out_dtype=F32)
    assert_near(batch, dequantized(a, scale_a, "row"), dequantized(b, scale_b, "row").mT)


@every_way
def test_groups_of_k(way):
    sizes, m, n = (40, 0, 33), 20, 24
    a, b = random_codes(m, 80), random_codes(80, n, dtype=E5M2)
    scale_a, scale_b = torch.rand(3, m, 1) + 0.5, torch.rand(3, 1, n) + 0.5
    result = multiply(way, a, b, scale_a, scale_b, ends(sizes), out_dtype=F32)
    for i, part in enumerate(ranges(sizes)):
        exact = a[:, part].double() * scale_a[i].double(), b[part].double() * scale_b[i].double()
        if part.stop > part.start:
            assert_near(result[i], *exact)
    assert not result[1].any()


@every_way
def test_empty(way):
    w, scale_w = experts(2, 8, 16, "row")
    none = torch.zeros(0, 16, dtype=torch.uint8).view(E4M3)
    assert multiply(way, none, w.mT, torch.ones(0, 1), scale_w.mT, ends((0, 0))).shape == (0, 8)
    a = random_codes(4, 16)
    rest = multiply(way, a, w.mT, torch.ones(4, 1), scale_w.mT, ends((0, 0)))
    assert rest.shape == (4, 8) and not rest.any()


def test_one_token():
    """Its first expert is empty, and its scales have a single row."""
    for recipe in ("row", "1x128", "1x32"):
        a, scale_a = random_codes(1, 256), random_scales(1, 256, recipe)
        w, scale_w = experts(2, 8, 256, "row")
        result = fastgemm.scaled_grouped_mm(
            a, w.mT, scale_a, scale_w.mT, ends((0, 1)), recipe_a=recipe, out_dtype=F32
        )
        assert_near(result, dequantized(a, scale_a, recipe), dequantized(w[1], scale_w[1], "row").mT)


def test_one_number_for_groups_of_columns():
    a, b, one = random_codes(2, 8, 32), random_codes(32, 5), torch.ones(1)
    result = fastgemm.scaled_grouped_mm(a, b, one, one, ends((2, 3)), out_dtype=F32)
    same = fastgemm.scaled_grouped_mm(
        a, b, one.reshape(1, 1, 1), one.reshape(1, 1), ends((2, 3)), out_dtype=F32
    )
    assert torch.equal(result, same)


def test_the_op_takes_a_scale_without_dimensions():
    a, b, one = random_codes(4, 16), random_codes(2, 16, 8), torch.tensor(2.0)
    blocks = {"block_m": 0, "block_k_of_a": 0, "block_k_of_b": 0, "block_n": 1}
    given = a, b, one, torch.ones(2, 1, 8), ends((2, 2))
    result = torch.ops.fastgemm.scaled_grouped_mm(*given, **blocks)
    assert torch.equal(result, fastgemm.scaled_grouped_mm(a, b, one, given[3], given[4]))


def test_kernels_are_known_where_nothing_runs():
    a, w = (torch.empty(8, 256, device="meta", dtype=E4M3) for _ in range(2))
    one, ends_ = torch.ones(1, device="meta"), torch.empty(1, device="meta", dtype=torch.int32)
    assert fastgemm.scaled_mm(a, w.mT, one, one, kernel="scaled_skinny").shape == (8, 8)
    assert fastgemm.scaled_grouped_mm(a, w.mT[None], one, one, ends_, kernel=KERNEL).shape == (8, 8)
    with pytest.raises(RuntimeError, match="cannot run"):
        fastgemm.scaled_mm(a, w.mT, one, one, kernel=KERNEL)


@pytest.mark.parametrize("marks", [((0, 0),), ((1, 0), (2, 0)), ((1, 1),), ((0, 1), (1, 2))])
def test_sizes_that_no_graph_knows(marks):
    """Rows, groups, columns, and K."""

    def run(x, w, offs):
        (a, scale_a), (b, scale_b) = (fastgemm.quantize_fp8(each, "row") for each in (x, w))
        return fastgemm.scaled_grouped_mm(a, b.mT, scale_a, scale_b.mT, offs)

    given = torch.randn(12, 40), torch.randn(3, 8, 40), ends((5, 0, 6))
    for i, dim in marks:
        torch._dynamo.decorators.mark_unbacked(given[i], dim)
    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), run(*given))


@pytest.mark.parametrize("marks", [((0, 0), (2, 1)), ((1, 1), (3, 2)), ((2, 0), (3, 0), (4, 0))])
def test_sizes_of_groups_of_k_that_no_graph_knows(marks):
    """Rows, columns, and groups."""
    given = random_codes(4, 9), random_codes(9, 5), torch.rand(3, 4, 1), torch.rand(3, 1, 5), ends((3, 0, 6))
    for i, dim in marks:
        torch._dynamo.decorators.mark_unbacked(given[i], dim)
    torch._dynamo.reset()
    compiled = torch.compile(fastgemm.scaled_grouped_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), fastgemm.scaled_grouped_mm(*given))


def test_compile_and_opcheck():
    a, scale_a = random_codes(12, 40), random_scales(12, 40, "row")
    w, scale_w = experts(3, 8, 40, "row")
    given = a, w.mT, scale_a, scale_w.mT, ends((5, 0, 6))
    torch._dynamo.reset()
    compiled = torch.compile(fastgemm.scaled_grouped_mm, fullgraph=True)
    assert torch.equal(compiled(*given), fastgemm.scaled_grouped_mm(*given))
    assert fastgemm.scaled_grouped_mm(*(x.to("meta") for x in given)).shape == (12, 8)
    blocks = {"block_m": 1, "block_k_of_a": 0, "block_k_of_b": 0, "block_n": 1}
    # torch's check that arguments remain adds them up, which it cannot do with codes of 8 bits.
    others = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    opcheck(torch.ops.fastgemm.scaled_grouped_mm.default, given, blocks, test_utils=others)


WRONG = [
    ({"a": torch.randn(4, 20)}, TypeError, "a has dtype torch.float32; accepted: torch.float8_e4m3fn"),
    ({"a": random_codes(4, 21)}, ValueError, "inner sizes differ"),
    ({"offs": None}, ValueError, "offs, the ends of the groups, must be given"),
    ({"offs": torch.tensor([1, 4])}, ValueError, "offs has shape .* torch.int64, expected torch.int32"),
    ({"offs": ends((1, 2, 3))}, ValueError, r"offs has shape \(3,\)"),
    ({"offs": ends((3, 2))}, ValueError, r"not exceed 4; offs\[1\] is 5 after 3"),
    ({"offs": torch.tensor(4, dtype=torch.int32)}, ValueError, r"offs has shape \(\), expected 1 dimension"),
    ({"offs": [1, 4]}, TypeError, "offs must be a torch.Tensor, got list"),
    ({"scale_a": torch.ones(1, 1), "recipe_a": "128x128"}, ValueError, "scales of a belong to single rows"),
    ({"scale_b": torch.ones(2, 6, 1)}, ValueError, "scale_b has shape"),
    ({"out_dtype": E4M3}, ValueError, "out_dtype must be"),
    ({"kernel": KERNEL}, ValueError, f"unknown kernel '{KERNEL}' for gemm on cpu"),
    ({"level": 9}, ValueError, "level"),
    ({"level": "fast"}, TypeError, "level must be an int or None, got str"),
    ({"recipe_a": ["row"]}, ValueError, r"unknown recipe_a \['row'\]; accepted: 'tensor', 'row'"),
    ({"scale_a": torch.ones(4, 1, device="meta")}, ValueError, "all tensors must be on one device"),
    ({"scale_a": torch.ones(4, 1, requires_grad=True)}, RuntimeError, "has no gradient"),
]


@pytest.mark.parametrize("change, error, text", WRONG, ids=lambda x: x if isinstance(x, str) else None)
def test_errors(change, error, text):
    w, scale_w = experts(2, 6, 20, "row")
    given = {"a": random_codes(4, 20), "b": w.mT, "scale_a": torch.ones(4, 1), "scale_b": scale_w.mT}
    given["offs"] = ends((1, 3))
    with pytest.raises(error, match=text) as raised:
        fastgemm.scaled_grouped_mm(**(given | change))
    assert str(raised.value).startswith("fastgemm.scaled_grouped_mm")
