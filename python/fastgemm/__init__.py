"""GEMM and transpose as a ladder of optimization levels, behind torch custom ops.

>>> import torch, fastgemm
>>> a, b = torch.randn(512, 256), torch.randn(256, 128)
>>> fastgemm.matmul(a, b).shape             # the fastest kernel known for this problem
torch.Size([512, 128])
>>> fastgemm.matmul(a, b, level=2).shape    # the same product on the second rung of the ladder
torch.Size([512, 128])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch  # noqa: F401  first: loads libtorch, which the op library below binds to

# The first import loads the op library, which registers torch.ops.fastgemm, or raises and says why it cannot.
from . import _compatibility, _introspect, _override_library, nn  # noqa: F401
from ._drop_in.enable import disable, enable
from ._drop_in.enable import enable_by_environment as _enable_by_environment
from ._drop_in.enable import tune_by_environment as _tune_by_environment
from ._drop_in.patch import patch
from ._drop_in.routed import Routed
from ._load_choices import load as _load_what_is_kept
from ._ops.grouped import grouped_mm
from ._ops.linear import linear
from ._ops.moe import moe
from ._ops.torch_flags import torch_computes as _torch_computes
from ._tracing import register as _register_with_torch
from .distributed import register_on_import as _register_sharding_rules
from .fp8 import quantize_fp8, scaled_grouped_mm, scaled_mm
from .ops import add, add_, gemm, matmul, transpose
from .quantized import QuantizedWeight, quantize_weight
from .table import KernelInfo, build_info, kernels

if TYPE_CHECKING:
    from . import distributed as distributed
    from . import tuning as tuning
    from ._explain import Report, explain, simulate
    from ._tune import Tuning, tune
    from .tuning import autotune

__version__: str = _introspect.build_info()["version"]
__all__ = [
    "KernelInfo",
    "QuantizedWeight",
    "Report",
    "Routed",
    "Tuning",
    "add",
    "add_",
    "autotune",
    "build_info",
    "disable",
    "enable",
    "explain",
    "gemm",
    "grouped_mm",
    "kernels",
    "linear",
    "matmul",
    "moe",
    "nn",
    "patch",
    "quantize_fp8",
    "quantize_weight",
    "scaled_grouped_mm",
    "scaled_mm",
    "simulate",
    "transpose",
    "tune",
]
# Names by the module that defines them. These modules are imported late, because they take 30 ms and more.
_LOADED_ON_FIRST_USE = {
    "Report": "_explain",
    "Tuning": "_tune",
    "autotune": "tuning",
    "explain": "_explain",
    "simulate": "_explain",
    "tune": "_tune",
    "tuning": "tuning",
}


if not TYPE_CHECKING:  # a type checker would accept any name of the package

    def __getattr__(name: str) -> Any:
        if name not in _LOADED_ON_FIRST_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        of = _LOADED_ON_FIRST_USE[name]
        module = import_module(f".{of}", __name__)
        return module if of == name else globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    """The public names, without those that this file imports for itself."""
    return sorted({*__all__, "distributed", "tuning", *(name for name in globals() if name.startswith("__"))})


if not _override_library.use_in_eager_mode():  # which answers in C++
    _introspect.set_framework_probe(_torch_computes)
_register_with_torch()
_register_sharding_rules()
_load_what_is_kept()
_enable_by_environment()
_tune_by_environment()
