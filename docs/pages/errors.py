"""The catalogue of errors: every class with a message that its example gives, which is run when the page is written."""

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


@dataclass(frozen=True)
class Example:
    """Code that raises, and what to do about it."""

    error: type[errors.QmlirError]
    code: str
    remedy: str


EXAMPLES = (
    Example(
        errors.UsageError,
        'qmlir.ops.scaled_matmul(x, w, activatoin="relu")',
        "The call is wrong, whatever the data: the message names the argument, and the nearest one that there is.",
    ),
    Example(
        errors.UsageError,
        'qmlir.ops.scaled_matmul(x, w.view(np.uint8), rhs_packing="low_first")',
        "Packed bytes do not say what they hold.",
    ),
    Example(
        errors.VerifyError,
        "qmlir.ops.scaled_matmul(x, w[:7])",
        "Operands do not fit each other. In a program the message begins with `file:line:col`.",
    ),
    Example(
        errors.VerifyError,
        "qmlir.ops.scaled_matmul(x, w, rhs_scale=np.ones((3, 4), np.float32))",
        "A scale is one number, one a row, one a column, or one for each group along K.",
    ),
    Example(
        errors.ParseError,
        'qmlir.compile("func.func @main(%x: tensor<4xf32>) { retrun }")',
        "The text is no MLIR; the place is that of MLIR's parser.",
    ),
    Example(
        errors.TargetError,
        'qmlir.compile(program, target="cuda:sm_8")',
        "`qmlir targets` lists what there is.",
    ),
    Example(
        errors.PassError,
        'qmlir.ops.scaled_matmul(x.astype(ml_dtypes.float8_e4m3fn), w, rhs_zero_point=0.5, rhs_zero_mode="rescale")',
        "A pass cannot do what is asked. Where it was in the middle of its work the message names a file that repeats "
        "the failure with one command.",
    ),
    Example(
        errors.InputError,
        "layer(np.zeros((2, 9), np.int8))",
        "A call's arguments do not fit the program's signature, which the message repeats.",
    ),
    Example(
        errors.ArtifactError,
        'qmlir.load(folder / "cut.vmfb")',
        "The file is not what the compiler wrote, or not for this machine.",
    ),
    Example(
        errors.CheckpointError,
        'qmlir.checkpoint.open(folder / "model.gguf")',
        "A checkpoint is damaged, or not of a form that is read ([checkpoints](checkpoints.md)).",
    ),
    Example(
        errors.FrontEndError,
        'qmlir.compile(folder / "model.onnx")',
        "A model cannot be imported: the message names the front end, and the node or the line of the model's source.",
    ),
)


def page() -> str:
    """The text of errors.md."""
    parts = [_HEAD]
    for error in dict.fromkeys(e.error for e in EXAMPLES):
        parts.append(f"## {error.__name__}\n\n{inspect.getdoc(error)}\n")
        for example in (e for e in EXAMPLES if e.error is error):
            parts.append(f"```python\n{example.code}\n```\n\n```text\n{_message(example)}\n```\n\n{example.remedy}\n")
    return "\n".join(parts)


_HEAD = """# Errors

*This page is written by `python docs/generate.py`, which runs the examples.*

Everything that qmlir raises on purpose is a `qmlir.errors.QmlirError`; its message says what is wrong, where, why, and
what would work. On the command line it is printed without a traceback, and the exit code is 1, or 2 for a wrong call. A
traceback is a fault of qmlir: please report it. Warnings are `SlowFallbackWarning` (a part of the program is known to
be slow on the target; `strict=True` makes it an error) and `TuningWarning`. Why no strategy of a target takes a product
is on [a page of its own](refused.md).

In the examples `x` is `int8[2, 8]`, `w` `int8[8, 4]`, and `layer` a program compiled for `x`.
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
