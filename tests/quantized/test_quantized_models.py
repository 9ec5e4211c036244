"""Tests fastgemm.nn.quantize and fastgemm.nn.load_quantized."""

import copy
import io
import json
import logging
import math

import fastgemm
import layouts
import pytest
import torch
from fastgemm.quantized import QuantizedWeight, quantize_weight
from torch import nn

WIDTH, INNER, VOCABULARY, LAYERS = 128, 192, 61, 2


def mlp(dtype=torch.float32):
    return nn.Sequential(
        nn.Linear(96, 64, dtype=dtype), nn.GELU(), nn.Linear(64, 40, bias=False, dtype=dtype)
    )


def dequantized(model):
    """The same model with ordinary weights."""
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and isinstance(layer.weight, QuantizedWeight):
            layer.weight = nn.Parameter(layer.weight.dequantize())
    return model


def assert_close(own, expected):
    """Products of float32 in another order of their sums."""
    assert (own - expected).abs().max() <= 1e-5 * expected.abs().max()


# quantize


@pytest.mark.parametrize(
    "format, options",
    [
        ("int4", {"group_size": 32, "zero_points": True}),
        ("int8", {}),
        ("fp8", {"granularity": "128x128"}),
        ("nf4", {}),
        ("mxfp4", {}),
        ("nvfp4", {}),
    ],
)
def test_the_report_and_the_model(format, options):
    model, x = mlp(), torch.randn(5, 96)
    before = copy.deepcopy(model)
    report = fastgemm.nn.quantize(model, format, **options)
    assert [(layer.name, layer.shape) for layer in report] == [("0", (64, 96)), ("2", (40, 64))]
    for entry in report:
        layer, exact = model[int(entry.name)], before[int(entry.name)].weight.detach()
        assert isinstance(layer.weight, nn.Parameter) and not layer.weight.requires_grad
        q = quantize_weight(exact, format, **options)
        assert torch.equal(layer.weight.dequantize(), q.dequantize())
        assert (entry.format, entry.bytes_before, entry.bytes_after) == (format, exact.nbytes, q.nbytes)
        expected = (q.dequantize() - exact).double().norm() / exact.double().norm()
        assert 1e-3 < entry.error == pytest.approx(float(expected), rel=1e-4)
    assert report.bytes_after < report.bytes_before / 3 and report.error == max(e.error for e in report)
    lines = str(report).splitlines()
    assert len(lines) == 4 and lines[1].split()[:4] == ["0", "64", "x", "96"] and "at most" in lines[-1]
    assert model[0].bias is not None and torch.equal(model[0].bias, before[0].bias)
    assert_close(model(x), dequantized(model)(x))


def test_state_dicts():
    model, x = mlp(torch.bfloat16), torch.randn(3, 96, dtype=torch.bfloat16)
    fastgemm.nn.quantize(model, "int4")
    expected, file = model(x), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    alike, plain = mlp(torch.bfloat16), mlp(torch.bfloat16)
    fastgemm.nn.quantize(alike, "int4")
    alike.load_state_dict(state)
    plain.requires_grad_(False).load_state_dict(state, assign=True)
    for other in (alike, plain, copy.deepcopy(model)):
        assert isinstance(other[2].weight, QuantizedWeight) and torch.equal(other(x), expected)


def test_what_is_left(caplog):
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(40, 64),
            "tied": nn.Linear(64, 40, bias=False),
            "own": Own(64, 8),
            "of_float64": nn.Linear(64, 8, dtype=torch.float64),
            "attention": nn.MultiheadAttention(64, 2),
            "skipped": nn.Linear(64, 8),
            "block": nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 64)),
            "once": nn.Linear(64, 48),
            "again": nn.Linear(64, 48),
            "fastgemm": fastgemm.nn.Linear(64, 8, activation="relu"),
            "normed": nn.utils.spectral_norm(nn.Linear(64, 8)),
        }
    )
    model["tied"].weight = model["embedding"].weight
    model["again"].weight = model["once"].weight
    with caplog.at_level(logging.WARNING, logger="fastgemm.nn"):
        report = fastgemm.nn.quantize(model, "int8", skip=("skipped", "block.1", "absent"))
    assert [(layer.name, layer.shared) for layer in report] == [
        ("block.0", ()),
        ("once", ("again",)),
        ("fastgemm", ()),
    ]
    assert model["once"].weight is model["again"].weight
    assert model["tied"].weight is model["embedding"].weight
    for name, reason in (
        ("tied", "its weight is embedding.weight, too"),
        ("own", "may have a forward of its own"),
        ("of_float64", "has a weight of torch.float64"),
        ("attention.out_proj", "is not called by torch.nn.MultiheadAttention"),
        ("normed", "computes its weight from other parameters"),
        ("absent", "no module has this name"),
    ):
        assert any(f" {name}: " in line and reason in line for line in caplog.messages), name
    assert not any("skipped" in line or "block" in line for line in caplog.messages)
    x = torch.randn(3, 64)
    assert_close(model["fastgemm"](x), dequantized(model)["fastgemm"](x))
    caplog.clear()
    assert not fastgemm.nn.quantize(model, skip=("skipped", "block.1", "lm_head"))
    assert any("once, again, fastgemm: left alone: it is quantized" in line for line in caplog.messages)


def test_quantize_refuses_before_it_changes():
    model = mlp()
    for wrong, error in (
        ({"format": "int3"}, ValueError),
        ({"format": "mxfp4", "granularity": "channel"}, ValueError),
        ({"skip": "lm_head"}, TypeError),
    ):
        with pytest.raises(error):
            fastgemm.nn.quantize(model, **wrong)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        fastgemm.nn.quantize(model[0].weight)
    assert not any(isinstance(p, QuantizedWeight) for p in model.parameters())
    with torch.device("meta"):
        report = fastgemm.nn.quantize(mlp())
    assert math.isnan(report.error) and "nan" in str(report)


def test_adapters_train():
    peft = pytest.importorskip("peft")

    def adapted(model):
        torch.manual_seed(0)
        options = peft.LoraConfig(target_modules=["0", "2"], init_lora_weights=False, r=4)
        return peft.get_peft_model(model, options)

    model, x = mlp(), torch.randn(5, 96)
    fastgemm.nn.quantize(model, "nf4")
    own, expected = adapted(copy.deepcopy(model)), adapted(dequantized(model))
    for each in (own, expected):
        each(x).square().sum().backward()
    gradients = {name: p.grad for name, p in own.named_parameters() if p.requires_grad}
    assert len(gradients) == 4
    for name, parameter in expected.named_parameters():
        if name in gradients:
            assert_close(gradients[name], parameter.grad)


# load_quantized


@pytest.fixture
def llama():
    """Makes tiny Llamas with random weights."""
    transformers = pytest.importorskip("transformers")

    def make(tied=False):
        config = transformers.LlamaConfig(
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=VOCABULARY,
            tie_word_embeddings=tied,
        )
        return transformers.AutoModelForCausalLM.from_config(config).eval()

    return make


def packed_nvfp4(n, k):
    codes, scales, weight = layouts.nvfp4(n, k, 2.0**-14)
    tensors = {"weight_packed": codes, "weight_scale": scales, "weight_global_scale": torch.tensor([2.0**14])}
    return tensors | {"input_global_scale": torch.ones(1)}, weight


def modelopt(n, k):
    codes, scales, weight = layouts.nvfp4(n, k, 2.0**-14)
    return {"weight": codes, "weight_scale": scales, "weight_scale_2": torch.tensor(2.0**-14)}, weight


def one_scale(n, k):
    tensors, weight = layouts.fp8(n, k, (n, k), name="weight_scale")
    return {"weight": tensors["weight"], "weight_scale": tensors["weight_scale"].squeeze()}, weight


def shuffled_gptq(n, k):
    return layouts.gptq(n, k, g_idx=(torch.arange(k) // 32)[torch.randperm(k)])


def group(**weights):
    return {"group_0": {"targets": ["Linear"], "weights": weights}}


OF_INT4 = group(num_bits=4, type="int", symmetric=False, strategy="group", group_size=32)
OF_NVFP4 = group(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16)
CHECKPOINTS = {
    "gptq": (layouts.gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32}),
    "act-order": (shuffled_gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}),
    "awq": (layouts.awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}),
    "pack-quantized": (
        layouts.packed,
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": OF_INT4},
    ),
    "nvfp4": (
        packed_nvfp4,
        {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": OF_NVFP4},
    ),
    "fp8": (layouts.fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "nf4": (
        layouts.nf4,
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    ),
    "mxfp4": (layouts.mxfp4, {"quant_method": "mxfp4"}),
    "modelopt": (modelopt, {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    "modelopt-fp8": (one_scale, {"quant_method": "modelopt", "quant_algo": "FP8"}),
}


def write(folder, model, draw, quantization, shards=1, change=lambda tensors: None):
    """Writes a checkpoint with random weights for all layers except the head, and puts the same weights into the
    model."""
    from safetensors.torch import save_file

    tensors = {name: x for name, x in model.state_dict().items() if name != "lm_head.weight"}
    if not model.config.tie_word_embeddings:
        tensors["lm_head.weight"] = model.lm_head.weight.detach()
    for name, layer in model.model.named_modules(prefix="model"):
        if isinstance(layer, nn.Linear):
            del tensors[f"{name}.weight"]
            stored, weight = draw(*layer.weight.shape)
            tensors |= {f"{name}.{key}": x for key, x in stored.items()}
            layer.weight = nn.Parameter(weight)
    change(tensors)
    config = {**model.config.to_dict(), "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: x.contiguous() for name, x in tensors.items()}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    files = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(files.values()):
        save_file({name: x for name, x in tensors.items() if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def empty(model):
    import transformers

    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(model.config).eval()


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_logits_are_those_of_the_dequantized_model(kind, llama, tmp_path):
    tied = kind in ("awq", "fp8")
    model = llama(tied)
    write(tmp_path, model, *CHECKPOINTS[kind], shards=2 if kind == "gptq" else 1)
    loaded = empty(model)
    assert fastgemm.nn.load_quantized(loaded, tmp_path) is loaded
    layers = [x for name, x in loaded.named_modules() if isinstance(x, nn.Linear) and name != "lm_head"]
    assert len(layers) == 7 * LAYERS
    assert all(isinstance(x.weight, QuantizedWeight) and x.weight.dtype == torch.float32 for x in layers)
    assert (layers[0].weight.order is not None) == (kind == "act-order")
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied
    assert not any(x.is_meta for x in (*loaded.parameters(), *loaded.buffers()))
    tokens = torch.randint(VOCABULARY, (2, 7))
    with torch.no_grad():
        assert_close(loaded(tokens).logits, model(tokens).logits)


def test_experts_are_dequantized(tmp_path, caplog):
    from safetensors.torch import save_file

    drawn = [layouts.mxfp4(32, 64) for _ in range(3)]
    stored = {
        f"experts_{end}": torch.stack([tensors[f"weight_{end}"] for tensors, _ in drawn])
        for end in ("blocks", "scales")
    }
    save_file(stored, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "mxfp4"}}))
    model = nn.Module()
    model.experts = nn.Parameter(torch.empty(3, 64, 32, device="meta", dtype=torch.bfloat16))
    fastgemm.nn.load_quantized(model, tmp_path)
    assert torch.equal(model.experts, torch.stack([weight.mT for _, weight in drawn]).bfloat16())
    assert "experts: dequantized" in caplog.text


def test_what_load_quantized_refuses(llama, tmp_path):
    model = llama()
    draw, config = CHECKPOINTS["gptq"]

    def attempt(message, error=ValueError, change=lambda tensors: None, **changes):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        write(folder, model, draw, {**config, **changes}, change=change)
        with pytest.raises(error, match=message):
            fastgemm.nn.load_quantized(empty(model), folder)

    attempt("quant_method 'quark' is not taken; accepted: gptq, awq", quant_method="quark")
    attempt("bits 3 of quantization_config", bits=3)
    attempt("checkpoint_format 'marlin'", checkpoint_format="marlin")
    attempt("version 'gemv'", quant_method="awq", version="gemv")
    attempt("format 'marlin-24'", quant_method="compressed-tensors", format="marlin-24")
    attempt("bnb_4bit_quant_type 'fp4'", quant_method="bitsandbytes", load_in_4bit=True)
    attempt("tensors that the model does not have: .*down_proj.qweight", quant_method="fp8")
    name = "model.layers.1.mlp.up_proj"
    attempt(f"does not have: {name}.lut", change=lambda t: t.update({f"{name}.lut": torch.ones(1)}))
    attempt("no file has: model.norm.weight", change=lambda t: t.pop("model.norm.weight"))
    attempt(f"{name}: there is no qzeros", change=lambda t: t.pop(f"{name}.qzeros"))
    attempt(f"does not have: {name}.bias", change=lambda t: t.update({f"{name}.bias": torch.ones(INNER)}))
    attempt(
        f"{name}.weight is",
        change=lambda t: t.update({f"{name}.{x}": y for x, y in draw(64, WIDTH)[0].items()}),
    )
    attempt("model.norm.weight is", change=lambda t: t.update({"model.norm.weight": torch.ones(3)}))
    eight = {"lm_head.weight": torch.ones(VOCABULARY, WIDTH, dtype=torch.int8)}
    attempt("lm_head.weight has numbers of torch.int8", change=lambda t: t.update(eight))
    (tmp_path / "0" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="no quantization_config"):
        fastgemm.nn.load_quantized(empty(model), tmp_path / "0")
    with pytest.raises(FileNotFoundError):
        fastgemm.nn.load_quantized(empty(model), tmp_path / "absent")


def test_tensors_that_a_model_does_not_need(llama, tmp_path):
    """Files of older versions have biases of zeros, and tensors that models compute from their config."""
    model = llama()
    more = {"mlp.up_proj.bias": torch.zeros(INNER), "self_attn.rotary_emb.inv_freq": torch.ones(16)}
    more = {f"model.layers.0.{name}": x for name, x in more.items()}
    write(tmp_path, model, *CHECKPOINTS["gptq"], change=lambda tensors: tensors.update(more))
    loaded = fastgemm.nn.load_quantized(empty(model), tmp_path)
    assert loaded.model.layers[0].mlp.up_proj.bias is None


class Rotary(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.register_buffer("angles", torch.arange(4.0), persistent=False)


def test_modules_with_several_names_and_files_with_more_than_the_index_says(tmp_path):
    from safetensors.torch import save_file

    draw, quantization = CHECKPOINTS["gptq"]
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    index, (stored, weight), old = tmp_path / "model.safetensors.index.json", draw(32, 64), draw(32, 64)[0]
    for name in "ab":  # under either name
        tensors, more = ({f"{name}.{key}": x for key, x in of.items()} for of in (stored, old))
        save_file(tensors, tmp_path / "1")
        more.pop(f"{name}.scales")  # which the index does not name, but the first file has
        save_file({**more, "head.weight": torch.ones(8, 32)}, tmp_path / "2")
        places = {**dict.fromkeys(more, "1"), "head.weight": "2"}
        index.write_text(json.dumps({"weight_map": places}))
        with torch.device("meta"):
            linear, head, rotary = nn.Linear(64, 32, bias=False), nn.Linear(32, 8, bias=False), Rotary({})
        model = nn.ModuleDict(
            {"a": linear, "b": linear, "c": rotary, "d": nn.Sequential(rotary), "head": head}
        )
        fastgemm.nn.load_quantized(model, tmp_path)
        assert torch.equal(model["b"].weight.dequantize(torch.float32), weight)
        assert model["c"] is model["d"][0] and torch.equal(model["c"].angles, torch.arange(4.0))
    index.write_text(json.dumps({"weight_map": {**places, "head.weight": "1"}}))
    with pytest.raises(ValueError, match=r"1 does not have tensors of .*: head\.weight"):
        fastgemm.nn.load_quantized(model, tmp_path)
