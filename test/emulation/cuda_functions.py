"""A program for CUDA, and its function as a real device would have it, on an emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np

import qmlir
from qmlir.runtime.cuda_function import CudaFunction

W = np.arange(64, dtype=np.int8).reshape(8, 8)


def product() -> qmlir.Artifact:
    """`x @ W` of codes, for sm_80."""
    return qmlir.ops.scaled_matmul.compile(qmlir.TensorSpec((None, 8), "i8"), W, out_dtype="i32", target="cuda:sm_80")


def as_on_a_device(program: Any) -> CudaFunction:
    """The function `main` of an emulated program, of the class that real devices get."""
    main = program.functions["main"]
    return CudaFunction("main", main.signature, program, main._function)
