"""The options of a compilation."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from ..checkpoint.parameters import ParameterFiles
from ..core.isolation import ProcessLimits
from ..core.rows import SourceRow
from ..dialect.dtypes import Array
from ..errors import UsageError, caller
from ..targets.strategy import Choice

KeepParameters = bool | Literal["mapped"]
KEEP_PARAMETERS: tuple[KeepParameters, ...] = (False, True, "mapped")


class CompileOptions(TypedDict, total=False):
    """The keyword arguments of `qmlir.compile`, for functions that pass them on to it."""

    pipeline: str | None
    start: str
    parameters: Mapping[str, str] | None
    keep_parameters: KeepParameters
    map_parameters: bool
    flags: Sequence[str]
    dump_stages: str | os.PathLike[str] | None
    cache: bool
    strict: bool
    import_options: Mapping[str, object] | None
    tuning: str | os.PathLike[str] | None
    choice: Choice | None
    isolated: bool
    timeout: float | None
    memory: int | None


@dataclass(frozen=True)
class Options:
    """The options of one compilation.

    Attributes:
        pipeline: text of the passes to run instead of the default ones.
        start: level of the source (a dumped stage to restart from).
        parameters: `{scope: file}` of weights (.safetensors, .irpa, .gguf), which become constants.
        keep_parameters: weights are read when the program is loaded instead; "mapped": from a file of packed weights.
        flags: more flags for IREE.
        dump_stages: folder that gets one file per stage.
        cache: whether compiled programs are kept on disk.
        strict: refuse a program with parts that are known to be slow on the target.
        choice: values for the knobs of the target's strategies.
        limits: limits of the child process to compile in; None to compile in this process.
        origin: the source file, for the manifest: `rebuilding.rebuilder` compiles it again.
    """

    pipeline: str | None = None
    start: str = "import"
    parameters: Mapping[str, str] = field(default_factory=dict)
    keep_parameters: KeepParameters = False
    flags: tuple[str, ...] = ()
    dump_stages: Path | None = None
    cache: bool = True
    strict: bool = False
    choice: Choice = field(default_factory=dict)
    limits: ProcessLimits | None = None
    origin: SourceRow | None = None

    def __post_init__(self) -> None:
        for flag in self.flags:  # a text in place of the list yields its letters
            if not (isinstance(flag, str) and flag.startswith("-") and len(flag) > 1):
                raise UsageError(f"flags holds {flag!r}, which is not a flag: flags=['--iree-opt-level=O3']")


def kept_parameters(keep_parameters: KeepParameters, map_parameters: bool) -> KeepParameters:
    """The two arguments of `compile` as the single `Options.keep_parameters`."""
    if keep_parameters == "mapped":
        warnings.warn("keep_parameters='mapped' is deprecated: use map_parameters=True", DeprecationWarning,
                      stacklevel=caller())  # fmt: skip
    elif not isinstance(keep_parameters, bool):
        raise UsageError(f"keep_parameters is {keep_parameters!r}; it may be True or False")
    return "mapped" if map_parameters else keep_parameters


def file_digest(path: str) -> str:
    try:
        with open(path, "rb") as f:
            return (
                hashlib.file_digest(f, "sha256").hexdigest()
                if hasattr(hashlib, "file_digest")
                else (hashlib.sha256(f.read()).hexdigest())
            )
    except OSError as e:
        raise UsageError(f"cannot read the parameter file {path}: {e.strerror or e}") from None


def parameter_loader(options: Options) -> Callable[[str, str], Array] | None:
    """A function that loads arrays of parameter files by scope and key; None if weights do not become constants."""
    if not options.parameters or options.keep_parameters:
        return None
    return ParameterFiles(options.parameters).load
