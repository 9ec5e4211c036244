"""Tests DataLoader workers, forked and spawned.

torch gives each worker one thread. With more, a forked child would wait for its parent's threads, because the
parent has used several.
"""

import fastgemm
import pytest
import torch
from processes import PATIENCE
from torch.utils.data import DataLoader, Dataset

ITEMS = 8


class Products(Dataset):
    """The worker computes item i with products of every kind."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, i: int) -> dict[str, object]:
        torch.manual_seed(i)
        a, b = torch.randn(90, 300), torch.randn(300, 200)
        weight = torch.ones(300, 4, requires_grad=True)
        fastgemm.matmul(a, weight, level=5).sum().backward()
        return {
            "free": fastgemm.matmul(a, b),
            "level 5": fastgemm.matmul(a, b, level=5),
            "half": fastgemm.matmul(a.bfloat16(), b.bfloat16(), level=6),
            "transpose": fastgemm.transpose(a),
            "gradient": weight.grad[:, 0],
            "threads": torch.get_num_threads(),
            "worker": torch.utils.data.get_worker_info().id,
        }


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_workers(start):
    torch.set_num_threads(2)
    big = torch.randn(700, 700)
    fastgemm.matmul(big, big, level=5)  # the parent's pool of threads has worked
    loader = DataLoader(
        Products(), batch_size=None, num_workers=2, multiprocessing_context=start, timeout=PATIENCE
    )
    workers = set()
    for i, item in enumerate(loader):
        torch.manual_seed(i)
        a, b = torch.randn(90, 300), torch.randn(300, 200)
        assert item["threads"] == 1
        workers.add(item["worker"])
        torch.testing.assert_close(item["free"], a @ b, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(item["level 5"], a @ b, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(item["half"].float(), a @ b, rtol=2e-2, atol=0.5)
        assert torch.equal(item["transpose"], a.t())
        torch.testing.assert_close(item["gradient"], a.sum(0), rtol=1e-4, atol=1e-3)
    assert workers == {0, 1}
    fastgemm.matmul(big, big, level=5)  # the pool still works
