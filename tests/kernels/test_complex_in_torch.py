"""Tests gradients, compilation and vmap of complex products."""

import fastgemm
import pytest
import torch
from reference import every_device, row_id
from test_complex import COMPLEX_PARTS, OWN, VIEWS, assert_right, operands, random_complex, wide

VIEWS_OF_TERMS = {"plain": lambda t: t, "conjugated": torch.conj}


@pytest.mark.parametrize("views", [("plain", "plain"), ("conjugated", "conjugate transpose")])
@pytest.mark.parametrize("choice", [{"level": OWN}, {"kernel": "torch"}], ids=str)
def test_gradients(views, choice):
    given = operands(4, 6, 5, torch.complex128, 2)
    a, b, c = (x.requires_grad_() for x in (given[0], given[1], given[2][0]))
    view_a, view_b = (VIEWS[view] for view in views)

    def product(a, b, c):
        return fastgemm.gemm(view_a(a), view_b(b), c, alpha=2.0, beta=0.5, **choice)

    assert torch.autograd.gradcheck(product, (a, b, c), check_forward_ad=True)
    if "level" in choice:
        assert torch.autograd.gradgradcheck(product, (a, b, c))


def test_gradients_of_sums_and_transposes():
    a, b = (random_complex(3, 4, dtype=torch.complex128).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: fastgemm.add(a, b.conj(), alpha=2.0), (a, b))
    assert torch.autograd.gradcheck(lambda a: fastgemm.transpose(a.conj()), (a,))


def test_compiled():
    a = random_complex(6, 5, dtype=torch.complex64).requires_grad_()
    b = random_complex(7, 5, dtype=torch.complex64).requires_grad_()
    compiled = torch.compile(lambda a, b: fastgemm.matmul(a, b.mH), fullgraph=True, backend="aot_eager")
    result = compiled(a, b)
    assert torch.equal(result, fastgemm.matmul(a, b.mH))
    found = torch.autograd.grad(result.abs().sum(), (a, b))
    expected = torch.autograd.grad((a @ b.mH).abs().sum(), (a, b))
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y)


def test_vmap():
    a, b = random_complex(4, 3, 5, dtype=torch.complex64), random_complex(4, 5, 2, dtype=torch.complex64)
    assert_right(torch.func.vmap(fastgemm.matmul)(a, b), a, b)


@pytest.mark.parametrize("dtype", (torch.complex64, torch.complex128), ids=str)
def test_empty_batches_of_one_number(dtype):
    """A batch of stride 0 may be empty, as the gradient of a sum is. Then there is no matrix to read."""
    one, a, b = (
        torch.zeros((), dtype=dtype),
        torch.zeros(0, 3, 7, dtype=dtype),
        torch.zeros(7, 5, dtype=dtype),
    )
    results = [
        fastgemm.matmul(one.expand(0, 3, 7), b),
        fastgemm.matmul(a, b[None].expand(0, 7, 5)),
        fastgemm.gemm(a, b, one.expand(0, 3, 5)),
        fastgemm.grouped_mm(one.expand(0, 3, 7), b[None].expand(0, 7, 5)),
    ]
    assert all(result.shape == (0, 3, 5) for result in results)
    leaf = a.clone().requires_grad_()
    fastgemm.matmul(leaf, b).sum().abs().backward()
    assert leaf.grad.shape == a.shape


def test_a_layer_with_bias_and_residual():
    x, w, bias = (random_complex(*shape, dtype=torch.complex64) for shape in ((4, 5), (3, 5), (3,)))
    residual = random_complex(4, 3, dtype=torch.complex64)
    torch.testing.assert_close(fastgemm.linear(x, w, bias, residual=residual), x @ w.mT + bias + residual)
    for wrong, text in (
        ({"residual": residual, "activation": "relu"}, "takes no activation"),
        ({"residual": residual, "out_dtype": torch.float32}, "out_dtype"),
        ({"residual": residual[0]}, "residual has shape"),
        ({"residual": residual.real}, "residual has shape"),
    ):
        with pytest.raises(ValueError, match=f"^fastgemm.linear: .*{text}"):
            fastgemm.linear(x, w, bias, **wrong)


@pytest.mark.parametrize("of_terms", VIEWS_OF_TERMS)
@pytest.mark.parametrize("dtype", COMPLEX_PARTS, ids=row_id)
@every_device
def test_a_layer_with_bias_and_residual_rounds_once(device, dtype, of_terms):
    """Near the product, 2048 + 2048 i, complex32 has even numbers only: with 1 alone it is rounded down."""
    view = VIEWS_OF_TERMS[of_terms]
    x, w = (
        torch.full((3, 2), 32 + 32j, device=device).to(dtype),
        torch.full((5, 2), 32, device=device).to(dtype),
    )
    bias, residual = (view(torch.full(shape, 1 + 1j, device=device).to(dtype)) for shape in ((5,), (3, 5)))
    expected = 2048 + 2048j + 2 * bias[0].item()
    for choice in {}, {"level": 1}, {"level": OWN}:
        for found in (
            fastgemm.linear(x, w, bias, residual=residual, **choice),
            fastgemm.linear(x[None], w, bias, residual=residual[None], **choice)[0],
            torch.ops.fastgemm.linear(x, w, bias, residual, **choice),
        ):
            assert wide(found).eq(expected).all()


def test_gradients_of_a_layer_with_bias_and_residual():
    given = [random_complex(*shape, dtype=torch.complex128) for shape in ((4, 5), (3, 5), (3,), (4, 3))]
    inputs = [x.requires_grad_() for x in given]
    layer = torch.ops.fastgemm.linear.default
    assert torch.autograd.gradcheck(layer, inputs, check_forward_ad=True, fast_mode=True)
