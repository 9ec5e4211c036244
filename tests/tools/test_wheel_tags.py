"""Tests the messages of check_distributions.py about a wheel's tag, depending on the modules in the wheel."""

from pathlib import Path

import pytest
from check_distributions import tag_faults

EVERY = ("cpython-310-x86_64-linux-gnu", "cpython-311-x86_64-linux-gnu", "abi3")


def faults(tag, suffixes):
    there = {f"fastgemm/{module}.{suffix}.so" for module in ("_introspect", "_simt") for suffix in suffixes}
    return list(tag_faults(Path(f"fastgemm-0.1.0-{tag}.whl"), [tag], there))


@pytest.mark.parametrize(
    ("tag", "suffixes"),
    [
        ("cp310-abi3-manylinux_2_34_x86_64", EVERY),
        ("cp312-abi3-linux_x86_64", ("abi3",)),
        ("cp311-cp311-linux_x86_64", EVERY[1:2]),
        ("cp311-cp311-manylinux_2_34_aarch64", ("cpython-311-aarch64-linux-gnu",)),
    ],
)
def test_a_tag_names_the_interpreters_of_the_modules(tag, suffixes):
    assert not faults(tag, suffixes)


@pytest.mark.parametrize("suffixes", [EVERY[:2], EVERY[1:], ("abi3",)])
def test_a_tag_for_every_python_needs_the_modules_of_every_python(suffixes):
    assert "is tagged" in faults("cp310-abi3-manylinux_2_34_x86_64", suffixes)[0]
