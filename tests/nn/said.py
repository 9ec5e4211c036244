"""What the functions of fastgemm.nn have said of the layers of a model."""

from __future__ import annotations

import logging

import pytest


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of the logger fastgemm.nn since the last call."""
    records = [r for r in caplog.records if (r.name, r.levelno) == ("fastgemm.nn", logging.WARNING)]
    caplog.clear()
    return [r.getMessage() for r in records]
