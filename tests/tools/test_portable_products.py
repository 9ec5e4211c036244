"""tools/portable_products.py without a GPU: two runs that become one file, and what they refuse."""

from __future__ import annotations

import json

import pytest
from render import portable as tables
from scripts import tool


@pytest.fixture
def run(monkeypatch, tmp_path):
    module = tool("portable_products")

    def go(wgmma: bool, *arguments: str) -> dict:
        times = {"own": 1e-3 if wgmma else 2e-3, "torch": 4e-3}
        monkeypatch.setattr(module, "has_wgmma", lambda: wgmma)
        monkeypatch.setattr(
            module, "seconds", lambda name, dtype, *_: times | ({} if dtype != "int64" else {"torch": None})
        )
        monkeypatch.setattr(
            module,
            "describe",
            lambda device: {"cuda_archs": "90a-real" if wgmma else "90-real"} | ENVIRONMENT,
        )
        path = tmp_path / f"{wgmma}.json"
        module.main([*arguments, "--json", str(path)])
        return json.loads(path.read_text())

    return go


ENVIRONMENT = {"device": "NVIDIA Test", "driver": "580", "cuda": "13.0", "cublas": "13.1", "torch": "2.11"}
ENVIRONMENT |= {"date": "2026-01-01T00:00:00", "commit": "abc"}


def test_two_runs_become_one_file(run, tmp_path):
    run(False)
    found = run(True, "--beside", str(tmp_path / "False.json"))
    assert found["environment"]["portable_cuda_archs"] == "90-real"
    assert found["environment"]["portable_commit"] == "abc"
    for row in found["results"]:
        assert (row["portable_seconds"], row["hopper_seconds"]) == (2e-3, 1e-3)
        assert (row["torch_seconds"] is None) == (row["dtype"] == "int64")
    text = tables.sections([found])
    assert "| bfloat16 4096x4096x4096 | `mma_sync` | TFLOPS | 68.7 | 137 | 34.4 | 0.50 | 2.00 |" in text


def test_refusals(run, tmp_path, capsys):
    run(False)
    first = tmp_path / "False.json"
    for wgmma, arguments in ((True, ()), (False, ("--beside", str(first)))):
        with pytest.raises(SystemExit):
            run(wgmma, *arguments)
        assert "--beside" in capsys.readouterr().err
    data = json.loads(first.read_text())
    data["results"][3]["shape"][0] += 1
    first.write_text(json.dumps(data))
    with pytest.raises(SystemExit):
        run(True, "--beside", str(first))
    assert "other products" in capsys.readouterr().err
    data["environment"]["device"] = "NVIDIA Other"
    first.write_text(json.dumps(data))
    with pytest.raises(SystemExit):
        run(True, "--beside", str(first))
    assert "measured on NVIDIA Other" in capsys.readouterr().err


def test_what_torch_multiplies():
    module = tool("portable_products")
    kinds = {dtype for _, dtype, _ in module.PRODUCTS}
    assert {dtype for dtype in kinds if module.torch_product(dtype) is None} == {"int32", "int64", "tf32"}
