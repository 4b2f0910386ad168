"""Parameter files: weights by scope and key, read with the libraries of their formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._spelling import did_you_mean
from .errors import UsageError


class ParameterFiles:
    """`{scope: file}`; `.safetensors` files are read by safetensors, `.irpa` and `.gguf` ones by IREE."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)

    def load(self, scope: str, key: str) -> Any:
        """The array of a parameter. Raises UsageError, with the near names, when it is not there."""
        if scope not in self._files:
            raise UsageError(
                f"no parameter file for scope {scope!r}; give one, as in --parameters {scope}=weights.safetensors"
            )
        path = Path(self._files[scope])
        if path.suffix == ".safetensors":
            return _safetensors(path, key)
        return _iree(path, key)


def _safetensors(path: Path, key: str) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as f:
            keys = list(f.keys())
            if key not in keys:
                raise UsageError(f"{path} has no tensor {key!r}{did_you_mean(key, keys)}")
            return f.get_tensor(key)
    except (OSError, SafetensorError) as e:
        raise UsageError(f"cannot read {path}: {e}") from None


def _iree(path: Path, key: str) -> Any:
    import iree.runtime as rt

    index = rt.ParameterIndex()
    try:
        index.load(str(path))
    except (ValueError, RuntimeError) as e:
        raise UsageError(f"cannot read {path}: {str(e).splitlines()[0]}") from None
    entries = dict(index.items())
    if key not in entries:
        raise UsageError(f"{path} has no parameter {key!r}{did_you_mean(key, entries)}")
    import numpy as np

    return np.frombuffer(entries[key].file_view if entries[key].is_file else b"", np.uint8)
