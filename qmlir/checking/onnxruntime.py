"""The oracle `onnxruntime`: an ONNX model run by ONNX Runtime on the CPU. Outputs only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._mlir import context
from ..artifact import Signature
from ..compiler import builder
from ..dialect.dtypes import Array
from ..errors import InputError, UsageError
from ..inputs import Role
from ..signature import function_signatures
from .layers import Layer


class OnnxRuntime:
    """See `ways.Way`. The signature is that of the imported program, whose arguments have the model's names."""

    name = "onnxruntime"
    roles: list[Role] = []  # noqa: RUF012  (the checked program knows them)

    def __init__(self, source: Any, threads: int | None = None) -> None:
        try:
            import onnxruntime as ort
        except ImportError:
            raise UsageError("this oracle needs ONNX Runtime: pip install onnxruntime") from None
        with context() as ctx:
            self.signature: Signature = function_signatures(builder(source)(ctx))["main"]
        options = ort.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        model = os.fspath(source) if isinstance(source, (str, os.PathLike)) else source.SerializeToString()

        def session() -> Any:
            return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        try:
            try:
                self._session = session()
            except Exception as e:  # its errors have no common base
                if "use_per_session_threads" not in str(e):
                    raise
                options.use_per_session_threads = False  # the process has one pool for all sessions
                self._session = session()
        except Exception as e:
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


def open(source: Any, function: str, options: Mapping[str, Any]) -> OnnxRuntime:
    """The oracle for an ONNX model.

    Raises:
        UsageError: another source, or no ONNX Runtime.
    """
    is_file = isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".onnx"
    if not is_file and not hasattr(source, "SerializeToString"):
        raise UsageError("'onnxruntime' runs ONNX models; for another program use --against reference")
    return OnnxRuntime(source, options.get("threads"))
