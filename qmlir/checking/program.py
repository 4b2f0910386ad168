"""Prepares a program for evaluation layer by layer: verified, weights baked in, calls inlined, only one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..compiler.options import CompileOptions, Options, parameter_loader
from ..compiler.sources import builder
from ..passes.base import State
from ..passes.core.bake_parameters import BakeParametersPass
from ..passes.core.verify import VerifyPass
from .layers import inline_calls, only

if TYPE_CHECKING:
    from ..core.mlir import ir


def prepared(source: object, function: str, options: CompileOptions) -> Callable[[ir.Context], ir.Module]:
    """A function that builds the prepared module in a context. Of `options`, only `parameters` is used."""
    build = builder(source)
    load = parameter_loader(Options(parameters=dict(options.get("parameters") or {})))

    def make(ctx: ir.Context) -> ir.Module:
        module = build(ctx)
        state = State(parameters=load)
        VerifyPass().run(module, state)
        BakeParametersPass().run(module, state)
        inline_calls(module, function)
        only(module, function)
        return module

    return make
