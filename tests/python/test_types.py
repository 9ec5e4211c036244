"""Tests the declared types of the package and its compiled module. Type checkers run in `make lint`."""

import ast
import inspect
import re
from importlib.resources import files
from pathlib import Path

import fastgemm
import pytest
import torch
import typed_code
from fastgemm import _introspect

RUN = [
    function
    for name, function in inspect.getmembers(typed_code, inspect.isfunction)
    if function.__module__ == "typed_code" and not name.startswith("wrong") and name != "with_a_gpu"
]


@pytest.mark.parametrize("function", RUN, ids=lambda function: function.__name__)
def test_typed_code_runs(function):
    """Uses that a type checker accepts must also work at run time."""
    tensors = [torch.ones(4, 4) for _ in inspect.signature(function).parameters]
    function(*tensors)


def test_typed_code_names_all_that_is_public():
    tree = ast.parse(Path(typed_code.__file__).read_text())
    named = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    modules = (fastgemm, fastgemm.nn, fastgemm.tuning, fastgemm.distributed)
    assert {f"{module.__name__}.{name}" for module in modules for name in module.__all__} <= named


def _arguments(function: ast.FunctionDef) -> list[tuple[str, bool]]:
    """The parameters' names, except of positional-only ones, and whether they have defaults."""
    named = [a.arg for a in function.args.args]
    without = len(named) + len(function.args.posonlyargs) - len(function.args.defaults)
    every = ["" for _ in function.args.posonlyargs] + named
    return [(name, i >= without) for i, name in enumerate(every)]


def _functions(body: list[ast.stmt]) -> dict[str, list[tuple[str, bool]]]:
    return {f.name: _arguments(f) for f in body if isinstance(f, ast.FunctionDef)}


def _signature(name: str) -> str:
    """nanobind's description of a function; defaults are numbered."""
    ((text, *_),) = getattr(_introspect, name).__nb_signature__
    return re.sub(r"= \\\d+", "= ...", text) + ": ..."


def test_stub_has_the_functions_of_the_compiled_module():
    stub = ast.parse(files("fastgemm").joinpath("_introspect.pyi").read_text(encoding="utf-8"))
    compiled = [name for name, value in vars(_introspect).items() if hasattr(value, "__nb_signature__")]
    assert _functions(stub.body) == _functions(ast.parse("\n".join(map(_signature, compiled))).body)
