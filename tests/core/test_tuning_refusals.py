"""Tests calls that autotune refuses with the same errors as the operations, and files that are no autotune
files."""

import copy
import json
import math
import warnings

import fastgemm
import pytest
import torch
from fastgemm import tuning
from fastgemm._choice import autotuned
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import DEVICES, needs_simulator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.flop_counter import FlopCounterMode


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))
    tuning.clear_cache()
    yield tmp_path / "autotune.json"
    tuning.clear_cache()


def fake():
    with FakeTensorMode():
        return torch.ones(4, 4)


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch plans to remove them
        return torch.quantize_per_tensor(torch.ones(4, 4), 0.1, 0, torch.qint8)


def sparse(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.sparse_csr is in beta
        return torch.ones(4, 4).to_sparse(layout=layout)


def nested(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype, too
        return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=layout)


class Plain(torch.Tensor):
    """A subclass without a __torch_dispatch__."""


MATRIX = torch.ones(4, 4)
NO_PRODUCT = {
    **{str(t): MATRIX.to(t) for t in (torch.uint16, torch.complex64, torch.float8_e4m3fn)},
    "list": [[1.0]],
    "number": 1.0,
    "string": "matrix",
}
NO_OPERAND = {
    "meta": lambda: torch.ones(4, 4, device="meta"),
    "fake": fake,
    "sparse_coo": lambda: sparse(torch.sparse_coo),
    "sparse_csr": lambda: sparse(torch.sparse_csr),
    "quantized": quantized,
    "nested": lambda: nested(torch.strided),
    "a wrapper": lambda: TwoTensor(MATRIX, MATRIX),
    "a quantized weight": lambda: fastgemm.quantize_weight(torch.ones(4, 32), "int8").mT,
}


@pytest.mark.parametrize("kind", NO_PRODUCT)
@pytest.mark.parametrize("side", [0, 1])
def test_without_a_product_it_is_a_type_error(kind, side, cache):
    x = NO_PRODUCT[kind]
    operands = [x, x] if isinstance(x, torch.Tensor) else [MATRIX, MATRIX]
    operands[side] = x
    with pytest.raises(
        TypeError, match="accepted: float64" if isinstance(x, torch.Tensor) else "torch.Tensor"
    ):
        fastgemm.autotune(*operands)
    if not isinstance(x, torch.Tensor):
        with pytest.raises(TypeError, match=f"a must be a torch.Tensor, got {type(x).__name__}"):
            fastgemm.autotune(x)
    assert not cache.exists()


@pytest.mark.parametrize("kind", NO_OPERAND)
def test_without_dense_data_it_is_not_implemented(kind, cache):
    x = NO_OPERAND[kind]()
    for operands in [(x,), (x, x), (x, MATRIX), (MATRIX, x)]:
        with pytest.raises(NotImplementedError, match=r"fastgemm\.autotune: |fastgemm: "):
            fastgemm.autotune(*operands)
    assert not cache.exists()


@pytest.mark.parametrize("device", DEVICES)
def test_operands_that_do_not_go_together(device):
    a = torch.ones(4, 5, device=device)
    batch = a.expand(3, 4, 5)
    for b, message in [
        (a, "inner sizes"),
        (a.t().double(), "float64"),
        (torch.ones(2, 5, 4, device=device), "broadcast"),
    ]:
        with pytest.raises(ValueError, match=message):
            fastgemm.autotune(batch if b.dim() == 3 else a, b)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"precision": "exact"}, ValueError),
        ({"precision": 5}, TypeError),
        ({"out_dtype": torch.float64}, ValueError),
        ({"op": "add"}, ValueError),
        ({"op": "transpose"}, ValueError),
        ({"budget": math.nan}, ValueError),
        ({"budget": -1.0}, ValueError),
        ({"budget": "long"}, TypeError),
        ({"budget": None}, TypeError),
    ],
)
def test_wrong_options(options, error, cache):
    with pytest.raises(error):
        fastgemm.autotune(MATRIX, MATRIX, **options)
    assert not cache.exists()


def test_a_transpose_has_no_options_of_products():
    for options in ({"out_dtype": torch.float32}, {"precision": "ieee"}):
        with pytest.raises(ValueError, match="for op='gemm' alone"):
            fastgemm.autotune(MATRIX, **options)


def test_a_transform_is_not_measured():
    with pytest.raises(RuntimeError, match=r"torch\.func"):
        torch.vmap(lambda a: torch.ones(fastgemm.autotune(a, a).timings[0].runs))(torch.ones(2, 4, 4))


def tuned(a):
    fastgemm.autotune(a, a)
    return a


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("mode", ["flops", "make_fx", "jit.trace"])
def test_a_trace_and_a_mode_are_not_measured(mode, cache):
    """They would take part in every product, but the key would be that of a product without them."""
    with pytest.raises(RuntimeError, match=r"fastgemm\.autotune: cannot measure in a trace or under a Torch"):
        if mode == "flops":
            with FlopCounterMode(display=False):
                tuned(MATRIX)
        elif mode == "make_fx":
            make_fx(tuned)(MATRIX)
        else:
            torch.jit.trace(tuned, (MATRIX,))
    assert not cache.exists()


@needs_simulator
@pytest.mark.parametrize(
    "call", [lambda: tuned(MATRIX), lambda: fastgemm.tune(seconds=1)], ids=["autotune", "tune"]
)
def test_a_simulation_is_not_measured(call, cache):
    with fastgemm.simulate(), pytest.raises(RuntimeError, match=r"cannot measure inside fastgemm\.simulate"):
        call()


class Refusing(TorchFunctionMode):
    """Functions of torch do not reach the products that autotune times."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        assert "fastgemm" not in str(function)
        return function(*arguments, **options or {})


@pytest.mark.parametrize(
    "kind", [torch.nn.Parameter, lambda x: x.as_subclass(Plain)], ids=["parameter", "plain"]
)
def test_other_classes_and_modes_of_functions_are_measured(kind):
    x = kind(MATRIX)
    with Refusing():
        assert fastgemm.autotune(x, x, budget=0.0, save=False).timings


def test_any_element_can_be_transposed_and_empty_problems_have_a_fastest():
    for operands in [
        (MATRIX.long(),),
        (MATRIX.bool(),),
        (MATRIX[:0],),
        (MATRIX[:0], MATRIX),
        (MATRIX[:, :0], MATRIX[:0]),
    ]:
        assert fastgemm.autotune(*operands, budget=0.0, save=False).timings


# A file with one entry that is used and one of another GPU. Tests damage each part of it.
KEY = list(tuning.gemm_key(torch.ones(30, 900), torch.ones(900, 20)))
GPU = f"gpu NVIDIA Test|{autotuned.versions()}"
SOUND = {
    "format": 1,
    "sets": {tuning.environment(): [[KEY, "naive"], [[*KEY[:-1], 901], "blocked"]], GPU: [[KEY, "naive"]]},
}


def places(value, path=()):
    """The paths of all values in a JSON document: list indices and object keys."""
    yield path
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, child in children:
        yield from places(child, (*path, name))


def replaced(path, new):
    if not path:
        return new
    document = copy.deepcopy(SOUND)
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = new
    return document


def renamed(path, name):
    """The document with an object's key renamed."""
    document = copy.deepcopy(SOUND)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[name] = inner.pop(path[-1])
    return document


NAMED = [path for path in places(SOUND) if path and isinstance(path[-1], str)]
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8) | st.builds(
    lambda text, at: text[:at] + "\ud800" + text[at:],
    st.sampled_from([tuning.environment(), GPU, "naive", ""]),
    st.integers(0, 40),
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=5,
)


def load_and_multiply(document):
    """Loads a file. There may be one warning at most, and then a part of the file is not used."""
    tuning.clear_cache()
    tuning.cache_file().write_text(json.dumps(document))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        known = autotuned.load()
    assert [w.category for w in caught] in ([], [RuntimeWarning])
    if caught:
        assert known < 3
        str(caught[0].message).encode(errors="backslashreplace")
    torch.testing.assert_close(fastgemm.matmul(MATRIX, MATRIX), MATRIX @ MATRIX)


def test_the_sound_file_is_used():
    load_and_multiply(SOUND)
    assert autotuned.load() == 3


@settings(max_examples=150)
@given(path=st.sampled_from(list(places(SOUND))), value=ANY_JSON)
def test_any_value_at_any_place(path, value):
    load_and_multiply(replaced(path, value))


@settings(max_examples=50)
@given(path=st.sampled_from(NAMED), name=ANY_TEXT)
def test_any_name_at_any_place(path, name):
    load_and_multiply(renamed(path, name))
