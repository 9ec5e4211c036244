from functools import partial

import explain_model
import pytest


@pytest.fixture
def report_of(monkeypatch):
    return partial(explain_model.report_of, monkeypatch)
