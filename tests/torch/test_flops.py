"""Tests that torch's FlopCounterMode counts fastgemm's products like torch's."""

import fastgemm
import pytest
import torch
from processes import run_forked
from reference import every_device
from torch.utils.flop_counter import FlopCounterMode

pytestmark = every_device


def flops(call) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def draw(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_(grad)


CALLS = {
    "matmul": (lambda: fastgemm.matmul(draw(3, 4), draw(4, 5)), 3 * 4 * 5),
    "matmul, level": (lambda: fastgemm.matmul(draw(3, 4), draw(4, 5), level=2), 3 * 4 * 5),
    "matmul, batch": (lambda: fastgemm.matmul(draw(2, 1, 3, 4), draw(7, 4, 5)), 14 * 3 * 4 * 5),
    "matmul, vector": (lambda: fastgemm.matmul(draw(3, 4), draw(4)), 3 * 4),
    "matmul, out": (lambda: fastgemm.matmul(draw(3, 4), draw(4, 5), out=draw(3, 5)), 3 * 4 * 5),
    "gemm": (lambda: fastgemm.gemm(draw(3, 4), draw(4, 5), draw(5), alpha=2, beta=3), 3 * 4 * 5),
    "gemm, transposed": (
        lambda: fastgemm.gemm(draw(4, 3), draw(5, 4), trans_a=True, trans_b=True),
        3 * 4 * 5,
    ),
    "gemm, a transposed": (
        lambda: fastgemm.gemm(draw(2, 4, 3), draw(4, 5), trans_a=True, out=draw(2, 3, 5)),
        2 * 3 * 4 * 5,
    ),
    "op": (lambda: torch.ops.fastgemm.gemm(draw(3, 4), draw(5, 4), trans_b=True), 3 * 4 * 5),
    "nothing": (lambda: fastgemm.matmul(draw(3, 0), draw(0, 5)), 0),
    "forward and backward": (
        lambda: fastgemm.matmul(draw(3, 4, grad=True), draw(4, 5, grad=True)).sum().backward(),
        3 * 3 * 4 * 5,
    ),
    "layer": (lambda: fastgemm.nn.Linear(4, 5)(draw(2, 3, 4)).sum().backward(), 2 * 2 * 3 * 4 * 5),
    "vmap": (lambda: torch.vmap(fastgemm.matmul)(draw(7, 3, 4), draw(7, 4, 5)), 7 * 3 * 4 * 5),
    "transpose": (lambda: fastgemm.add(fastgemm.transpose(draw(3, 4)), draw(4, 3)), 0),
}


@pytest.mark.parametrize("call", CALLS)
def test_products(call, device):
    function, products = CALLS[call]
    assert flops(function) == 2 * products


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
def test_a_patch_changes_no_count(inference, device):
    layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3, bias=False))
    x = draw(2, 5, 6)

    def step():
        loss = (layers(x) @ draw(3, 2)).sum() + torch.addmm(draw(4), draw(3, 2), draw(2, 4), beta=2).sum()
        if not inference:
            loss.backward()
        torch.mm(draw(3, 5), draw(5, 2), out=torch.empty(3, 2))

    with torch.inference_mode(inference):
        expected = flops(step)
        patch = fastgemm.patch()
        inside, outside = flops(patch(step)), patch(flops)(step)
    assert patch.routed.total > 8
    assert inside == outside == expected > 0


def test_modules_get_their_share(device):
    model = fastgemm.nn.convert(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)))
    with FlopCounterMode(display=False) as counter:
        model(draw(5, 6))
    by_module = {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    assert by_module["Sequential.0"] == 2 * 5 * 6 * 8
    assert by_module["Sequential.1"] == 2 * 5 * 8 * 3


ORDERS = {
    "before": "from torch.utils.flop_counter import FlopCounterMode\nimport fastgemm",
    "after": "import fastgemm, sys\nassert 'torch.utils.flop_counter' not in sys.modules\n"
    "from torch.utils.flop_counter import FlopCounterMode\n"
    "assert not [f for f in sys.meta_path if getattr(f, 'module', '') == 'torch.utils.flop_counter']",
}


@pytest.mark.parametrize("order", ORDERS)
def test_whichever_is_imported_first(order):
    code = f"""
import torch
{ORDERS[order]}
with FlopCounterMode(display=False) as counter:
    fastgemm.matmul(torch.ones(3, 4), torch.ones(4, 5))
assert counter.get_total_flops() == 120
"""
    done = run_forked(code)
    assert done.returncode == 0, done.stderr[-2000:]
