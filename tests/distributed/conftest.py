import pytest
import torch
from ranks import Ranks

DEVICES = ["cpu", "cuda"] if torch.cuda.device_count() >= 2 else ["cpu"]


def _ranks(count, device):
    processes = Ranks(count, device)
    yield processes
    processes.stop()


@pytest.fixture(scope="session", params=DEVICES)
def ranks(request):
    yield from _ranks(2, request.param)


@pytest.fixture(scope="session")
def four_ranks():
    yield from _ranks(4, "cpu")
