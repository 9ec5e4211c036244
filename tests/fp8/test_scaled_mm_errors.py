"""Tests which calls scaled_mm refuses, and with which errors."""

import fastgemm
import pytest
import torch
from scaled import BF16, E4M3, operand, random_codes


@torch.inference_mode()
def inference_tensor():
    return torch.empty(4, 6, dtype=BF16)


WRONG = [
    ({"a": torch.randn(4, 20)}, TypeError, "a has dtype torch.float32; accepted: torch.float8_e4m3fn"),
    ({"b": random_codes(21, 6)}, ValueError, "inner sizes differ"),
    ({"a": random_codes(20)}, ValueError, "at least 2 dimensions"),
    ({"scale_a": torch.ones(4)}, ValueError, r"scale_a has shape \(4,\); of a with shape \(4, 20\)"),
    ({"scale_b": torch.ones(6, 1)}, ValueError, r"scales have shape \(1, 1\) \(tensor\), \(1, 6\) \(row\)"),
    ({"scale_a": torch.ones(4, 1).half()}, ValueError, "scale_a has dtype torch.float16"),
    ({"scale_a": torch.ones(4, 1), "recipe_a": "tensor"}, ValueError, r"scales have shape \(1, 1\)"),
    ({"recipe_b": "2x2"}, ValueError, "unknown recipe_b '2x2'; accepted: 'tensor'"),
    ({"bias": torch.ones(6)}, ValueError, "bias has dtype torch.float32, expected that of the result"),
    ({"bias": torch.ones(5, dtype=BF16)}, ValueError, "bias has shape"),
    ({"residual": torch.ones(4, 6)}, ValueError, "residual has shape"),
    ({"residual": torch.ones(6)}, ValueError, "residual has shape"),
    ({"out_dtype": torch.float64}, ValueError, "out_dtype must be"),
    ({"out_dtype": E4M3}, ValueError, "out_scale belongs to results of 8 bits"),
    ({"out_scale": "row"}, ValueError, "out_scale belongs to results of 8 bits"),
    ({"out_dtype": E4M3, "out_scale": "tensor"}, ValueError, "out_scale must be one float32 number"),
    ({"activation": "tanh"}, ValueError, "unknown activation 'tanh'"),
    ({"precision": "ieee"}, ValueError, "unknown precision 'ieee'"),
    ({"kernel": "nothing"}, ValueError, "nothing"),
    ({"level": 9}, ValueError, "level"),
    ({"invariant": True, "level": 3}, ValueError, "invariant=True"),
    ({"invariant": True, "kernel": ["naive"]}, TypeError, "kernel must be a str or None, got list"),
    ({"out": torch.empty(4, 5, dtype=BF16)}, ValueError, "out has shape"),
    ({"out": torch.empty(4, 6)}, ValueError, "out has dtype"),
    ({"scale_a": torch.ones(1, requires_grad=True)}, RuntimeError, "has no gradient"),
    ({"scale_a": 1.0}, TypeError, "scale_a must be a torch.Tensor, got float"),
    ({"bias": 1.0}, TypeError, "bias must be a torch.Tensor, got float"),
    ({"recipe_b": ["row"]}, ValueError, r"unknown recipe_b \['row'\]; accepted: 'tensor', 'row'"),
    ({"out_dtype": [BF16]}, ValueError, r"out_dtype must be torch.bfloat16, .*, got \[torch.bfloat16\]"),
    ({"out_dtype": E4M3, "out_scale": ["row"]}, ValueError, "out_scale must be one float32 number"),
    ({"level": "fast"}, TypeError, "level must be an int or None, got str"),
    ({"kernel": 3}, TypeError, "kernel must be a str or None, got int"),
    ({"scale_b": torch.ones(1, 6, device="meta")}, ValueError, "all tensors must be on one device"),
    ({"out": inference_tensor()}, RuntimeError, "Inplace update to inference tensor"),
]


@pytest.mark.parametrize("change, error, text", WRONG, ids=lambda x: x if isinstance(x, str) else None)
def test_errors(change, error, text):
    given = {"a": random_codes(4, 20), "b": random_codes(20, 6)}
    given |= {"scale_a": torch.ones(1), "scale_b": torch.ones(1)}
    with pytest.raises(error, match=text) as raised:
        fastgemm.scaled_mm(**(given | change))
    assert str(raised.value).startswith("fastgemm.scaled_mm")


@pytest.mark.parametrize("activation, columns", [(None, 6), ("silu", 6), ("swiglu", 3)])
def test_autocast_casts_no_residual(activation, columns):
    given = random_codes(4, 20), random_codes(20, 6), torch.ones(1), torch.ones(1)
    with torch.autocast("cpu", BF16), pytest.raises(ValueError, match=r"fastgemm\.scaled_mm: residual has"):
        fastgemm.scaled_mm(*given, activation=activation, residual=torch.ones(4, columns))
    how = {"out_dtype": E4M3, "out_scale": "row", "residual": torch.ones(4, columns, dtype=BF16)}
    with torch.autocast("cpu", BF16), pytest.raises(ValueError, match=r"fastgemm\.scaled_mm: residual has"):
        fastgemm.scaled_mm(*given, activation=activation, **how)


@pytest.mark.parametrize("name", ["scale_a", "bias"])
def test_forward_mode_is_refused(name):
    (a, scale_a), (b, scale_b) = operand(4, 140, "row"), operand(6, 140, "row")
    given = {"scale_a": scale_a, "scale_b": scale_b.mT, "bias": torch.randn(6), "out_dtype": torch.float32}
    with pytest.raises(RuntimeError, match=r"fastgemm\.scaled_mm has no gradient"):
        torch.func.jvp(lambda x: fastgemm.scaled_mm(a, b.mT, **(given | {name: x})), *[(given[name],)] * 2)
