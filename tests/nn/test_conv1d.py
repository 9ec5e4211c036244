"""Tests GPT-2's layers, transformers' Conv1D, with and without conversion."""

import copy

import fastgemm
import pytest
import torch
from fastgemm import nn
from reference import assert_right, every_device, expected_gemm, kernels_that_ran


@pytest.fixture
def conv1d(monkeypatch):
    """transformers' class. fastgemm's class for it is made again in each test."""
    monkeypatch.delitem(vars(nn), "Conv1D", raising=False)
    yield pytest.importorskip("transformers.pytorch_utils").Conv1D
    vars(nn).pop("Conv1D", None)


@every_device
@pytest.mark.parametrize("shape", [(7, 24), (2, 5, 24), (24,), (0, 24)], ids=str)
def test_values_and_gradients(conv1d, shape):
    layer = conv1d(40, 24)
    torch.nn.init.normal_(layer.weight)
    own = nn.convert(copy.deepcopy(layer))
    assert type(own) is nn.Conv1D and isinstance(own, conv1d)
    x = torch.randn(shape, requires_grad=True)
    out, expected = own(x), layer(x)
    rows = x.detach().reshape(-1, 24)
    assert out.shape == expected.shape
    exact = expected_gemm(rows, layer.weight.detach(), layer.bias.detach().expand(len(rows), 40))
    assert_right(out.detach().reshape(-1, 40), exact)
    gradient = torch.randn_like(out)
    for g, e in zip(
        torch.autograd.grad(out, (x, own.weight, own.bias), gradient),
        torch.autograd.grad(expected, (x, layer.weight, layer.bias), gradient),
        strict=True,
    ):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)


def test_a_choice_holds_and_can_be_undone(conv1d):
    model = torch.nn.Sequential(conv1d(40, 24), torch.nn.Linear(40, 8), conv1d(5, 8))
    nn.convert(model, level=2, only=lambda name, layer: name != "2")
    assert [type(layer) for layer in model] == [nn.Conv1D, nn.Linear, conv1d]
    assert kernels_that_ran(lambda: model[0](torch.randn(3, 24))) == ["blocked"]
    nn.revert(model)
    assert [type(layer) for layer in model] == [conv1d, torch.nn.Linear, conv1d]
    assert "level" not in vars(model[0])


def test_what_is_no_such_layer_is_left_alone():
    class Conv1D(torch.nn.Module):
        pass

    layer = Conv1D()
    assert type(nn.convert(layer)) is Conv1D
    with pytest.raises(AttributeError, match="Conv2D"):
        _ = fastgemm.nn.Conv2D


@pytest.mark.parametrize("shape", [(2, 3, 0), (2, 0, 0), (0,)], ids=str)
@pytest.mark.parametrize("kind", [{"device": "meta"}, {"dtype": torch.int16}], ids=str)
def test_products_of_torch_have_an_empty_sum_too(shape, kind):
    out = nn.conv1d(torch.ones(shape, **kind), torch.ones(0, 5, **kind))
    assert out.shape == (*shape[:-1], 5) and not out._is_view()
    assert out.is_meta or not out.any()
