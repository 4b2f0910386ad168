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

# By the name of operators, the module that defines them.
_OPERATORS = {"torchao": "torchao.quantization", "quantized_decomposed": "torch.ao.quantization.fx._decomposed"}
# Containers of arguments that their package registers only when it is asked.
_DYNAMIC_CACHE = "transformers.cache_utils.DynamicCache"
_BESIDE = " Please check the warnings above for possible errors."  # which are not shown


def opened(path: Path) -> torch.export.ExportedProgram:
    """The program of a file.

    Raises FrontEndError for one that holds no exported program, or that this version of torch does not read."""
    texts = _texts(path)
    _register(texts)
    try:
        with path.open("rb") as file, _quiet():
            return torch.export.load(file)
    except OSError as e:
        raise FrontEndError([], f"cannot read {path}: {e.strerror or e}") from None
    except Exception as e:  # of torch's readers, of zip files, pickles and JSON
        if unknown := _unknown_containers(texts):
            raise FrontEndError(
                [], f"{path}: the program takes or gives {', '.join(unknown)}, which this process does not know; in "
                "Python, register it as where the program was exported (torch.export.register_dataclass, "
                "torch.utils._pytree.register_pytree_node), then compile"
            ) from None  # fmt: skip
        text = (str(e).strip().splitlines() or [type(e).__name__])[0].removesuffix(_BESIDE)
        raise FrontEndError(
            [], f"torch {torch.__version__} cannot open {path} as an exported program ({text[:200]}); it opens what "
            "the same version wrote with torch.export.save"
        ) from None  # fmt: skip


def _texts(path: Path) -> list[bytes]:
    """What the file says about the program. None where it is no archive: torch says what is wrong."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    except (OSError, zipfile.BadZipFile):
        return []


def _register(texts: list[bytes]) -> None:
    """The operators that a program calls: ours, and those of the packages whose names are in it; and its containers."""
    register()
    for name, module in _OPERATORS.items():
        if any(name.encode() in text for text in texts):
            with suppress(ImportError), _quiet():
                importlib.import_module(module)
    if _DYNAMIC_CACHE in _unknown_containers(texts):
        with suppress(Exception), _quiet():  # whatever its own imports raise; the message below says what is missing
            importlib.import_module("transformers.integrations.executorch").register_dynamic_cache_export_support()


def _unknown_containers(texts: list[bytes]) -> list[str]:
    """Types of arguments and results that torch cannot make: they are registered in each process."""
    known = torch.utils._pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
    named = {name.decode() for text in texts for name in re.findall(rb'\\"type\\": \\"([\w.]+)\\"', text)}
    return sorted(named - {str(name) for name in known})


@contextmanager
def _quiet() -> Iterator[None]:
    """torch reports a file of another form with the tracebacks of all that it tried, and torchao what it lacks."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
