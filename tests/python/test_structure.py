"""Tests imports between the package's modules. Imports inside of functions and for type checkers count, too."""

import importlib.util
import re

import grimp
import pytest

GRAPH = grimp.build_graph("fastgemm", cache_dir=None)
OF_THE_PACKAGE = GRAPH.find_modules_that_directly_import("fastgemm") & GRAPH.find_upstream_modules("fastgemm")


@pytest.mark.parametrize("package", sorted(m for m in GRAPH.modules if GRAPH.find_children(m)))
def test_no_circle_of_imports_in(package):
    """Checks the modules and packages that are directly in a package."""
    assert GRAPH.nominate_cycle_breakers(package) == set()  # imports whose removal would break the circles


@pytest.mark.parametrize("importer", sorted(OF_THE_PACKAGE))
def test_what_the_package_imports_does_not_import_the_package(importer):
    """The compiled modules are exceptions: grimp does not know them, and counts an import of one as an import
    of the package."""
    for found in GRAPH.get_import_details(importer=importer, imported="fastgemm"):
        names = re.sub(r"#.*|.*\bimport\b", "", found["line_contents"])
        for name in re.split(r"[\s,]+", names.strip()):
            assert importlib.util.find_spec(f"fastgemm.{name}"), found
