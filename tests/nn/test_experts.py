"""Tests the experts of the transformers library by fastgemm: by their name, and converted."""

import copy
import pickle

import fastgemm
import pytest
import torch
from reference import every_device

pytest.importorskip("transformers.integrations.moe")
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

pytestmark = every_device


@pytest.fixture
def model(device):
    config = Qwen3MoeConfig(
        hidden_size=32, intermediate_size=48, moe_intermediate_size=24, num_hidden_layers=2, vocab_size=40,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, num_experts=6, num_experts_per_tok=2,
    )  # fmt: skip
    return Qwen3MoeForCausalLM(config).to(device).eval()


def experts_of(model):
    return [layer.mlp.experts for layer in model.model.layers]


def by_fastgemm(model, monkeypatch):
    """How many layers of experts a call of the model computes by fastgemm."""
    calls, forward = [], fastgemm.nn.experts_forward
    moe = pytest.importorskip("transformers.integrations.moe")
    mapping = type(moe.ALL_EXPERTS_FUNCTIONS)._global_mapping
    assert mapping["fastgemm"] is forward
    monkeypatch.setitem(mapping, "fastgemm", lambda *given: calls.append(given) or forward(*given))
    ids = torch.randint(40, (2, 7))
    logits = model(ids).logits
    monkeypatch.setitem(mapping, "fastgemm", forward)
    return ids, logits, len(calls)


def test_by_name(model, monkeypatch):
    model.set_experts_implementation("fastgemm")
    ids, logits, calls = by_fastgemm(model, monkeypatch)
    model.set_experts_implementation("eager")
    assert calls == 2
    torch.testing.assert_close(logits, model(ids).logits, rtol=1e-4, atol=1e-5)


def test_converted(model, monkeypatch):
    own = copy.deepcopy(model)
    fastgemm.nn.convert(own, only=lambda name, layer: "layers.1" in name and "experts" in name, level=5)
    first, second = experts_of(own)
    assert second.level == 5 and not hasattr(first, "level")
    for model_here in (own, copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        ids, logits, calls = by_fastgemm(model_here, monkeypatch)
        assert calls == 1
        torch.testing.assert_close(logits, model(ids).logits, rtol=1e-4, atol=1e-5)
    assert own.config._experts_implementation != "fastgemm"
    fastgemm.nn.convert(own)
    assert second.level is None and by_fastgemm(own, monkeypatch)[2] == 2
    fastgemm.nn.revert(own)
    assert by_fastgemm(own, monkeypatch)[2] == 0
    assert second.config is own.config and not hasattr(second, "level")


def test_invariant(model):
    fastgemm.nn.convert(model, invariant=True)
    assert {experts.kernel for experts in experts_of(model)} == {"invariant"}
    h = torch.randn(9, 32)
    ids, weights = torch.randint(6, (9, 2)), torch.rand(9, 2)
    experts = experts_of(model)[0]
    alone = experts(h[4:5], ids[4:5], weights[4:5])
    assert torch.equal(experts(h, ids, weights)[4:5], alone)


def test_gradients(model):
    own = fastgemm.nn.convert(copy.deepcopy(model))
    ids = torch.randint(40, (2, 7))
    for each in (model, own):
        each(ids, labels=ids).loss.backward()
    for mine, torchs in zip(own.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, torchs.grad, rtol=1e-3, atol=1e-6)
