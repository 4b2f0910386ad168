"""The formats, one line each: file suffixes, and the schemes that a safetensors configuration may name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from ..errors import CheckpointError
from .scheme import Scheme

# suffix -> module with `open(path) -> Checkpoint`
CONTAINERS = {".safetensors": "safetensors_file", ".gguf": "gguf_file"}

# `quant_method` -> module with `scheme(config, where) -> Scheme`
SCHEMES = {
    "compressed-tensors": "compressed_tensors",
    "awq": "awq",
    "gptq": "gptq",
    "bitsandbytes": "bitsandbytes",
}

# Files that hold Python objects, which run code when they are read.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def scheme_of(config: Mapping[str, object], where: str) -> Scheme:
    """The scheme that a quantisation configuration describes."""
    method = config.get("quant_method")
    if method not in SCHEMES:
        raise CheckpointError(f"{where}: quant_method is {method!r}; known: {', '.join(SCHEMES)}")
    make: Callable[..., Scheme] = importlib.import_module(f".{SCHEMES[str(method)]}", __package__).scheme
    return make(config, where)
