"""Reads the configuration files next to a checkpoint strictly: unknown fields and values are refused."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from ..errors import CheckpointError

# Older writers store the quantisation in a separate file, and not every version names the method in it.
_OWN_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
_LARGEST = 16_000_000  # bytes

T = TypeVar("T")


def quantization_of(folder: Path) -> tuple[dict[str, object], dict[str, object] | None, str]:
    """The model's configuration, its quantisation (None if there is none), and the latter's place, for messages."""
    path = folder / "config.json"
    config = read_json(path) if path.is_file() else {}
    for key in ("quantization_config", "compression_config"):
        found = config.get(key)
        if found is not None:
            if not isinstance(found, dict):
                raise CheckpointError(f"{path}: {key!r} is not a JSON object")
            return config, found, f"{path}, {key}"
    for name, method in _OWN_FILES.items():
        if (folder / name).is_file():
            return config, {"quant_method": method, **read_json(folder / name)}, str(folder / name)
    return config, None, ""


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in a file. Raises CheckpointError if the file does not hold one."""
    try:
        if path.stat().st_size > _LARGEST:
            raise CheckpointError(f"{path} has {path.stat().st_size} bytes, which is not a configuration")
        value = json.loads(path.read_text())
    except OSError as e:
        raise CheckpointError(f"cannot read {path}: {e.strerror or e}") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path} is not JSON") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value


def check_fields(config: Mapping[str, object], known: Collection[str], where: str) -> None:
    """Raise CheckpointError for an unknown field: it may change the meaning of the weights."""
    for name in config:
        if name not in known:
            raise CheckpointError(
                f"{where} has the field {name!r}, which is not known; known: {', '.join(sorted(known))}"
            )


def choice(config: Mapping[str, object], name: str, choices: Collection[T], where: str, default: T | None = None) -> T:
    """The value of a field, which must be one of `choices`."""
    value = config.get(name, default)
    for known in choices:
        if type(value) is type(known) and value == known:  # compare types too: True == 1
            return known
    raise CheckpointError(f"{where}: {name} is {value!r}; known: {', '.join(map(repr, choices))}")


def group_size_of(config: Mapping[str, object], name: str, where: str, default: int | None = None) -> int:
    """A group size: a positive integer, or -1 for one group of all inputs."""
    value = config.get(name, default)
    if type(value) is not int or (value <= 0 and value != -1):
        raise CheckpointError(f"{where}: {name} is {value!r}, which must be a positive integer, or -1 for one group")
    return value
