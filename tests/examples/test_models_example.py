"""Tests examples/models.py at its smallest size."""

import json
import os
import sys
import warnings

import fastgemm
import models as example
import pytest
import torch
from click.testing import CliRunner
from studies.reports import read_report
from test_drop_in import faulty

TINY = ["--device", "cpu", "--size", "tiny", "--threads", "1", "--rounds", "2", "--no-compiled"]
CHAINS = ["--model", "cdist", "--model", "cov", "--model", "newton-schulz"]
LAYERS = 2


@pytest.fixture(autouse=True)
def one_thread():
    """Uses one thread, because several would only wait on small products. conftest.py resets the number."""
    torch.set_num_threads(1)


@pytest.fixture
def run(tmp_path):
    """Runs the program. Returns its exit code, its output and its report, if it wrote one."""

    def run(*arguments: str):
        path = tmp_path / "models.json"
        done = CliRunner().invoke(example.main, [*TINY, "--json", str(path), *arguments])
        return done.exit_code, done.output, read_report(path) if path.exists() else None

    return run


def test_the_models(run):
    pytest.importorskip("transformers")
    # Level 1 sums in another order than torch, so results differ.
    code, output, report = run("--level", "1")
    assert code == 0, output
    assert "Llama prefill, 2 x 8 tokens (2 layers of 32)" in output and "routed naive" in output
    assert len(report.results) == 2 * 6 * 3 + 3 * 2  # types, steps and ways, and chains without layers
    assert all(row.right and row.seconds.median > 0 for row in report.results)
    assert report.environment["transformers"]
    runs = {(run["name"], run["dtype"]): run for run in report.summary["runs"]}
    for dtype in ("float32", "bfloat16"):
        phases = ("prefill", "decode", "training")
        forward, decode, training = (runs[f"llama-{phase}", dtype] for phase in phases)
        linears = 7 * LAYERS + 1
        assert forward["routed"]["ops"]["mm"] == decode["routed"]["ops"]["mm"] == linears
        assert training["routed"]["ops"]["mm"] == 3 * linears
        assert not forward["routed"]["passed_on"]  # fused attention computes its own products
        assert {d["kind"] for d in training["differences"]["convert"]} == {"loss", "logits", "gradient"}
        assert (forward["layers"], forward["converted"]) == (linears, linears)
        # Conv1D layers of transformers, and the head
        assert runs["gpt2", dtype]["converted"] == 4 * LAYERS + 1
        assert runs["bert", dtype]["routed"]["ops"] == {"addmm": 6 * LAYERS + 1}
        assert not runs["vit", dtype]["routed"]["passed_on"]  # its convolution is no product either
    moved = {row.kernel for row in report.results if row.dtype == "float32" and (row.worst_error or 0) > 0}
    assert moved == {"patch", "convert"}


@pytest.mark.parametrize(
    ("model", "way"),
    [
        ("llama-decode", "patch"),
        ("llama-decode", "convert"),
        ("llama-training", "patch"),
        ("llama-training", "convert"),
        ("vit", "convert"),
    ],
)
def test_a_wrong_model_is_found(run, model, way, monkeypatch):
    pytest.importorskip("transformers")
    if way == "patch":
        monkeypatch.setattr(fastgemm, "patch", faulty(lambda mm: lambda a, b: mm(a, b) * 1.01))
        arguments = ["--level", "5"]
    else:
        linear = fastgemm.nn.Linear.forward
        monkeypatch.setattr(fastgemm.nn.Linear, "forward", lambda self, x: linear(self, x) * 1.01)
        arguments = []
    code, output, report = run("--model", model, "--dtype", "float32", *arguments)
    assert code == 1 and "times what rounding explains" in output
    assert {row.kernel for row in report.results if not row.right} == {way}


def test_rows_that_do_not_depend_on_the_batch(run, monkeypatch):
    pytest.importorskip("transformers")
    model = ["--model", "llama-prefill", "--model", "llama-decode", "--dtype", "bfloat16", "--invariant"]
    code, output, report = run(*model)
    assert code == 0, output
    assert report.summary["invariant"]
    linears = 7 * LAYERS + 1
    for found in report.summary["runs"]:
        ((kernel, count),) = found["routed"]["kernels"].items()
        assert kernel == "invariant" and count in (
            linears,
            linears + 1,
        )  # some versions multiply positions, too
        assert found["products"] == found["same_bits"] == linears
    assert f"{linears} of {linears} products of one sequence have the bits that it has among 32" in output
    # This tests the check itself, with products that depend on the batch.
    linear = torch.nn.functional.linear
    monkeypatch.setattr(
        "torch.nn.functional.linear", lambda x, w, b=None: linear(x, w, b) * (1 + len(x) / 64)
    )
    code, output, report = run(*model)
    assert code == 1 and f"rows depend on the batch: 0 of {linears} do not" in output


def test_the_models_need_transformers(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)  # import raises
    code, output, report = run()
    assert code == 2 and report is None
    assert "pip install 'transformers>=4.50'" in output
    code, output, report = run(*CHAINS)
    assert code == 0, output
    assert "transformers" not in report.environment


def test_warnings_at_the_import_do_not_count(tmp_path, monkeypatch):
    folder = tmp_path / "transformers"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "import os, types, warnings\n"
        "warnings.warn('something else is missing', FutureWarning)\n"
        "offline = os.environ['HF_HUB_OFFLINE']\n"
        "logging = types.SimpleNamespace(set_verbosity_error=lambda: None)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        library = example.transformers()
    assert library.offline == "1" and library.__file__.startswith(os.fspath(folder))
    monkeypatch.delitem(sys.modules, "transformers")


def test_the_chains(run):
    code, output, report = run(*CHAINS, "--level", "1")
    assert code == 0, output
    routed = {run["name"]: run["routed"]["total"] for run in report.summary["runs"]}
    assert routed["cov"] == 1 and routed["newton-schulz"] == 15
    assert {row.kernel for row in report.results} == {"torch", "patch"}
    code, output, report = run(*CHAINS, "--dtype", "bfloat16")
    assert code == 0 and not report.results  # chains have these only in float32


def test_a_wrong_product_in_a_chain_is_found(run, monkeypatch):
    monkeypatch.setattr(fastgemm, "patch", faulty(lambda mm: lambda a, b: mm(a, b) * 1.001))
    code, output, _ = run("--model", "newton-schulz", "--level", "5")
    assert code == 1 and "times what rounding explains" in output


def test_an_error_of_a_call_affects_no_other_call(run, monkeypatch):
    def broken(**operands):
        raise TypeError("not of this version")

    made = example.chain_of

    def chain_of(name, *rest):
        work, call, exact = made(name, *rest)
        return work, broken if name == "cdist" else call, exact

    monkeypatch.setattr(example, "chain_of", chain_of)
    code, output, report = run(*CHAINS)
    assert code == 1 and "raised TypeError: not of this version" in output
    failed, *others = report.results
    assert failed.failed and failed.seconds is None
    assert {row.op for row in others} == {"cov", "newton-schulz"} and all(row.right for row in others)


def test_the_report_is_json_alone_on_stdout():
    done = CliRunner().invoke(example.main, [*TINY, "--model", "cov", "--json", "-"])
    assert done.exit_code == 0 and json.loads(done.stdout)["command"] == "models"
