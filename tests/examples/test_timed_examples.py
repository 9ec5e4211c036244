"""Tests the examples that time ways of one computation and compare their results, at small sizes."""

import json

import fastgemm
import fp8
import fp8_training
import moe
import newton_schulz
import pytest
import quantized_llama
import torch
from click.testing import CliRunner
from pages import ROOT, snippets

ONE_LAYER = ["--device", "cpu", "--layers", "1", "--budget", "0.01"]
QUICK = {
    fp8: [*ONE_LAYER, "--width", "256", "--tokens", "6"],
    fp8_training: [*ONE_LAYER, "--tokens", "6"],
    moe: [*ONE_LAYER, "--tokens", "4", "--dtype", "float32"],
    newton_schulz: ["--device", "cpu", "--budget", "0.01", "--no-compile", "--shape", "40x24"],
    quantized_llama: [
        *(*ONE_LAYER, "--width", "128", "--sequences", "2", "--context", "8", "--format", "int4"),
    ],
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(fp8_training.SIZES, "cpu", fp8_training.Sizes(1, 256, 2, 384, 64))


def needs(example):
    if example in (fp8, fp8_training, quantized_llama):
        pytest.importorskip("transformers")
    if example is moe and not hasattr(torch.nn.functional, "grouped_mm"):
        pytest.skip("this torch has no grouped_mm")


@pytest.fixture
def rows(tmp_path):
    """Runs an example. Returns the rows of its report, and its output."""

    def run(example):
        needs(example)
        path = tmp_path / "report.json"
        result = CliRunner().invoke(example.main, [*QUICK[example], "--json", str(path)])
        assert result.exit_code == 0, result.output
        return json.loads(path.read_text())["rows"], result.output

    return run


def test_fp8(rows):
    (plain, *others), output = rows(fp8)
    assert "a forward pass of 6 tokens" in output and "fp8, 1x128" in output
    assert plain["layers"] == "bfloat16" and plain["of_bfloat16"] == 1
    assert [row["layers"] for row in others] == list(fp8.RECIPES)
    for row in others:
        assert 0 < plain["error"] < 0.01 < row["error"] < 0.2
        assert row["microseconds"] > 0 and 0.02 < row["product_error"] < 0.06
        assert 0.5 < row["of_bytes"] < 0.51


def test_fp8_training(rows):
    (plain, *others), _ = rows(fp8_training)
    assert [row["layers"] for row in (plain, *others)] == [fp8_training.BASELINE, "row", "1x128"]
    for row in others:
        assert 0 < plain["error"] < 0.02 < row["error"] < 0.2
        assert row["microseconds"] > 0 and row["of_bfloat16"] > 0


def test_quantized_llama(rows):
    (plain, int4), output = rows(quantized_llama)
    assert "a token of 2 sequences after 8" in output
    assert (plain["format"], int4["format"]) == ("bfloat16", "int4")
    assert plain["model_of_bfloat16"] == 1 and int4["layers_tokens_per_second"] > 0
    assert 0 < plain["logit_error"] < 0.02 < int4["logit_error"] < 0.5
    assert 0.25 < int4["of_bytes"] < 0.27 and 0.05 < int4["weight_error"] < 0.2


def test_newton_schulz(rows):
    (row,), output = rows(newton_schulz)
    assert "24x40" in output
    assert row["shape"] == [24, 40] and set(row["ways"]) == {"torch", "fastgemm"}
    assert 0 < row["ways"]["fastgemm"]["error"] < 1e-5


def test_moe(rows):
    found, _ = rows(moe)
    assert [(row["step"], row["way"]) for row in found] == [
        (step, way) for step in moe.STEPS for way in (moe.TORCH, moe.PATCH, moe.MOE)
    ]
    assert all(0 < row["error"] < 1e-5 and row["tokens_per_second"] > 0 for row in found)


def negated(layer, given, out):
    return -out if isinstance(layer.weight, fastgemm.QuantizedWeight) else out


def quantize_wrongly(model, *given, quantize=fastgemm.nn.quantize, **options):
    report = quantize(model, *given, **options)
    getattr(model, "model", model).layers[0].mlp.down_proj.register_forward_hook(negated)
    return report


def turned(x, recipe, quantize=fastgemm.quantize_fp8, **options):
    codes, scale, codes_t, scale_t = quantize(x, recipe, **options)
    return codes, scale, codes_t.view(torch.uint8).flip(0).view(codes_t.dtype), scale_t


# What is replaced in a module, and what the example must say.
FAULTS = {
    fp8: (fastgemm.nn, "quantize", quantize_wrongly, "row: "),
    fp8_training: (fastgemm, "quantize_fp8", turned, "row: "),
    quantized_llama: (fastgemm.nn, "quantize", quantize_wrongly, "int4: "),
    newton_schulz: (
        newton_schulz,
        "by_fastgemm",
        lambda x: newton_schulz.by_torch(x) + 0.01,
        "errs more than",
    ),
    moe: (fastgemm, "moe", lambda *given, right=fastgemm.moe: 1.01 * right(*given), "prefill, moe: "),
}


@pytest.mark.parametrize("example", FAULTS, ids=lambda example: example.__name__)
def test_a_wrong_result_is_said(example, monkeypatch):
    needs(example)
    module, name, faulty, said = FAULTS[example]
    monkeypatch.setattr(module, name, faulty)
    options = ["--recipe", "row"] if said == "row: " else []
    result = CliRunner().invoke(example.main, [*QUICK[example], *options])
    assert result.exit_code == 1 and said in result.output


def quantize_to_nan(model, *given, quantize=fastgemm.nn.quantize, **options):
    report = quantize(model, *given, **options)
    model.lm_head.register_forward_hook(lambda layer, given, out: out * torch.nan)
    return report


NOT_A_NUMBER = {
    quantized_llama: (fastgemm.nn, "quantize", quantize_to_nan, "int4: nan"),
    newton_schulz: (
        newton_schulz,
        "by_fastgemm",
        lambda x: newton_schulz.by_torch(x) * torch.nan,
        "errs more than",
    ),
    moe: (fastgemm, "moe", lambda *given, right=fastgemm.moe: right(*given) * torch.nan, "prefill, moe: nan"),
}


@pytest.mark.parametrize("example", NOT_A_NUMBER, ids=lambda example: example.__name__)
def test_a_result_that_is_not_a_number_is_said(example, monkeypatch):
    needs(example)
    module, name, faulty, said = NOT_A_NUMBER[example]
    monkeypatch.setattr(module, name, faulty)
    result = CliRunner().invoke(example.main, QUICK[example])
    assert result.exit_code == 1 and said in result.output, result.output


@pytest.mark.parametrize(
    ("example", "option", "value", "said"),
    [
        (fp8, "--width", "100", "no multiple of 128"),
        (quantized_llama, "--width", "100", "no multiple of 128"),
        (newton_schulz, "--shape", "wide", "is no list of positive sizes"),
        (newton_schulz, "--shape", "0x4", "is no list of positive sizes"),
        (newton_schulz, "--shape", "4x4x4", "write 4096x11008"),
        *((example, "--budget", "0", "not in the range x>0") for example in QUICK),
        *((example, "--json", "/nonexistent/x", "does not exist") for example in QUICK),
        *((example, "--device", "cuda", "torch sees no CUDA device") for example in QUICK),
    ],
    ids=str,
)
def test_usage(example, option, value, said, monkeypatch):
    needs(example)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(example.main, [option, value])
    assert result.exit_code == 2 and said in result.output


def test_json_on_stdout_is_only_json():
    result = CliRunner().invoke(newton_schulz.main, [*QUICK[newton_schulz], "--json", "-"])
    assert result.exit_code == 0 and json.loads(result.stdout)["rows"]


# Parts of the examples


@pytest.mark.parametrize("recipe", fp8.RECIPES)
def test_rounding_alone(recipe):
    x = torch.randn(5, 200)
    codes, scale = fastgemm.quantize_fp8(x, recipe)
    eye, one = torch.eye(200).to(codes.dtype), torch.tensor(1.0)
    product = fastgemm.scaled_mm(codes, eye, scale, one, out_dtype=torch.float32)
    torch.testing.assert_close(fp8.rounded(x, recipe), product)


@pytest.mark.parametrize("recipe", fp8_training.OF_WEIGHTS)
def test_all_three_products_of_training(recipe):
    x, w, grad = (torch.randn(*shape) for shape in ((150, 200), (140, 200), (150, 140)))
    x.requires_grad_(), w.requires_grad_()
    y = fp8_training.Product.apply(x, w, recipe)
    y.backward(grad)
    for got, wanted in ((y, x @ w.T), (x.grad, grad @ w), (w.grad, grad.T @ x)):
        assert 0.01 < (got - wanted).norm() / wanted.norm() < 0.06


def test_singular_values_come_near_1():
    torch.manual_seed(0)
    values = torch.linalg.svdvals(newton_schulz.by_fastgemm(torch.randn(64, 128)))
    assert values.min() > 0.6 and values.max() < 1.3


def test_the_snippets_about_groups():
    needs(moe)
    blocks = snippets((ROOT / "docs" / "grouped.md").read_text("utf-8"))
    assert len(blocks) >= 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)  # each snippet continues the one before
