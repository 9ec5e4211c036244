"""Two models that are made and changed in the same way, one of them converted. All observable behaviour must be
equal."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

Seen = list[tuple[str, list[Any]]]
SEEN: dict[str, Seen] = {"torchs": [], "own": []}


@dataclasses.dataclass
class Hook:
    """A hook that records its arguments and may change them. It can be copied and pickled."""

    side: str
    name: str
    scale: float | None = None

    def __call__(self, module: nn.Module, *values: Any) -> Any:
        SEEN[self.side].append((self.name, [plain(x) for x in tree_leaves(values)]))
        if self.scale is None:
            return None
        changed = values[0] if "pre" in self.name else values[-1]
        return tree_map(lambda x: x * self.scale if isinstance(x, Tensor) else x, changed)


def plain(x: Any) -> Any:
    """A copy of the current value, or None if the value has no data."""
    if not isinstance(x, Tensor) or nn.parameter.is_lazy(x):
        return x if x is None or isinstance(x, (bool, int, float, str)) else type(x)
    return (x.shape, x.dtype) if x.is_meta else x.detach().clone()


def place_of(items: Iterator[tuple[str, Any]]) -> list[tuple[str, int]]:
    """Names of modules or parameters, and which names share one object."""
    first: dict[int, int] = {}
    return [(name, first.setdefault(id(item), len(first))) for name, item in items]


class Twins:
    """``torchs`` and ``own``, which fastgemm may have changed.

    Both compute in float64. Otherwise rounding would decide whole gradients if a ReLU's input is near zero.
    """

    def __init__(self, make: Callable[[], nn.Module], seed: int):
        self.seed = seed
        self.torchs, self.own = (self.seeded(make) for _ in range(2))

    def sides(self) -> Iterator[tuple[str, nn.Module]]:
        yield "torchs", self.torchs
        yield "own", self.own

    def seeded(self, function: Callable[..., Any], *arguments: Any) -> Any:
        torch.manual_seed(self.seed)
        return function(*arguments)

    def both(self, change: Callable[[nn.Module, str], Any]) -> None:
        """Applies ``change(model, side)`` to both models. If torch refuses it, fastgemm must do so, too."""
        outcomes = [outcome(self.seeded, change, model, side) for side, model in self.sides()]
        self.seed += 1
        assert_same_errors(*outcomes, texts=False)  # messages may print modules

    def replaced_by(self, change: Callable[[nn.Module], nn.Module]) -> None:
        """Replaces each model by the result of ``change``."""
        self.both(lambda model, side: setattr(self, side, change(model)))

    def check(self, inputs: Tensor) -> None:
        self.check_structure()
        self.check_calls(inputs)

    def check_structure(self) -> None:
        torchs, own = self.torchs, self.own
        places = [place_of(x.named_modules(remove_duplicate=False)) for x in (torchs, own)]
        assert places[0] == places[1]
        for (name, one), (_, other) in zip(torchs.named_modules(), own.named_modules(), strict=True):
            assert one.training == other.training, name
            assert isinstance(other, nn.Linear) == isinstance(one, nn.Linear), name
        for kind in ("named_parameters", "named_buffers"):
            of_torchs, of_own = (list(getattr(x, kind)(remove_duplicate=False)) for x in (torchs, own))
            assert place_of(iter(of_torchs)) == place_of(iter(of_own))
            for (name, one), (_, other) in zip(of_torchs, of_own, strict=True):
                assert (type(one), one.requires_grad) == (type(other), other.requires_grad), name
        values = [outcome(lambda x=x: dict(x.state_dict())) for x in (torchs, own)]
        assert_same_errors(*values)
        if not isinstance(values[0], Exception):
            assert list(values[0]) == list(values[1])
            assert_close("state_dict", *([plain(v) for v in x.values()] for x in values))

    def check_calls(
        self,
        inputs: Tensor,
        called: Callable[[nn.Module, str], Callable[[Tensor], Tensor]] = lambda model, side: model,
    ) -> None:
        """Compares outputs, gradients and hooks' arguments of ``called(model, side)(inputs)``."""
        if lacks_data(self.torchs):
            return
        results = []
        for side, model in self.sides():
            SEEN[side].clear()
            model.zero_grad()
            x = inputs.clone().requires_grad_()
            results.append(outcome(self.seeded, run, called(model, side), x))
        assert_same_errors(*results)
        torchs, own = results
        if isinstance(torchs, Exception):
            return
        assert_close("outputs and the input's gradient", torchs, own)
        for (name, one), other in zip(self.torchs.named_parameters(), self.own.parameters(), strict=True):
            assert_close(f"gradient of {name}", [plain(one.grad)], [plain(other.grad)])
        # The order of independent operations in a backward pass is not guaranteed.
        sees = [sorted(SEEN[side], key=lambda call: call[0]) for side in ("torchs", "own")]
        assert [name for name, _ in sees[0]] == [name for name, _ in sees[1]]
        for (name, one), (_, other) in zip(*sees, strict=True):
            assert_close(f"hook {name}", one, other)


def lacks_data(model: nn.Module) -> bool:
    """Whether a weight that accelerate offloaded has lost the hook that brings it back. That happens when the
    layer was tied to another one. torch then returns memory that nobody wrote."""
    return any(
        p.is_meta and not hasattr(module, "_hf_hook")
        for module in model.modules()
        for p in module.parameters(recurse=False)
    )


def assert_close(what: str, torchs: Any, own: Any) -> None:
    assert len(torchs) == len(own), what
    for one, other in zip(torchs, own, strict=True):
        if not isinstance(one, Tensor):
            assert one == other, what
            continue
        size = max(1.0, float(one.abs().max())) if one.numel() and one.is_floating_point() else 0.0
        torch.testing.assert_close(other, one, rtol=0, atol=1e-9 * size, msg=lambda text: f"{what}: {text}")


def run(called: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor | None]:
    out = called(x * 1)  # a leaf could not be overwritten
    if out.requires_grad:
        out.backward(torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out))
    return plain(out), plain(x.grad)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return error


def assert_same_errors(torchs: Any, own: Any, texts: bool = True) -> None:
    if isinstance(own, Exception) and not isinstance(torchs, Exception):
        raise own
    assert isinstance(torchs, Exception) == isinstance(own, Exception), f"torch's raises {torchs!r}"
    if isinstance(torchs, Exception):
        assert type(torchs) is type(own), own
        # torch's message names the node of the graph whose tensor was overwritten.
        assert not texts or str(torchs) == str(own) or "an inplace operation" in str(own), own
