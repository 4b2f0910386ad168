"""Exported programs in files, as `torch.export.save` writes them (`.pt2`)."""

from __future__ import annotations

import importlib
import logging
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from ...errors import FrontEndError
from .custom_ops import register

# The modules that define operators, by namespace.
_OPERATORS = {"torchao": "torchao.quantization", "quantized_decomposed": "torch.ao.quantization.fx._decomposed"}
# A container of arguments that its package registers only on request.
_DYNAMIC_CACHE = "transformers.cache_utils.DynamicCache"
_HINT = " Please check the warnings above for possible errors."  # torch's warnings are suppressed


def opened(path: Path) -> torch.export.ExportedProgram:
    """The program in a file.

    Raises FrontEndError for a file without an exported program, or one that this version of torch cannot read."""
    texts = _texts(path)
    _register(texts)
    try:
        with path.open("rb") as file, _quiet():
            return torch.export.load(file)
    except OSError as e:
        raise FrontEndError([], f"cannot read {path}: {e.strerror or e}") from None
    except Exception as e:  # torch's reader raises any exception of zip files, pickles and JSON
        if unknown := _unknown_containers(texts):
            raise FrontEndError(
                [], f"{path}: the program takes or gives {', '.join(unknown)}, which this process does not know; in "
                "Python, register it as where the program was exported (torch.export.register_dataclass, "
                "torch.utils._pytree.register_pytree_node), then compile"
            ) from None  # fmt: skip
        text = (str(e).strip().splitlines() or [type(e).__name__])[0].removesuffix(_HINT)
        raise FrontEndError(
            [], f"torch {torch.__version__} cannot open {path} as an exported program ({text[:200]}); it opens what "
            "the same version wrote with torch.export.save"
        ) from None  # fmt: skip


def _texts(path: Path) -> list[bytes]:
    """The JSON files of the archive, which describe the program; empty if torch will refuse the file as no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    except (OSError, zipfile.BadZipFile):
        return []


def _register(texts: list[bytes]) -> None:
    """Register the containers and operators that a program may use: qmlir's, and those of packages that it names."""
    register()
    for name, module in _OPERATORS.items():
        if any(name.encode() in text for text in texts):
            with suppress(ImportError), _quiet():
                importlib.import_module(module)
    if _DYNAMIC_CACHE in _unknown_containers(texts):
        with suppress(Exception), _quiet():  # its imports may raise anything; `opened` then names the container
            importlib.import_module("transformers.integrations.executorch").register_dynamic_cache_export_support()


def _unknown_containers(texts: list[bytes]) -> list[str]:
    """Types of arguments and results that are not registered in this process, so that torch cannot make them."""
    known = torch.utils._pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
    named = {name.decode() for text in texts for name in re.findall(rb'\\"type\\": \\"([\w.]+)\\"', text)}
    return sorted(named - {str(name) for name in known})


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's tracebacks of all its attempts to read a file, and torchao's warnings of missing packages."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
