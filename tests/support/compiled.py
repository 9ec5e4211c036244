"""Registers and shared memory of the compiled CUDA kernels, or the reason why they are unknown here."""

import pytest
from fastgemm._explain import resources
from fastgemm._explain.kernel_names import short_name


def compiled_for(capability: str, function: str, kernel: str) -> resources.Resources:
    """Registers and shared memory of a launched function. If nvcc has not compiled it, the test fails and
    says how to compile it, or is skipped if a tool for that is missing."""
    found = resources.resources(function, capability)
    if found is None:
        from cuda_tools import missing  # imported here, because tests may run without tools/

        how = (
            f"KERNEL={kernel} tools/compile_cuda.sh && .venv/bin/python tools/check_sass.py --kernel {kernel}"
        )
        lacking = missing("nvcc", "cuobjdump", "nvdisasm")
        said = f"nvcc has not compiled {short_name(function)}: run {how}" + (
            f"; {lacking}" if lacking else ""
        )
        (pytest.skip if lacking else pytest.fail)(said)
    return found
