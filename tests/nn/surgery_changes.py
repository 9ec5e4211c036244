"""Changes that users and tools make to modules. Each has a name, so that hypothesis can print it."""

import copy
import functools
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

HOOKS = {
    "forward": nn.Module.register_forward_hook,
    "forward pre": nn.Module.register_forward_pre_hook,
    "backward": nn.Module.register_full_backward_hook,
    "backward pre": nn.Module.register_full_backward_pre_hook,
}


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x

    def right_inverse(self, x: Tensor) -> Tensor:
        return x / 2


def saved_and_loaded(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": saved_and_loaded,
}


def _half_of_the_old(self: nn.Module, *args: Any) -> Any:
    return self.old_forward(*args) / 2


def bind_forward(module: nn.Module) -> None:
    """A forward wrapped on the instance, as some tools do. It can be copied and pickled."""
    if "old_forward" not in module.__dict__:
        module.old_forward = module.forward
        module.forward = functools.partial(_half_of_the_old, module)


def unbind_forward(module: nn.Module) -> None:
    for name in ("forward", "old_forward"):
        module.__dict__.pop(name, None)


FORWARDS = {True: bind_forward, False: unbind_forward}
CHANGES_OF_LAYERS: dict[str, Callable[[nn.Module], Any]] = {
    "weight_norm": parametrizations.weight_norm,
    "orthogonal": parametrizations.orthogonal,
    "old weight_norm": nn.utils.weight_norm,
    "doubled": lambda layer: parametrize.register_parametrization(layer, "weight", Doubled()),
    "undone": lambda layer: parametrize.remove_parametrizations(layer, "weight"),
    "pruned": lambda layer: prune.random_unstructured(layer, "weight", amount=0.5),
    "pruned for good": lambda layer: prune.remove(layer, "weight"),
    "no bias": lambda layer: layer.register_parameter("bias", None),
    "another weight": lambda layer: setattr(layer, "weight", nn.Parameter(torch.rand_like(layer.weight))),
    "weight.data": lambda layer: layer.weight.data.mul_(0.5),
    "reset_parameters": lambda layer: layer.reset_parameters(),
    "frozen": lambda layer: layer.requires_grad_(False),
    "thawed": lambda layer: layer.requires_grad_(),
    "a buffer": lambda layer: layer.register_buffer("extra", torch.ones(2)),
    "a child": lambda layer: layer.add_module("extra", nn.LayerNorm(3)),
    "a name": lambda layer: setattr(layer, "name", "a name"),
}


def _swap(parts: nn.Sequential, i: int, j: int) -> None:
    parts[i], parts[j] = parts[j], parts[i]


# Each function changes a module in place and returns None, or returns a replacement.
CHANGES_OF_SEQUENTIALS: dict[str, Callable[[nn.Sequential, int, int], nn.Module | None]] = {
    "slice": lambda s, i, j: s[min(i, j) : max(i, j) + 1],
    "rest": lambda s, i, j: s[i:],
    "new": lambda s, i, j: nn.Sequential(*s.children()),
    "named": lambda s, i, j: nn.Sequential(OrderedDict((f"part{n}", part) for n, part in enumerate(s))),
    "halves": lambda s, i, j: nn.Sequential(s[:i], s[i:]),
    "exchanged": lambda s, i, j: s[i:] + s[:i],
    "wrapped": lambda s, i, j: nn.Sequential(s),
    "delete": lambda s, i, j: s.__delitem__(i),
    "pop": lambda s, i, j: (s.pop(i), None)[1],
    "swap": _swap,
    "append a layer": lambda s, i, j: (s.append(copy.deepcopy(s[i])), None)[1],
    "append it again": lambda s, i, j: (s.append(s[i]), None)[1],
    "insert": lambda s, i, j: (s.insert(i, nn.ReLU()), None)[1],
    "insert in place": lambda s, i, j: (s.insert(i, nn.ReLU(inplace=True)), None)[1],
    "replace": lambda s, i, j: s.__setitem__(i, nn.Identity()),
    "wrap one": lambda s, i, j: s.__setitem__(i, nn.Sequential(s[i])),
}
