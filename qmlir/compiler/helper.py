"""The program of the helper threads, compiled once and stored in every program that can use it."""

from __future__ import annotations

import base64
import functools
import zlib
from collections.abc import Callable
from typing import TypeAlias

from ..core.cache import Cache, key_of
from ..core.mlir import ir
from ..targets import Target, resolve
from ..targets.cpu.threads.board import HELPER, SETTER
from ..targets.cpu.threads.worker import module

# Compiles the module that a function builds in a context, for a target. `run` passes it, because it imports this
# module.
Compile: TypeAlias = "Callable[[Callable[[ir.Context], ir.Module], Target], bytes]"


def attach_helper(program: ir.Module, compile_for: Compile, *, cached: bool) -> None:
    """Store the helper's program in a program whose kernels share their work with helpers (`targets/cpu/threads`).

    Args:
        cached: whether the compilation cache may be used.
    """
    setter = next((op for op in program.body.operations if op.operation.name == "func.func"
                   and op.attributes["sym_name"].value == SETTER), None)  # fmt: skip
    if setter is not None:
        text = _helper_text(compile_for, cached)
        setter.attributes["iree.reflection"] = ir.DictAttr.get({HELPER: ir.StringAttr.get(text)})


@functools.cache
def _helper_text(compile_for: Compile, cached: bool) -> str:
    """The compiled program of the helper as text (6 KB). Programs contain it so that loading them needs no compiler."""
    target = resolve("cpu:x86-64")

    def made() -> bytes:
        return compile_for(lambda ctx: module(), target)

    key = key_of(["helper of a team", target.row()])
    return base64.b64encode(zlib.compress(Cache().get_or_build(key, made) if cached else made(), 9)).decode()
