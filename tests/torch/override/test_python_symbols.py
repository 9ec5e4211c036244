"""What the library of overrides needs of Python: one library serves every version since 3.10."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import fastgemm
import pytest

# In the stable ABI of 3.10 (docs.python.org/3.10/c-api/stable.html) and of later versions. PyObject_Vectorcall,
# for one, is not: 3.10 has it as an inline function.
STABLE = {
    *("PyCapsule_GetPointer", "PyCapsule_IsValid"),
    *("PyErr_CheckSignals", "PyErr_Clear", "PyErr_Fetch", "PyErr_SetString"),
    *("PyEval_RestoreThread", "PyEval_SaveThread", "PyExc_ValueError"),
    *("PyFloat_AsDouble", "PyFloat_Type", "PyGILState_Ensure", "PyGILState_Release"),
    *("PyLong_AsLongLongAndOverflow", "PyLong_Type", "PyModule_AddStringConstant", "PyModule_Create2"),
    *("PyObject_Call", "PyTuple_GetItem", "PyTuple_GetSlice", "PyTuple_Size", "PyUnicode_AsUTF8AndSize"),
    *("Py_DecRef", "Py_IncRef", "Py_IsInitialized", "_Py_Dealloc"),
    *("_Py_FalseStruct", "_Py_NoneStruct", "_Py_NotImplementedStruct", "_Py_TrueStruct"),
}


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm: it is one of the binutils")
def test_symbols_are_of_the_stable_abi():
    libraries = list(Path(fastgemm.__file__).parent.glob("libfastgemm_override_*.so"))
    if not libraries:
        pytest.skip("this build has no library of overrides")
    for library in libraries:
        done = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
        )
        names = {line.split()[-1] for line in done.stdout.splitlines()}
        assert {name for name in names if name.startswith(("Py", "_Py"))} <= STABLE
