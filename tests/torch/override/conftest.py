from __future__ import annotations

import pytest
from patches import entered


@pytest.fixture
def nothing_is_left():
    """Whatever a test does with patches, its thread is in none of them afterwards."""
    yield
    assert entered() == 0
