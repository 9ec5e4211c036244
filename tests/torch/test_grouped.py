"""Tests products of groups of uneven size against a loop of products in float64."""

import itertools
import random

import fastgemm
import pytest
import torch
from reference import FLOATS, UNIT_ROUNDOFF, accumulator, every_device
from torch.nn import functional

pytestmark = every_device

KINDS = ("rows", "columns", "k", "batch")
COMPLEX = (torch.complex64, torch.complex128)


def random_ends(groups, size):
    """Ends of groups. Many groups may be empty, or one may take all, and the last end is ``size``, half of it, or
    0."""
    last = random.choice((size, size, size // 2, 0))
    how = random.random()
    if how < 0.2 and groups:  # one takes all
        one = random.randrange(groups)
        return [0] * one + [last] * (groups - one)
    if how < 0.5:  # many are empty
        few = sorted(random.choices(range(last + 1), k=2))
        return sorted(random.choices((0, *few, last), k=groups))
    return sorted(random.choices(range(last + 1), k=groups))


def int32(ends):
    return torch.tensor(ends, dtype=torch.int32)


def drawn(shape, dtype):
    """Random numbers in memory of random layout and alignment."""
    if not (dtype.is_floating_point or dtype.is_complex):
        values = torch.randint(-9 if dtype.is_signed else 0, 9, shape).to(dtype)
    else:
        values = torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    layout = random.choice(("rows", "columns", "scattered", "unaligned"))
    if layout == "columns":
        return values.mT.contiguous().mT
    if layout == "scattered":
        spread = torch.zeros((*shape[:-1], 2 * shape[-1]), dtype=dtype)
        spread[..., ::2] = values
        return spread[..., ::2]
    if layout == "unaligned":
        padded = torch.zeros(values.numel() + 1, dtype=dtype)[1:].view(shape)
        return padded.copy_(values)
    return values


def problem(kind, dtype, groups=None, m=None, n=None, k=None):
    """(a, b, ends): ends is None for a batch."""
    groups = random.choice((1, 2, 5, 17)) if groups is None else groups
    m, n, k = (size or random.choice((1, 3, 8, 17, 40)) for size in (m, n, k))
    ends = {"rows": m, "columns": n, "k": k}.get(kind)
    a = drawn((m, k) if kind in ("rows", "k") else (groups, m, k), dtype)
    b = drawn((k, n) if kind in ("columns", "k") else (groups, k, n), dtype)
    return a, b, None if ends is None else random_ends(groups, ends)


def loop(a, b, ends, bias=None, activation=None):
    """The product group by group; rows and columns beyond the last end are zero."""
    groups = len(ends) if ends is not None else a.shape[0]
    kind = KINDS[{(2, 3): 0, (3, 2): 1, (2, 2): 2, (3, 3): 3}[a.dim(), b.dim()]]
    activate = {None: lambda x: x, "swiglu": swiglu, **ACTIVATIONS}[activation]

    def term(i, columns=slice(None)):
        return 0 if bias is None else (bias if bias.dim() == 1 else bias[i])[..., columns]

    parts, begin = [], 0
    for i in range(groups):
        end = ends[i] if ends is not None else 0
        at = slice(begin, end)
        if kind == "rows":
            parts.append(activate(a[at] @ b[i] + term(i)))
        elif kind == "columns":
            parts.append(activate(a[i] @ b[:, at] + term(i, at)))
        elif kind == "k":
            parts.append(activate(a[:, at] @ b[at] + term(i)))
        else:
            parts.append(activate(a[i] @ b[i] + term(i)))
        begin = end
    if kind in ("k", "batch"):
        return torch.stack(parts)
    if kind == "columns":
        return torch.cat([*parts, a.new_zeros(a.shape[1], b.shape[1] - begin)], dim=1)
    width = parts[0].shape[1]
    return torch.cat([*parts, a.new_zeros(a.shape[0] - begin, width)])


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return functional.silu(gate) * up


ACTIVATIONS = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def exact(x):
    return x if x is None else x.to(torch.complex128 if x.is_complex() else torch.float64)


def check(got, a, b, ends, dtype=None, bias=None, activation=None):
    """Bounds as in reference.py, with the magnitudes of a product of absolute values; activations have slopes of
    at most 1.13, and a second factor for swiglu."""
    wanted = loop(exact(a), exact(b), ends, exact(bias), activation)
    assert got.shape == wanted.shape and got.dtype == (dtype or a.dtype)
    if not got.dtype.is_floating_point and not got.is_complex():
        assert torch.equal(got.double(), wanted)
        return
    k = a.shape[-1]
    real = torch.empty(0, dtype=a.dtype).real.dtype if a.is_complex() else a.dtype
    out = torch.empty(0, dtype=got.dtype).real.dtype
    u, u_out = UNIT_ROUNDOFF[accumulator(real)], UNIT_ROUNDOFF[out]
    underflow = torch.finfo(out).smallest_normal * u_out  # half a step of subnormal results
    size = loop(exact(a).abs(), exact(b).abs(), ends, None if bias is None else exact(bias).abs())
    if activation == "swiglu":
        gate, up = size.chunk(2, -1)
        size, u_out = gate * up + gate + up, 4 * u_out
    bound = 2 * u * (2 * k**0.5 + 8) * size * (1.2 if activation else 1) + 2 * u_out * wanted.abs()
    if activation and u_out > 2**-12:
        bound = bound + 2 * u_out * size  # some kernels round the product before a pass
    assert ((got.to(wanted.dtype) - wanted).abs() <= bound + underflow).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "dtype", (*FLOATS, *COMPLEX, torch.int8, torch.int32, torch.int64, torch.uint8), ids=str
)
def test_random_products(kind, dtype, device):
    if device == "cuda" and dtype in COMPLEX:
        pytest.skip("complex groups are multiplied on a CPU")
    for _ in range(8):
        a, b, ends = problem(kind, dtype)
        offs = None if ends is None else int32(ends)
        got = fastgemm.grouped_mm(a, b, offs)
        wide = torch.int32 if dtype in (torch.int8, torch.uint8) else dtype
        check(got, a, b, ends, wide)
        assert got.is_contiguous()


@pytest.mark.parametrize("kind", KINDS)
def test_levels_and_kernels(kind, device):
    a, b, ends = problem(kind, torch.float32, groups=5, m=9, n=12, k=20)
    offs = None if ends is None else int32(ends)
    rows = [
        row for row in fastgemm.kernels("gemm", device, torch.float32) if row.available and row.role == "rung"
    ]
    if device == "cpu":
        for row in rows:
            check(fastgemm.grouped_mm(a, b, offs, kernel=row.name), a, b, ends)
    for level in (1, 2, 3, 4, 5, 7):
        check(fastgemm.grouped_mm(a, b, offs, level=level), a, b, ends)
    half = a.bfloat16(), b.bfloat16()
    check(fastgemm.grouped_mm(*half, offs, out_dtype=torch.float32), *half, ends, torch.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_bias_and_activations(kind, dtype):
    for activation, of_groups in itertools.product((None, *ACTIVATIONS, "swiglu"), (False, True)):
        if kind == "columns" and (of_groups or activation == "swiglu"):
            continue
        a, b, ends = problem(kind, dtype, n=14)
        groups = a.shape[0] if ends is None else len(ends)
        bias = torch.randn((groups, 14) if of_groups else (14,)).to(dtype)
        offs = None if ends is None else int32(ends)
        got = fastgemm.grouped_mm(a, b, offs, bias=bias, activation=activation)
        check(got, a, b, ends, bias=bias, activation=activation)


def test_gathered_rows():
    a, b, _ = problem("rows", torch.float32, groups=4, m=9)
    rows = torch.randint(9, (23,))
    ends = random_ends(4, 23)
    for index in (rows, rows.int()):
        got = fastgemm.grouped_mm(a, b, int32(ends), rows=index)
        check(got, a[rows], b, ends)
    with pytest.raises(ValueError, match=f"rows is on meta, but a is on {a.device}"):
        fastgemm.grouped_mm(a, b, int32(ends), rows=rows.to("meta"))
    for wrong in (-1, 9, 2**31) if a.is_cpu else ():  # a GPU would be lost
        with pytest.raises(IndexError, match=r"fastgemm\.grouped_mm: rows has an index outside of 0 to 8"):
            fastgemm.grouped_mm(a, b, int32(ends), rows=torch.where(rows == rows[0], wrong, rows))
    for m, k in ((0, 4), (3, 0)) if a.is_cpu else ():
        with pytest.raises(IndexError, match=rf"fastgemm\.grouped_mm: rows has an index .* 0 to {m - 1}"):
            fastgemm.grouped_mm(torch.randn(m, k), torch.randn(2, k, 5), int32([0, 1]), rows=int32([3]))


def test_rows_of_other_groups_do_not_matter():
    """A NaN stays in the rows, columns or products of its group, and nothing beyond the last end is read."""
    ends = [4, 4, 9]
    a, b, _ = problem("rows", torch.float32, groups=3, m=12, n=5, k=6)
    a[4:] = torch.nan
    b[1] = torch.nan
    check(fastgemm.grouped_mm(a, b, int32(ends))[:4], a[:4], b[:1], [4])
    assert torch.equal(fastgemm.grouped_mm(a, b, int32(ends))[9:], torch.zeros(3, 5))
    a, b, _ = problem("columns", torch.float32, groups=3, m=5, n=12, k=6)
    b[:, :4], b[:, 9:] = torch.nan, torch.nan
    got = fastgemm.grouped_mm(a, b, int32(ends))
    check(got[:, 4:9], a[2:], b[:, 4:9], [5])
    assert torch.equal(got[:, 9:], torch.zeros(5, 3))
    a, b, _ = problem("k", torch.float32, m=5, n=7, k=12)
    a[:, 4:], b[9:] = torch.nan, torch.nan
    got = fastgemm.grouped_mm(a, b, int32(ends))
    check(got[:1], a[:, :4], b[:4], [4])
    assert torch.equal(got[1], torch.zeros(5, 7)) and got[2].isnan().all()


def test_empty_operands():
    for shapes, offs in (
        (((0, 4), (3, 4, 5)), [0, 0, 0]),
        (((6, 0), (2, 0, 5)), [2, 6]),
        (((6, 4), (0, 4, 5)), []),
        (((0, 4), (4, 5)), [1, 4]),
        (((6, 4), (4, 5)), []),
    ):
        a, b = (torch.randn(shape) for shape in shapes)
        got = fastgemm.grouped_mm(a, b, int32(offs))
        assert got.sum() == 0 and got.shape == (
            (6 if len(shapes[0]) == 2 and a.shape[0] else 0, 5)
            if b.dim() == 3
            else (len(offs), a.shape[0], 5)
        )


def test_invariant():
    """A row has the same bits as when it is alone in its group."""
    a, b = torch.randn(40, 70), torch.randn(3, 70, 33)
    whole = fastgemm.grouped_mm(a, b, int32([7, 21, 40]), invariant=True)
    for row, group in ((0, 0), (6, 0), (7, 1), (39, 2)):
        ends = [0] * group + [1] * (3 - group)
        alone = fastgemm.grouped_mm(a[row : row + 1], b, int32(ends), invariant=True)
        assert torch.equal(alone[0], whole[row])


def test_as_torch():
    """Results agree with torch's, except for rows that torch does not write."""
    if not hasattr(functional, "grouped_mm"):
        pytest.skip("this torch has no grouped_mm")
    a, b = torch.randn(24, 16).bfloat16(), torch.randn(3, 16, 32).bfloat16()
    offs = int32([5, 5, 20])
    torch.testing.assert_close(
        fastgemm.grouped_mm(a, b, offs)[:20], functional.grouped_mm(a, b, offs=offs)[:20]
    )


@pytest.mark.parametrize(
    ("shapes", "offs", "options", "text"),
    [
        (((6, 4), (2, 4, 5)), None, {}, "offs, the ends of the groups, must be given"),
        (((2, 6, 4), (2, 4, 5)), [1, 2], {}, "takes no offs"),
        (((6, 4), (2, 4, 5)), [1, 2, 6], {}, "has 2 matrices, expected 3"),
        (((6, 4), (2, 3, 5)), [1, 6], {}, "inner sizes differ"),
        (((6, 4, 1, 1), (2, 3, 5)), [1, 6], {}, "must have 2 or 3 dimensions"),
        (((6, 4), (2, 4, 5)), [1, 6], {"bias": (4,)}, "bias has shape"),
        (((6, 4), (2, 4, 5)), [1, 6], {"bias": (3, 5)}, "bias has shape"),
        (((2, 6, 4), (4, 5)), [1, 5], {"bias": (2, 5)}, "bias has shape"),
        (((6, 4), (2, 4, 5)), [1, 6], {"activation": "tanh"}, "unknown activation 'tanh'"),
        (((6, 4), (2, 4, 5)), [1, 6], {"activation": "swiglu"}, "is odd"),
        (((6, 4), (2, 4, 5)), [1, 6], {"level": 9}, "level must be 1 to 7"),
        (((6, 4), (2, 4, 5)), [0, 0], {"kernel": "none such"}, "none such"),
        (((6, 4), (2, 4, 5)), [1, 6], {"out_dtype": torch.float64}, "out_dtype"),
        (((6, 4), (2, 4, 5)), [1, 6], {"invariant": True, "level": 5}, "invariant"),
        (((6, 4), (4, 5)), [1, 4], {"rows": [0, 1]}, "rows are those of a matrix"),
    ],
)
def test_wrong_arguments(shapes, offs, options, text):
    a, b = (torch.randn(shape) for shape in shapes)
    if isinstance(options.get("bias"), tuple):
        options = {**options, "bias": torch.randn(options["bias"])}
    if "rows" in options:
        options = {**options, "rows": torch.tensor(options["rows"])}
    with pytest.raises(ValueError, match=text) as caught:
        fastgemm.grouped_mm(a, b, None if offs is None else int32(offs), **options)
    assert str(caught.value).startswith("fastgemm.grouped_mm: ")


@pytest.mark.parametrize("ends", ([3, 2, 6], [-1, 3, 6], [2, 3, 7], [0, 9, 6], [6, 6, -2147483648]))
@pytest.mark.parametrize("kind", ("rows", "columns", "k"))
def test_wrong_ends(kind, ends, device):
    """On a CPU they are errors. On a GPU the kernel reads nothing outside of the operands, which a sanitizer or a
    NaN would show."""
    a, b, _ = problem(kind, torch.float32, 3, 6, 6, 6)
    if device == "cpu":
        with pytest.raises(
            ValueError, match=r"offs must not be negative, not descend and not exceed 6; offs\[\d"
        ):
            fastgemm.grouped_mm(a, b, int32(ends))
    else:
        assert fastgemm.grouped_mm(a, b, int32(ends)).isfinite().all()


def test_wrong_types():
    a, b = torch.randn(6, 4), torch.randn(2, 4, 5)
    with pytest.raises(ValueError, match=r"offs has dtype torch.int64, expected torch.int32"):
        fastgemm.grouped_mm(a, b, torch.tensor([1, 6]))
    with pytest.raises(ValueError, match="dtype"):
        fastgemm.grouped_mm(a, b.double(), int32([1, 6]))
    with pytest.raises(TypeError, match="a must be a torch"):
        fastgemm.grouped_mm([1], b, int32([1, 6]))
    with pytest.raises(TypeError, match="offs must be a torch"):
        fastgemm.grouped_mm(a, b, [1, 6])
    with pytest.raises(ValueError, match="floating-point"):
        fastgemm.grouped_mm(a.int(), b.int(), int32([1, 6]), activation="relu")
    with pytest.raises(ValueError, match="device"):
        fastgemm.grouped_mm(a, b, int32([1, 6]).to("meta"))


@pytest.mark.parametrize("dtype", (torch.int64, torch.complex64), ids=str)
def test_swiglu_of_other_numbers(dtype):
    refusals = (
        r"^fastgemm\.grouped_mm: (an activation needs|groups of complex numbers are multiplied on a CPU)"
    )
    with pytest.raises((ValueError, RuntimeError), match=refusals):
        fastgemm.grouped_mm(
            torch.ones(5, 4, dtype=dtype),
            torch.ones(2, 4, 6, dtype=dtype),
            int32([2, 5]),
            activation="swiglu",
        )


def test_vmap_of_no_members():
    b, ends, none = torch.ones(2, 4, 5), int32([1, 3]), torch.ones(0, 3, 4)
    assert torch.vmap(lambda a: fastgemm.grouped_mm(a, b, ends))(none).shape == (0, 3, 5)
    assert torch.vmap(lambda a, i: fastgemm.grouped_mm(a, b, i))(none, ends.expand(0, 2)).shape == (0, 3, 5)
