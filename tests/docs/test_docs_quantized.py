"""Tests docs/quantized.md: its programs run, and its tables have every format and constructor."""

import re

import fastgemm
import pytest
from pages import ROOT, snippets

TEXT = (ROOT / "docs" / "quantized.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", snippets(TEXT))
def test_programs_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(code, {})


def test_tables_are_complete():
    from fastgemm._models.methods import METHODS
    from fastgemm._quantized.formats import FORMATS

    assert re.findall(r'^\| `"(\w+)"` \|', TEXT, re.M) == list(FORMATS)
    constructors = {name for name in vars(fastgemm.QuantizedWeight.__mro__[1]) if name.startswith("from_")}
    assert set(re.findall(r"^\| `(?:QuantizedWeight)?\.(from_\w+)\(", TEXT, re.M)) == constructors
    line = TEXT.partition("`quant_method` is ")[2].partition(";")[0]
    assert all(method in line for method in METHODS)
