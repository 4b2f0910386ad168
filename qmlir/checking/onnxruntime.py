"""The oracle `onnxruntime`: an ONNX model run by ONNX Runtime on the CPU. Outputs only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import numpy as np

from ..compiler.options import CompileOptions
from ..compiler.sources import builder
from ..core.mlir import context
from ..core.rows import RoleRow
from ..dialect.dtypes import Array
from ..errors import InputError, UsageError
from ..ir.signature import function_signatures
from ..spec import Signature
from .layers import Layer

if TYPE_CHECKING:
    import onnx
    from onnxruntime import InferenceSession

OnnxSource: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto"


def session(model: OnnxSource, threads: int | None = None) -> InferenceSession:
    """An `onnxruntime.InferenceSession` on the CPU whose products of u8 activations are exact.

    On x86-64 CPUs without VNNI, ONNX Runtime adds pairs of u8 x s8 products in saturating 16-bit arithmetic, and its
    results are wrong by tens of codes; `session.x64quantprecision` makes it multiply u8 x u8 there. Models with s8
    activations, for which it has no such kernel, are run without this option.

    Args:
        model: a path, or an `onnx.ModelProto`.
        threads: number of threads within an operator; None: ONNX Runtime's choice.
    """
    import onnxruntime as ort

    source = os.fspath(model) if isinstance(model, (str, os.PathLike)) else model.SerializeToString()

    def made(precise: bool, own_threads: bool) -> InferenceSession:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.use_per_session_threads = own_threads
        if threads is not None:
            options.intra_op_num_threads = threads
        if precise:
            options.add_session_config_entry("session.x64quantprecision", "1")
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    precise, own_threads = True, True
    while True:
        try:
            return made(precise, own_threads)
        except Exception as e:  # its errors have no common base
            if own_threads and "use_per_session_threads" in str(e):
                own_threads = False  # the process has one pool for all sessions
            elif precise and "NOT_IMPLEMENTED" in str(e):
                precise = False
            else:
                raise


class OnnxRuntime:
    """Runs an ONNX model; see `runners.Runner`. The signature is the imported program's, with the model's names."""

    name = "onnxruntime"
    roles: list[RoleRow] = []  # noqa: RUF012  (the checked program knows them)

    def __init__(self, source: OnnxSource, threads: int | None = None) -> None:
        with context() as ctx:
            self.signature: Signature = function_signatures(builder(source)(ctx))["main"]
        try:
            self._session = session(source, threads)
        except ImportError:
            raise UsageError("this oracle needs ONNX Runtime: pip install onnxruntime") from None
        except Exception as e:  # its errors have no common base
            raise UsageError(f"ONNX Runtime cannot load the model: {str(e).splitlines()[0]}") from None

    def run(self, arguments: Sequence[Array]) -> list[Array]:
        named = {i.name: np.asarray(x) for i, x in zip(self._session.get_inputs(), arguments, strict=True)}
        try:
            return [np.asarray(x) for x in self._session.run(None, named)]
        except Exception as e:
            raise InputError(f"ONNX Runtime: {str(e).splitlines()[0]}") from None

    def layers(self) -> list[Layer]:
        return []

    def run_layers(self, arguments: Sequence[Array], chosen: Sequence[Layer], alone: bool = False) -> list[Array]:
        return []


def _is_model(source: object) -> TypeGuard[OnnxSource]:
    is_file = isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".onnx"
    return is_file or hasattr(source, "SerializeToString")


def open(source: object, function: str, options: CompileOptions, threads: int | None = None) -> OnnxRuntime:
    """The oracle for an ONNX model.

    Raises:
        UsageError: the source is not an ONNX model, or ONNX Runtime is not installed.
    """
    if not _is_model(source):
        raise UsageError("'onnxruntime' runs ONNX models; for another program use --against reference")
    return OnnxRuntime(source, threads)
