"""Reads a quantized checkpoint into a model, without the library that wrote it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .._nn.surgery import check_module, log
from .._quantized.checks import LOGICAL
from .._quantized.weight import QuantizedWeight
from .methods import Method, method_of

Model = TypeVar("Model", bound=nn.Module)
Read = Callable[[str], Tensor]
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def load_quantized(
    model: Model, folder: str | os.PathLike[str], *, device: torch.device | str = "cpu"
) -> Model:
    """Reads a quantized checkpoint of a Hugging Face repository into a model, in place.

    The weights of quantized layers become :class:`fastgemm.QuantizedWeight`, code by code; all other tensors are
    converted to the dtypes of the model's parameters, which they replace. Tensors are read one after the other.
    The libraries that write such checkpoints are not needed, only safetensors.

    Methods (``quant_method`` of ``quantization_config``): ``gptq`` and ``awq``, ``compressed-tensors``
    (pack-quantized, int-quantized, float-quantized, naive-quantized, nvfp4- and mxfp4-pack-quantized), ``fp8``,
    ``bitsandbytes`` of 4 bits (nf4), ``mxfp4``, ``modelopt`` (FP8, NVFP4). Products do not round their inputs,
    even if the checkpoint says how (``input_scale``). mxfp4 tensors that belong to no linear layer, such as the
    experts of gpt-oss, are dequantized to the dtype of their parameter; the logger ``fastgemm.nn`` names them.

    If no file has the buffers of a module without parameters, the module is made again from its ``config``. The
    rotary embeddings of transformers are such modules.

    Args:
        model: as its config makes it, on the meta device::

                config = AutoConfig.from_pretrained(folder)
                with torch.device("meta"):
                    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)

            Its parameters have the names of the tensors in the files.
        folder: has ``config.json`` and ``model.safetensors``, or an index and its files. If several files
            have a tensor, the index says which one it is read from.
        device: the device to which tensors are read.

    Returns:
        ``model``.

    Raises:
        TypeError: ``model`` is no module.
        FileNotFoundError: a file is missing.
        ValueError: an unknown method or format; tensors that the model does not have, or that are missing, by
            their names; a shape does not fit. Names are compared before anything is read.
        ModuleNotFoundError: there is no safetensors library.
    """
    check_module("load_quantized", model)
    folder = Path(folder)
    try:
        method = method_of(_config(folder))
        with ExitStack() as files:
            names, read = _open(folder, torch.device(device), files)
            _Loader(model, method, names, read).load()
    except (ValueError, KeyError) as error:
        raise ValueError(f"fastgemm.nn.load_quantized: {folder}: {error}") from error
    return model


def _config(folder: Path) -> dict[str, Any]:
    """The ``quantization_config`` of a folder."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    found = config.get("quantization_config") or config.get("compression_config")
    if found is None:
        raise ValueError("config.json has no quantization_config")
    return found


def _open(folder: Path, device: torch.device, stack: ExitStack) -> tuple[list[str], Read]:
    """The names of all tensors, and a function that reads one."""
    try:
        from safetensors import safe_open
    except ModuleNotFoundError as error:
        message = "fastgemm.nn.load_quantized needs safetensors; pip install safetensors"
        raise ModuleNotFoundError(message, name="safetensors") from error
    index = folder / INDEX
    places = json.loads(index.read_text(encoding="utf-8"))["weight_map"] if index.exists() else None
    files: dict[str, Any] = {}
    for path in [SINGLE] if places is None else sorted(set(places.values())):
        if not (folder / path).exists():
            raise FileNotFoundError(f"fastgemm.nn.load_quantized: there is no {folder / path}")
        file = stack.enter_context(safe_open(folder / path, framework="pt", device="cpu"))
        there = set(file.keys())
        if places is not None:
            absent = [name for name, place in places.items() if place == path and name not in there]
            if absent:
                raise ValueError(f"{path} does not have tensors of {INDEX}: {_listed(absent)}")
            # A file may have an older version of another file's tensor.
            there = {name for name in there if places.get(name, path) == path}
        files.update(dict.fromkeys(sorted(there), file))
    # A copy, so that no weight depends on the file afterwards.
    return list(files), lambda name: files[name].get_tensor(name).to(device, copy=True)


class _Loader:
    """Matches the tensors of files with the layers and parameters of a model, and puts them there."""

    def __init__(self, model: nn.Module, method: Method, names: list[str], read: Read) -> None:
        self.model, self.method, self.read = model, method, read
        self.targets: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
        buffers = dict(model.named_buffers(remove_duplicate=False))
        persistent = model.state_dict().keys()
        self.targets |= {name: x for name, x in buffers.items() if name in persistent}
        self.same = dict[int, list[str]]()
        for name, target in self.targets.items():
            self.same.setdefault(id(target), []).append(name)
        modules = model.named_modules(remove_duplicate=False)
        layers = {name: layer for name, layer in modules if isinstance(layer, nn.Linear)}
        self.quantized = dict[str, dict[str, str]]()
        self.blocks = dict[str, dict[str, str]]()
        self.plain = list[str]()
        self._sort(names, layers)

    def _sort(self, names: list[str], layers: dict[str, nn.Linear]) -> None:
        """Finds what each tensor belongs to."""
        marks, rest = self.method.names, list[str]()
        for name in names:
            layer, key = next(((x, y) for x, y in _splits(name) if y in marks and x in layers), ("", ""))
            parameter, end = name.rpartition("_")[::2]
            if key:
                self.quantized.setdefault(layer, {})[key] = name
            elif f"weight_{end}" in marks and parameter in self.targets and end in ("blocks", "scales"):
                self.blocks.setdefault(parameter, {})[end] = name
            else:
                rest.append(name)
        for name in list(rest):
            layer, _, end = name.rpartition(".")
            if end == "weight" and layer in self.quantized:
                self.quantized[layer][end] = name
                rest.remove(name)
        self.plain = [name for name in rest if name in self.targets]
        unknown = [name for name in rest if name not in self.targets and not self._is_derived(name)]
        if unknown:
            raise ValueError(f"tensors that the model does not have: {_listed(unknown)}")
        missing = self.targets.keys() - self._given()
        if missing:
            raise ValueError(f"tensors of the model that no file has: {_listed(sorted(missing))}")

    def _is_derived(self, name: str) -> bool:
        """Whether a model does not need a tensor of a file: it computes the tensor from its config, it ignores the
        tensor in every file, or the tensor is a bias of zeros, which some files of GPTQ have for layers without a
        bias."""
        ignored = getattr(self.model, "_keys_to_ignore_on_load_unexpected", None) or ()
        if any(re.search(pattern, name) for pattern in (r"rotary_emb\.inv_freq$", *ignored)):
            return True
        layer, _, end = name.rpartition(".")
        return end == "bias" and layer in self.quantized and not bool(self.read(name).any())

    def _given(self) -> set[str]:
        """The names of all parameters and buffers that get a value."""
        given = {*self.plain, *self.blocks, *(f"{name}.weight" for name in self.quantized)}
        return given.union(*(names for names in self.same.values() if given.intersection(names)))

    def load(self) -> None:
        for name, tensors in self.quantized.items():
            target = self.targets[f"{name}.weight"]
            used = {key: self.read(x) for key, x in tensors.items() if key not in self.method.ignored}
            try:
                q = self.method.make(name, used, _dtype(target))
            except (ValueError, KeyError) as error:
                raise ValueError(f"{name}: {_reason(error)}") from error
            self._put(f"{name}.weight", q, target)
        for name in self.plain:
            self._put(name, self.read(name), self.targets[name])
        for name, tensors in self.blocks.items():
            self._put(name, self._experts(name, tensors), self.targets[name])
        if self.blocks:
            log.warning(
                "fastgemm.nn.load_quantized: %s: dequantized: no linear layer", _listed(list(self.blocks))
            )
        _make_buffers(self.model)

    def _experts(self, name: str, tensors: dict[str, str]) -> Tensor:
        """The parameter (experts, K, N) from the mxfp4 blocks of all experts, (experts, N, K / 32, 16)."""
        blocks, scales = self.read(tensors["blocks"]), self.read(tensors["scales"])
        dtype = _dtype(self.targets[name])
        experts = (QuantizedWeight.from_mxfp4(*x, dtype=dtype) for x in zip(blocks, scales, strict=True))
        return torch.stack([q.dequantize().mT for q in experts]).contiguous()

    def _put(self, name: str, x: Tensor, target: Tensor) -> None:
        if x.shape != target.shape:
            raise ValueError(f"{name} is {tuple(x.shape)}, expected {tuple(target.shape)}")
        if not isinstance(x, QuantizedWeight) and x.dtype != target.dtype:
            if not (x.is_floating_point() and x.dtype.itemsize > 1) and target.is_floating_point():
                raise ValueError(f"{name} has numbers of {x.dtype} and no scales")
            x = x.to(target.dtype)
        is_parameter = isinstance(target, nn.Parameter)
        if is_parameter:
            grad = target.requires_grad and not isinstance(x, QuantizedWeight)
            x = nn.Parameter(x, requires_grad=grad)
        for each in self.same[id(target)]:
            owner, _, leaf = each.rpartition(".")
            module = self.model.get_submodule(owner)
            (module._parameters if is_parameter else module._buffers)[leaf] = x  # type: ignore[assignment]


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """A name cut in two at each dot."""
    parts = name.split(".")
    return ((".".join(parts[:i]), ".".join(parts[i:])) for i in range(len(parts)))


def _dtype(target: Tensor) -> torch.dtype:
    if target.dtype not in LOGICAL:
        raise ValueError(f"the model has weights of {target.dtype}; accepted: bfloat16, float16 and float32")
    return target.dtype


def _reason(error: Exception) -> str:
    return (
        f"there is no {error.args[0]}"
        if isinstance(error, KeyError)
        else str(error).removeprefix("fastgemm: ")
    )


def _listed(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _make_buffers(model: nn.Module) -> None:
    """Makes what is still on the meta device again: buffers that files do not have."""
    made = dict[int, nn.Module]()
    for name, module in list(model.named_modules(remove_duplicate=False)):
        left = [key for key, x in module.named_buffers(recurse=False) if x.is_meta]
        if not left:
            continue
        config = getattr(module, "config", None)
        if config is None or any(True for _ in module.parameters()) or not name:
            raise ValueError(
                f"buffers on the meta device that no file has: {_listed([f'{name}.{x}' for x in left])}"
            )
        device = next((x.device for x in model.parameters() if not x.is_meta), torch.device("cpu"))
        if id(module) not in made:  # a module with several names remains one
            with torch.device(device):
                made[id(module)] = type(module)(config).train(module.training)
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, made[id(module)])
