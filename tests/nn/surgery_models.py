"""Small random models. Each module maps ``(..., width)`` to ``(..., width)``, so that any change still runs.

A plan is a name in ``LEAVES``, or a tuple with a container's name and the plans of its modules. hypothesis draws,
shrinks and prints plans.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from transformers.pytorch_utils import Conv1D


class Scaled(nn.Linear):
    """A subclass with a forward of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Bottleneck(nn.Module):
    """Layers and an activation that no ``Sequential`` calls."""

    def __init__(self, width: int):
        super().__init__()
        self.up, self.activation, self.down = (
            nn.Linear(width, 3 * width),
            nn.ReLU(),
            nn.Linear(3 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class Skip(nn.Module):
    """A connection around the second slice of a ``Sequential``."""

    def __init__(self, inner: nn.Sequential):
        super().__init__()
        self.inner = inner
        self.cut = len(inner) // 2

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner[: self.cut](x)
        return h + self.inner[self.cut :](h)


class Twice(nn.Module):
    """One module that is called twice and also has other names."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.first, self.second = inner, nn.ModuleDict({"again": inner})

    def forward(self, x: Tensor) -> Tensor:
        return self.second["again"](self.first(x))


def conv1d(width: int) -> nn.Module:
    layer = Conv1D(width, width)
    nn.init.normal_(layer.weight, std=width**-0.5)
    return layer


def encoder(width: int) -> nn.Module:
    return nn.TransformerEncoderLayer(width, 1, 2 * width, dropout=0.0, activation="gelu", batch_first=True)


LEAVES: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda n: nn.Linear(n, n),
    "no bias": lambda n: nn.Linear(n, n, bias=False),
    "relu": lambda n: nn.ReLU(),
    "relu_": lambda n: nn.ReLU(inplace=True),  # only in pairs: most modules need their output for gradients
    "gelu": lambda n: nn.GELU(),
    "gelu_tanh": lambda n: nn.GELU(approximate="tanh"),
    "silu": lambda n: nn.SiLU(),
    "tanh": lambda n: nn.Tanh(),
    "norm": nn.LayerNorm,
    "dropout": lambda n: nn.Dropout(0.25),
    "scaled": lambda n: Scaled(n, n),
    "lazy": lambda n: nn.LazyLinear(n),
    "conv1d": conv1d,
    "normalized": lambda n: parametrizations.weight_norm(nn.Linear(n, n)),
    "bottleneck": Bottleneck,
    "encoder": encoder,
}
ACTIVATIONS = ("relu", "relu_", "gelu", "gelu_tanh", "silu")
AGAIN = "again"  # the model's last layer again

# Half of the drawn modules are layers and activations that convert and fuse can replace.
pairs = st.tuples(
    st.just("pair"), st.sampled_from(("linear", "linear", "no bias")), st.sampled_from(ACTIVATIONS)
)
leaves = st.one_of(
    pairs, pairs, st.sampled_from(("linear", AGAIN)), st.sampled_from(sorted(set(LEAVES) - {"relu_"}))
)
containers = st.sampled_from(("sequential", "sequential", "skip", "twice"))


def _containers_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(containers, st.lists(inner, min_size=1, max_size=4)).map(
        lambda drawn: (drawn[0], *drawn[1])
    )


plans = st.lists(st.recursive(leaves, _containers_of, max_leaves=5), min_size=1, max_size=5)


def build(plan: list[Any], width: int) -> nn.Sequential:
    """The model of a plan, with weights from torch's random numbers."""
    made: list[nn.Module] = []

    def parts_of(plan: Any) -> list[nn.Module]:
        if plan == AGAIN and made:
            return made[-1:]
        if isinstance(plan, str):
            made.append(LEAVES["linear" if plan == AGAIN else plan](width))
            return made[-1:]
        kind, *inner = plan
        parts = [part for one in inner for part in parts_of(one)]
        if kind == "pair":
            return parts
        whole = nn.Sequential(*parts)
        return [whole if kind == "sequential" else Skip(whole) if kind == "skip" else Twice(whole)]

    return nn.Sequential(*(part for one in plan for part in parts_of(one)))
