"""Writes errors.md: every error class with the message of an example, which runs when the page is written."""

from __future__ import annotations

import inspect
import re
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import qmlir
from qmlir import errors

from .guides import product


@dataclass(frozen=True)
class Example:
    """Code that raises the error, and the remedy."""

    error: type[errors.QmlirError]
    code: str
    remedy: str


EXAMPLES = (
    Example(
        errors.UsageError,
        'qmlir.ops.scaled_matmul(x, w, activatoin="relu")',
        "The message names the argument and the known argument with the most similar name.",
    ),
    Example(
        errors.UsageError,
        'qmlir.ops.scaled_matmul(x, w.view(np.uint8), rhs_packing="low_first")',
        "The type of packed codes cannot be inferred from their bytes.",
    ),
    Example(
        errors.VerifyError,
        "qmlir.ops.scaled_matmul(x, w[:7])",
        "The shapes of operands do not match. For a program the message begins with `file:line:col`.",
    ),
    Example(
        errors.VerifyError,
        "qmlir.ops.scaled_matmul(x, w, rhs_scale=np.ones((3, 4), np.float32))",
        "Scales are per tensor, per row, per column, or per group along K.",
    ),
    Example(
        errors.ParseError,
        'qmlir.compile("func.func @main(%x: tensor<4xf32>) { retrun }")',
        "The location is that of MLIR's parser.",
    ),
    Example(
        errors.TargetError,
        'qmlir.compile(program, target="cuda:sm_8")',
        "`qmlir targets` lists all targets.",
    ),
    Example(
        errors.PassError,
        'qmlir.ops.scaled_matmul(x.astype(ml_dtypes.float8_e4m3fn), w, rhs_zero_point=0.5, rhs_zero_mode="rescale")',
        "The combination is unsupported. `reproducer` is a file whose first line is the command that repeats the "
        "failure.",
    ),
    Example(
        errors.CompileError,
        'qmlir.compile(slow, target="vulkan:ada", strict=True)',
        "Here `strict=True` turns the warning about slow code into this error. It is also raised when IREE's compiler "
        "fails or a limit of\ntime or memory is exceeded.",
    ),
    Example(
        errors.InputError,
        "layer(np.zeros((2, 9), np.int8))",
        "The arguments do not match the signature of the function, which is part of the message.",
    ),
    Example(
        errors.ArtifactError,
        'qmlir.load(folder / "cut.vmfb")',
        "The file is damaged, from another program, or for another machine.",
    ),
    Example(
        errors.CheckpointError,
        'qmlir.checkpoint.open(folder / "model.gguf")',
        "The checkpoint is damaged, or its format is unsupported ([supported formats](checkpoints.md)).",
    ),
    Example(
        errors.FrontEndError,
        'qmlir.compile(folder / "model.onnx")',
        "The message names the front end, and the node or the line of the model's source.",
    ),
)


def page() -> str:
    """The text of errors.md."""
    parts = [_HEAD]
    for error in dict.fromkeys(e.error for e in EXAMPLES):
        parts.append(f"## {error.__name__}\n\n{inspect.getdoc(error)}\n")
        for example in (e for e in EXAMPLES if e.error is error):
            parts.append(f"```python\n{example.code}\n```\n\n```text\n{_message(example)}\n```\n\n{example.remedy}\n")
    return "\n".join([*parts, _OTHERS])


_OTHERS = f"""## EmulationError

{inspect.getdoc(qmlir.EmulationError)}

Raised on [emulated GPUs](emulation.md#detected-faults) only.

## Warnings

| warning | reported |
|---|---|
| `SlowFallbackWarning` | {inspect.getdoc(errors.SlowFallbackWarning)} |
| `TuningWarning` | {inspect.getdoc(errors.TuningWarning)} |
| `EagerFallbackWarning` | A subgraph of `torch.compile` does not compile and runs eagerly ([torch](torch.md#torchcompile)). |

`DiagnosticsError` is the base class of the errors that point into a program; each of their `diagnostics` has a message
and a location.
"""  # noqa: E501
_HEAD = """# Error catalogue

*This page is written by `python docs/generate.py`, which runs the examples.*

All errors of qmlir are subclasses of `qmlir.errors.QmlirError`; Python itself raises a TypeError for a keyword that a
function does not have, and `qmlir.reference`, which is numpy, raises numpy's errors and ValueError. A message says what
is wrong, where, why, and what would work. On the command line it is printed without a traceback, and the exit code is
1, or 2 for wrong usage. A traceback is a bug of qmlir: please report it. [Declined or slow operations](refused.md)
describes why the strategies of a target decline a product.

In the examples, `x` is `int8[2, 8]`, `w` is `int8[8, 4]`, `layer` is a function compiled for `x`, `program` is MLIR
text, and `slow` is a product of floats with a dynamic number of rows.
"""


def _message(example: Example) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("cut.vmfb", "model.gguf", "model.onnx"):
            (folder / file).write_bytes(b"\0" * 100)
        w = np.ones((8, 4), np.int8)
        known: dict[str, Any] = {
            "qmlir": qmlir,
            "np": np,
            "ml_dtypes": ml_dtypes,
            "x": np.ones((2, 8), np.int8),
            "w": w,
            "folder": folder,
        }
        known["slow"] = product("?", 64, 32, "f16", "f16", "f32")
        known["program"] = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
        if "layer" in example.code:
            spec = qmlir.TensorSpec((2, 8), "i8")
            known["layer"] = qmlir.load(qmlir.ops.scaled_matmul.compile(spec, w, out_dtype="i32")).main
        try:
            eval(example.code, known)
        except example.error as e:
            text = re.sub(r"(?<=^reproducer: ).*", "FILE", str(e).replace(f"{folder}/", ""), flags=re.M)
            return "\n".join(line for part in text.splitlines() for line in textwrap.wrap(part, 118) or [""])
    raise AssertionError(f"{example.code} raises no {example.error.__name__}")
