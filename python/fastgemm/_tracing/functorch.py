"""torch.func transforms: grad, vjp, jvp, vmap and all combinations of them, eager and compiled.

While a transform is active, torch first calls an op's kernel of the key FuncTorchDynamicLayerFrontMode, before any
transform unwraps the arguments. The ops' kernels there apply the autograd functions of _ops, whose formulas serve
every transform: gradients, tangents, and one product for the whole batch of a vmap. Without them torch would call
an op once for each member of a batch, and could not differentiate it.

torch.compile records calls of the ops, and runs the recorded calls under the same transforms. Eager calls of the
public functions apply the autograd functions themselves, which saves 8 us of 150.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch._ops import OpOverload
from torch.compiler import is_compiling

from .. import _errors
from .._ops.dispatch import Op, ops, written
from .._ops.registration import library
from .autograd import OPS

_KEY = "FuncTorchDynamicLayerFrontMode"


def _add_in_place(a: Tensor, b: Tensor, **options: Any) -> None:
    """copy_ is torch's, so that every transform sees the change of ``a``."""
    total = ops.add.default(a, b, **options)
    _errors.refuse_shape(a, total.shape)
    a.copy_(total)


def _into(op: Op) -> Callable[..., None]:
    def run(*operands: Tensor | None, out: Tensor, **options: Any) -> None:
        if not is_compiling():
            _errors.refuse_transform_into_out(*operands, out)
        written(op.packet.default(*operands, **options), out)

    return run


def _kernel(op: OpOverload, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        if peek_interpreter_stack().key() == TransformType.Functionalize:
            return _functionalized(op, arguments, options)
        return function(*arguments, **options)

    return run


def _functionalized(op: OpOverload, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Runs an op that writes no argument under torch.func.functionalize, for which autograd functions have no
    rule."""
    from torch._functorch.pyfunctorch import (
        FunctionalizeInterpreter,
        retrieve_current_functorch_interpreter,
    )
    from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

    interpreter = retrieve_current_functorch_interpreter()
    assert isinstance(interpreter, FunctionalizeInterpreter)
    level = FunctorchFunctionalizeAPI(interpreter)
    with level.redispatch_to_next():
        return level.wrap_tensors(op(*level.unwrap_tensors(arguments), **options))


def register() -> None:
    """Gives all ops their kernels for torch.func. Ops without an autograd formula need them, too, because a graph
    of torch.fx holds these ops and may be transformed again."""
    for op in OPS:
        for name in op.names:
            library.impl(name, _kernel(getattr(ops, name).default, op.differentiable), _KEY)
        if op.into is not None:
            library.impl(f"{op.names[0]}.out", _into(op), _KEY)
    library.impl("add_", _add_in_place, _KEY)
