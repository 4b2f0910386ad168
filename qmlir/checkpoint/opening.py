"""Selects the reader for a path."""

from __future__ import annotations

import builtins
import importlib
import os
from pathlib import Path

from ..errors import CheckpointError
from .contents import Checkpoint
from .registry import CONTAINERS, PICKLES

_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"


def open(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint: a `.gguf` or `.safetensors` file, or a folder with `model.safetensors` (or its shards and
    index) and `config.json`.

    Raises:
        CheckpointError: the file cannot be read, is damaged, does not fit its configuration (the message names the
            tensor), or has a format that holds Python objects.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"cannot read {path}: there is no such file or folder")
    if path.is_dir():
        return _folder(path)
    if path.name.endswith(".safetensors.index.json"):
        return _container(".safetensors", path)
    if path.suffix in CONTAINERS:
        return _container(path.suffix, path)
    if path.suffix in PICKLES or _is_pickle(path):
        raise CheckpointError(f"cannot read {path}: {_PICKLED}")
    raise CheckpointError(f"cannot read {path}: its suffix is {path.suffix!r}; known: {', '.join(CONTAINERS)}")


_PICKLED = (
    "it holds pickled Python objects, which run code when they are read; save the model as safetensors "
    "(safetensors.torch.save_file)"
)


def _folder(path: Path) -> Checkpoint:
    for name in ("model.safetensors.index.json", "model.safetensors"):
        if (path / name).is_file():
            return _container(".safetensors", path / name)
    for suffix in CONTAINERS:
        found = sorted(path.glob(f"*{suffix}"))
        if len(found) == 1:
            return _container(suffix, found[0])
        if found:
            names = ", ".join(p.name for p in found[:4])
            raise CheckpointError(
                f"{path} has {len(found)} {suffix} files and no index ({names}, ...); name one of them"
            )
    if pickled := sorted(p for p in path.iterdir() if p.suffix in PICKLES):
        raise CheckpointError(f"cannot read {pickled[0]}: {_PICKLED}")
    raise CheckpointError(f"{path} has no checkpoint; looked for {', '.join('*' + s for s in CONTAINERS)}")


def _container(suffix: str, path: Path) -> Checkpoint:
    made: Checkpoint = importlib.import_module(f".{CONTAINERS[suffix]}", __package__).open(path)
    return made


def _is_pickle(path: Path) -> bool:
    """Whether a file starts as a pickle or as a zip archive, which torch.save writes."""
    try:
        with builtins.open(path, "rb") as f:
            start = f.read(4)
    except OSError as e:
        raise CheckpointError(f"cannot read {path}: {e.strerror or e}") from None
    return start == _ZIP or start[:1] == _PICKLE
