"""Tests the documentation: the API reference has all public names, and docstrings describe all parameters.

Links, images, anchors and cross-references are checked by `make docs`, where every warning is an error.
"""

import doctest
import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass

import fastgemm
import pytest
import torch
from pages import PAGES, ROOT, snippets

FUNCTIONS = [name for name in fastgemm.__all__ if inspect.isfunction(getattr(fastgemm, name))]


def documented(text: str, section: str) -> set[str]:
    """The names in a section of a docstring in Google's style."""
    found = re.search(rf"^\s*{section}:\n((?:\s{{4,}}.*\n|\s*\n)+)", inspect.cleandoc(text) + "\n", re.M)
    if not found:
        return set()
    names = re.findall(r"^    ((?:\w+(?:, )?)+):", found.group(1), re.M)
    return {name for line in names for name in line.split(", ")}


def test_the_api_reference_has_every_public_name():
    reference = re.sub(r"<!--.*?-->", "", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), flags=re.S)
    shown = re.findall(r"^::: fastgemm\.(\w+)$", reference, re.M)
    assert len(shown) == len(set(shown))
    assert set(fastgemm.__all__) <= set(shown)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_describe_each_parameter_and_result(name):
    function = getattr(fastgemm, name)
    signature = inspect.signature(function)
    assert documented(function.__doc__, "Args") == set(signature.parameters)
    assert "Raises:" in function.__doc__ or name == "build_info"
    yields = inspect.isgeneratorfunction(inspect.unwrap(function))
    assert "Returns:" in function.__doc__ or yields


@pytest.mark.parametrize("name", [n for n in fastgemm.__all__ if is_dataclass(getattr(fastgemm, n))])
def test_docstrings_describe_each_field(name):
    record = getattr(fastgemm, name)
    described = documented(record.__doc__, "Attributes")
    mentioned = {field.name for field in fields(record) if f"``{field.name}``" in record.__doc__}
    assert described | mentioned == {field.name for field in fields(record)}


EXAMPLES = [name for name in fastgemm.__all__ if ">>>" in (getattr(fastgemm, name).__doc__ or "")]


def test_what_is_used_most_has_an_example():
    assert {"matmul", "gemm", "transpose", "explain", "patch"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_docstrings_run(name):
    shown = getattr(fastgemm, name)
    text = inspect.cleandoc(shown.__doc__)
    section = text.partition("Examples:")[2]
    assert section, "in their own section, which the site shows as code"
    examples = doctest.DocTestParser().get_doctest(textwrap.dedent(section), {}, name, None, 0)
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_to_pages_are_named_by_titles(page):
    assert not re.findall(r"\[`?[\w/-]+\.md`?\]\([^)]*\)", page.read_text(encoding="utf-8"))


def test_the_examples_of_the_readme_run(request):
    request.addfinalizer(
        fastgemm.tuning.clear_cache
    )  # what autotune measures changes predictions in this process
    first, ten_lines = snippets((ROOT / "README.md").read_text(encoding="utf-8"))
    names: dict = {}
    exec(first.replace('"cuda"', '"cpu"').replace("1000", "10").replace("3001", "31"), names)
    a, b = torch.randn(8, 12), torch.randn(12, 16)
    names.update(a=a, b=b, c=torch.randn(8, 16), x=torch.randn(2, 3, 5))
    names.update(h=a.half(), w=torch.randn(12, 12).half(), bias=torch.randn(12).half())
    names.update(a8=a.to(torch.int8), b8=b.to(torch.int8))
    assert len(ten_lines.splitlines()) == 10
    for line in ten_lines.splitlines():
        if "trans_b" in line:
            names["b"] = b.T.contiguous()
        exec(line, names)
        names["b"] = b


GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS = re.findall(r"^### (.+)$", GLOSSARY.read_text(encoding="utf-8"), re.M)
ANCHORS = {re.sub(r"[^\w -]", "", term.lower()).replace(" ", "-") for term in TERMS}


def test_the_glossary_is_in_alphabetical_order():
    assert sorted(TERMS, key=str.casefold) == TERMS
    assert len(ANCHORS) == len(TERMS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_glossary_links_lead_to_terms_and_stand_once_on_a_page(page):
    file = "" if page == GLOSSARY else r"[\w/.]*glossary\.md"
    linked = re.findall(rf"\]\({file}#([\w-]+)\)", page.read_text(encoding="utf-8"))
    assert set(linked) <= ANCHORS
    assert page == GLOSSARY or len(linked) == len(set(linked))


def test_the_citation_is_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.M).group(1) == fastgemm.__version__


def test_the_version_has_an_entry_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.*)"', project, re.M).group(1)
    assert re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M)
