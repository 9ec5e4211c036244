import fastgemm
import pytest
from fastgemm import tuning
from fastgemm._drop_in import first_calls
from patches import entered


@pytest.fixture
def nothing_is_left():
    """After every test, checks that its thread is in no patch."""
    yield
    assert entered() == 0


@pytest.fixture
def first_calls_file(tmp_path, monkeypatch):
    """autotune's file, and a process that has measured nothing; afterwards nothing is enabled."""
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(first_calls, "_saves", True)
    monkeypatch.setattr(first_calls, "_waited", 0.0)
    tuning.clear_cache()
    yield tmp_path / "autotune.json"
    fastgemm.disable()
    tuning.clear_cache()


@pytest.fixture
def measured(monkeypatch, first_calls_file):
    """The kernels of each measurement of tune=True. Every kernel runs, and the last one wins."""
    found = []

    def measure(kernels, device, run):
        found.append(list(kernels))
        for name in kernels:
            run(name)
        return {name: 1.0 / place for place, name in enumerate(kernels, 1)}

    monkeypatch.setattr(first_calls, "_measure", measure)
    return found
