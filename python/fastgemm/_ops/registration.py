"""The library object that registers kernels in Python: for gradients, autocast and lazily negated arguments."""

from __future__ import annotations

import torch

from .. import _introspect  # noqa: F401  loads the op library, which defines the ops

# The registrations last as long as this object.
library = torch.library.Library("fastgemm", "IMPL")
