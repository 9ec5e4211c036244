from __future__ import annotations

import pytest
from patches import entered


@pytest.fixture
def nothing_is_left():
    """After every test, checks that its thread is in no patch."""
    yield
    assert entered() == 0
