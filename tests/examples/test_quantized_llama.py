"""Tests examples/quantized_llama.py at a small size."""

import json

import fastgemm
import pytest
import quantized_llama as example
from click.testing import CliRunner

QUICK = [
    *("--device", "cpu", "--layers", "1", "--width", "128", "--sequences", "2", "--context", "8"),
    *("--budget", "0.01", "--format", "int4"),
]

pytest.importorskip("transformers")


def test_formats_are_timed_and_held_against_float32(tmp_path):
    path = tmp_path / "llama.json"
    result = CliRunner().invoke(example.main, [*QUICK, "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "a token of 2 sequences after 8" in result.output
    plain, int4 = json.loads(path.read_text())["rows"]
    assert (plain["format"], int4["format"]) == ("bfloat16", "int4")
    assert plain["model_of_bfloat16"] == 1 and int4["layers_tokens_per_second"] > 0
    assert 0 < plain["logit_error"] < 0.02 < int4["logit_error"] < 0.5
    assert 0.25 < int4["of_bytes"] < 0.27 and 0.05 < int4["weight_error"] < 0.2


def test_a_wrong_product_is_said(monkeypatch):
    quantize = fastgemm.nn.quantize

    def negated(layer, given, out):
        return -out if isinstance(layer.weight, fastgemm.QuantizedWeight) else out

    def faulty(model, name):
        report = quantize(model, name)
        model.model.layers[0].mlp.down_proj.register_forward_hook(negated)
        return report

    monkeypatch.setattr(fastgemm.nn, "quantize", faulty)
    result = CliRunner().invoke(example.main, QUICK)
    assert result.exit_code == 1 and "int4: " in result.output


def test_usage():
    result = CliRunner().invoke(example.main, ["--width", "100"])
    assert result.exit_code == 2 and "no multiple of 128" in result.output
