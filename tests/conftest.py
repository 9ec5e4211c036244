"""Gives every test fresh random data, and the test run its own autotune cache.

Every test has a new seed. A failing test prints its seed; FASTGEMM_TEST_SEED=<seed> draws the same data again.
"""

import contextlib
import gc
import os
import random
import tempfile

# Set before fastgemm is imported. A user's measurements must not affect the tests, and tests must not change them.
_cache = tempfile.TemporaryDirectory(prefix="fastgemm-tests-")
os.environ["FASTGEMM_CACHE_DIR"] = _cache.name
# Removes the shell's settings of the terminal, Python's output and patches. pytest-xdist sets COLUMNS.
_terminal = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PYTHONIOENCODING", "PYTHONUNBUFFERED")
# Hundreds of programs that tests start import the package, so the first one keeps its bytecode.
for _name in (*_terminal, "FASTGEMM_PATCH", "FASTGEMM_TUNE", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("tests")

if torch.cuda.is_available():
    # By default torch may add partial sums of a 16-bit product in 16 bits, but the bounds are for float32 sums.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

TEST_TIMEOUT = 400  # seconds, enough on a busy machine; a deadlock fails by this limit instead of hanging


# These run first, in a fresh process: they fork before autograd has threads, or need a heap without free gaps.
FRESH = {"test_dataloader.py", "test_leaks.py"}


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Excludes the objects of torch and of ten thousand tests, which live to the end, from garbage
    collection."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in FRESH)
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT))


@pytest.fixture(autouse=True)
def fresh_random_data(request):
    seed = int(os.environ.get("FASTGEMM_TEST_SEED") or random.SystemRandom().getrandbits(32))
    random.seed(seed)
    torch.manual_seed(seed)
    request.node.user_properties.append(("seed", seed))
    yield


@pytest.fixture
def device() -> str:
    """The device of a test's tensors. Tests over the kernel table are parametrized over it."""
    return "cpu"


@pytest.fixture(autouse=True)
def tensors_are_made_on_the_device(device):
    with contextlib.nullcontext() if device == "cpu" else torch.device(device):
        yield


@pytest.fixture(autouse=True)
def same_thread_count_afterwards():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        seed = dict(item.user_properties).get("seed")
        report.sections.append(("random data", f"repeat with FASTGEMM_TEST_SEED={seed}"))
