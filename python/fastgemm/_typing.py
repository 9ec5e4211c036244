"""The strings that arguments accept, for type checkers and for the API reference."""

from __future__ import annotations

from typing import Literal

Op = Literal["gemm", "transpose", "add"]
Role = Literal["rung", "shortcut", "companion", "pitfall"]
Precision = Literal["ieee", "tf32", "bf16x3", "bf16x6", "fp16x3", "crt14", "crt15", "crt16", "crt17", "crt18"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
OutRecipe = Literal["row", "1x128"]
GatedActivation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
