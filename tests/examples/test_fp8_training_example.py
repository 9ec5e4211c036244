"""Tests examples/fp8_training.py at a small size."""

import json

import fastgemm
import fp8_training as example
import pytest
import torch
from click.testing import CliRunner

QUICK = ["--device", "cpu", "--layers", "1", "--tokens", "6", "--budget", "0.01"]

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(example.SIZES, "cpu", example.Sizes(1, 256, 2, 384, 64))


def test_recipes_are_timed_and_held_against_float32(tmp_path):
    path = tmp_path / "fp8.json"
    result = CliRunner().invoke(example.main, [*QUICK, "--json", str(path)])
    assert result.exit_code == 0, result.output
    plain, *others = json.loads(path.read_text())["rows"]
    assert [row["layers"] for row in (plain, *others)] == [example.BASELINE, "row", "1x128"]
    for row in others:
        assert 0 < plain["error"] < 0.02 < row["error"] < 0.2
        assert row["microseconds"] > 0 and row["of_bfloat16"] > 0


@pytest.mark.parametrize("recipe", example.OF_WEIGHTS)
def test_all_three_products(recipe):
    x, w, grad = (torch.randn(*shape) for shape in ((150, 200), (140, 200), (150, 140)))
    x.requires_grad_(), w.requires_grad_()
    y = example.Product.apply(x, w, recipe)
    y.backward(grad)
    for got, wanted in ((y, x @ w.T), (x.grad, grad @ w), (w.grad, grad.T @ x)):
        assert 0.01 < (got - wanted).norm() / wanted.norm() < 0.06


def test_a_wrong_gradient_is_said(monkeypatch):
    quantize = fastgemm.quantize_fp8

    def faulty(x, recipe, **options):
        codes, scale, codes_t, scale_t = quantize(x, recipe, **options)
        return codes, scale, codes_t.view(torch.uint8).flip(0).view(codes_t.dtype), scale_t

    monkeypatch.setattr(fastgemm, "quantize_fp8", faulty)
    result = CliRunner().invoke(example.main, [*QUICK, "--recipe", "row"])
    assert result.exit_code == 1 and "row: " in result.output
