"""Tests examples/fp8.py at a small size."""

import json

import fastgemm
import fp8 as example
import pytest
import torch
from click.testing import CliRunner

QUICK = ["--device", "cpu", "--layers", "1", "--width", "256", "--tokens", "6", "--budget", "0.01"]

pytest.importorskip("transformers")


def test_recipes_are_timed_and_held_against_float32(tmp_path):
    path = tmp_path / "fp8.json"
    result = CliRunner().invoke(example.main, [*QUICK, "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "a forward pass of 6 tokens" in result.output and "fp8, 1x128" in result.output
    plain, *others = json.loads(path.read_text())["rows"]
    assert plain["layers"] == "bfloat16" and plain["of_bfloat16"] == 1
    assert [row["layers"] for row in others] == list(example.RECIPES)
    for row in others:
        assert 0 < plain["error"] < 0.01 < row["error"] < 0.2
        assert row["microseconds"] > 0 and 0.02 < row["product_error"] < 0.06
        assert 0.5 < row["of_bytes"] < 0.51


@pytest.mark.parametrize("recipe", example.RECIPES)
def test_rounding_alone(recipe):
    x = torch.randn(5, 200)
    codes, scale = fastgemm.quantize_fp8(x, recipe)
    eye, one = torch.eye(200).to(codes.dtype), torch.tensor(1.0)
    product = fastgemm.scaled_mm(codes, eye, scale, one, out_dtype=torch.float32)
    torch.testing.assert_close(example.rounded(x, recipe), product)


def test_a_wrong_product_is_said(monkeypatch):
    quantize = fastgemm.nn.quantize

    def negated(layer, given, out):
        return -out if isinstance(layer.weight, fastgemm.QuantizedWeight) else out

    def faulty(model, name, **options):
        report = quantize(model, name, **options)
        model.layers[0].mlp.down_proj.register_forward_hook(negated)
        return report

    monkeypatch.setattr(fastgemm.nn, "quantize", faulty)
    result = CliRunner().invoke(example.main, [*QUICK, "--recipe", "row"])
    assert result.exit_code == 1 and "row: " in result.output


def test_usage():
    result = CliRunner().invoke(example.main, ["--width", "100"])
    assert result.exit_code == 2 and "no multiple of 128" in result.output
