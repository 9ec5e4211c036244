"""Tests docs/drop_in.md, and examples/transformer.py with its error bounds."""

import fastgemm
import pytest
import rounding
import torch
import transformer as example
from click.testing import CliRunner
from fastgemm.bench.session import Session
from pages import ROOT, snippets
from studies.reports import read_report
from torch.utils._python_dispatch import TorchDispatchMode

TINY = ["--device", "cpu", "--size", "tiny", "--threads", "1", "--budget", "0.001"]


@pytest.fixture(autouse=True)
def one_thread():
    """Uses one thread, because several would only wait on small products. conftest.py resets the number."""
    torch.set_num_threads(1)


def test_the_snippets_of_the_document():
    blocks = snippets((ROOT / "docs" / "drop_in.md").read_text("utf-8"))
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)  # each snippet continues the one before


def test_the_example(tmp_path):
    path = tmp_path / "transformer.json"
    done = CliRunner().invoke(example.main, [*TINY, "--json", str(path), "--tied", "--level", "5"])
    assert done.exit_code == 0, done.output
    assert "times as fast" in done.output
    report = read_report(path)
    assert len(report.results) == 2 * 2 * 3 * 2  # types, kinds of attention, phases, torch or patched
    assert all(row.seconds.median > 0 for row in report.results)
    by_products, fused = (run["routed_in_a_step"] for run in report.summary["runs"][:2])
    layers = 2
    # Each layer has four linear layers in the forward pass, and two products for the gradients of each. The head
    # has no bias.
    assert by_products["ops"] == {"addmm": 4 * layers, "mm": 8 * layers + 3, "bmm": 6 * layers}
    assert fused["ops"] == {"addmm": 4 * layers, "mm": 8 * layers + 3}
    assert not by_products["passed_on"] and not fused["passed_on"]  # fused attention has its own products
    for run in report.summary["runs"]:  # each step starts from the weights of the float64 reference
        assert max(error for d in run["differences"] for error in d["errors"]) <= 2
    assert set(report.summary["host_us"]) >= {"torch.mm", "torch.mm, patched", "torch.add, patched"}


def run_of(dtype=torch.float32, **config):
    sizes = example.replace(example.CONFIGS["tiny"], width=64, length=48, **config)
    return example.Run(sizes, dtype, "ieee", {"level": 1}, Session("cpu"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_patched_transformer_is_within_rounding(dtype):
    """Level 1 sums in another order than torch, so results differ."""
    found, routed = run_of(dtype, tied=True).compare()
    assert {d.kind for d in found} == {"loss", "logits", "gradient", "weight"}
    assert max(d.of_bound for d in found) <= 1
    if dtype.itemsize > 2:  # both results are often rounded to the same number of 16 bits
        assert max(d.of_bound for d in found) > 0
    assert set(routed.kernels) == {"naive"}
    for d in found:
        assert max(d.errors) <= 2  # the distance to the exact result may be half the bound


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("float32 operands cut to bfloat16", lambda mm: lambda a, b: mm(a.bfloat16().float(), b)),
        ("float32 operands cut to tf32", lambda mm: lambda a, b: mm(tf32(a), b)),
        ("the last term left out", lambda mm: lambda a, b: mm(a[:, :-1], b[:-1])),
        ("one row not written", lambda mm: lambda a, b: mm(a, b).index_fill(0, torch.tensor(0), 0.0)),
    ],
)
def test_faulty_products_are_found(what, fault, monkeypatch):
    run = run_of()
    monkeypatch.setattr(fastgemm, "patch", faulty(fault))
    found, routed = run.compare()
    assert max(d.of_bound for d in found) > 1, what
    assert routed.kernels == {"naive": routed.total}
    monkeypatch.undo()
    assert max(d.of_bound for d in run.compare()[0]) <= 1


def tf32(x):
    """x without its 13 last bits."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def faulty(fault):
    """fastgemm.patch with a fault in matrix products. Batches and products with a bias stay right."""

    class Faults(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            run = fault(func) if func is torch.ops.aten.mm.default else func
            return run(*args, **(kwargs or {}))

    class Patch(fastgemm.patch):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.faults = Faults()

        def __enter__(self):
            routed = super().__enter__()
            self.faults.__enter__()
            return routed

        def __exit__(self, *error):
            self.faults.__exit__(*error)
            super().__exit__(*error)

    return Patch


@pytest.mark.parametrize("options", [["--dtype", "int32"], ["--plot", "x.svg"]], ids=str)
def test_usage(options):
    """There are no rates to plot."""
    assert CliRunner().invoke(example.main, options).exit_code == 2


def test_a_wrong_result_exits_with_1(monkeypatch):
    monkeypatch.setattr(fastgemm, "patch", faulty(lambda mm: lambda a, b: mm(a, b) * 1.01))
    command = [*TINY, "--level", "5"]
    done = CliRunner().invoke(example.main, [*command, "--dtype", "float32", "--attention", "matmul"])
    assert done.exit_code == 1
    assert "times what rounding explains" in done.output


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_spread_of_a_product_covers_its_rounding_errors(dtype):
    a, b = (torch.randn(40, 40).to(dtype) for _ in range(2))

    def chain(x, y):
        return {"product": torch.tanh(x @ y) @ y.t()}

    exact, half_bounds = rounding.spread(lambda: chain(a.double(), b.double()), dtype, "ieee", "cpu")
    error = (chain(a, b)["product"].double() - exact["product"]).abs().max().item()
    assert 0.01 < error / half_bounds["product"] < 1


def test_the_bound_of_a_step_is_two_learning_rates_where_the_sign_is_open():
    gradient, weight = torch.tensor([0.0, 1.0]), torch.zeros(2)
    bound = rounding.adamw_bound(gradient, 1e-3, weight, lr=0.1, eps=1e-8, dtype=torch.float32)
    assert bound[0] == pytest.approx(0.2, rel=1e-4)
    assert bound[1] < 1e-6
