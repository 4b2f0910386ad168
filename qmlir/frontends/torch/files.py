"""Exported programs in files, as `torch.export.save` writes them (`.pt2`)."""

from __future__ import annotations

import importlib
import logging
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
_BESIDE = " Please check the warnings above for possible errors."  # which are not shown


def opened(path: Path) -> torch.export.ExportedProgram:
    """The program of a file.

    Raises FrontEndError for one that holds no exported program, or that this version of torch does not read."""
    _register_operators(path)
    try:
        with path.open("rb") as file, _quiet():
            return torch.export.load(file)
    except OSError as e:
        raise FrontEndError([], f"cannot read {path}: {e.strerror or e}") from None
    except Exception as e:  # of torch's readers, of zip files, pickles and JSON
        text = (str(e).strip().splitlines() or [type(e).__name__])[0].removesuffix(_BESIDE)
        raise FrontEndError(
            [], f"torch {torch.__version__} cannot open {path} as an exported program ({text[:200]}); it opens what "
            "the same version wrote with torch.export.save"
        ) from None  # fmt: skip


def _register_operators(path: Path) -> None:
    """Those that a program calls: ours, and those of the packages whose names are in it."""
    register()
    try:
        with zipfile.ZipFile(path) as archive:
            texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    except (OSError, zipfile.BadZipFile):
        return  # torch says what is wrong
    for name, module in _OPERATORS.items():
        if any(name.encode() in text for text in texts):
            with suppress(ImportError), _quiet():
                importlib.import_module(module)


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
