"""Makes the manifest, which the compiler writes into a compiled program."""

from __future__ import annotations

import json
from math import prod

from ..core.iree import compiler_version
from ..core.mlir import api, ir
from ..core.rows import DecisionRow
from ..core.spelling import location_text
from ..core.version import __version__
from ..errors import Diagnostic, ParseError, UsageError
from ..ir.roles import roles
from ..ir.signature import function_signatures, public_functions, schemes
from ..ir.walk import op_counts
from ..kernels.at_load import taken_out
from ..passes.core.bake_parameters import named_parameters, parameter_scopes
from ..runtime.artifact import MANIFEST_KEY
from ..runtime.manifest import Manifest
from ..runtime.packed import SCOPE, to_text
from ..targets import Target
from ..targets.cpu.threads.cost import TASKS
from .invocation import invoke
from .options import Options


def for_tasks(strategies: list[DecisionRow]) -> list[DecisionRow]:
    """The contractions that IREE's task system distributes over threads: not those of built-in kernels with helpers."""

    def shared(s: DecisionRow) -> bool:
        plans = [a["plan"] for a in s["answers"] if a["strategy"] == s["chosen"]]
        return any(plan.get("route") == "kernel" and plan.get("threads") != TASKS for plan in plans)

    return [s for s in strategies if not shared(s)]


def work_of(strategies: list[DecisionRow]) -> int | None:
    """The number of multiply-adds of one call; None if some size is dynamic."""
    total = 0
    for s in strategies:
        sizes = [*s["batch"], s["m"], s["n"], s["k"]]
        known = [x for x in sizes if x is not None]
        if len(known) < len(sizes):
            return None
        total += prod(known)
    return total


def describe(module: ir.Module, target: Target, options: Options) -> Manifest:
    """The manifest, without the fields that are known only after the passes."""
    functions = function_signatures(module)
    if not functions:
        place = location_text(module.operation.location)
        raise ParseError([Diagnostic("the program has no public function", place)])
    scopes = parameter_scopes(module)
    kept = options.keep_parameters or not options.parameters
    unused = sorted(set(options.parameters) - set(scopes))
    if unused and options.start == "import":
        raise UsageError(
            f"the program has no parameters of scope {unused[0]!r}; its scopes: {', '.join(scopes) or 'none'}"
        )
    return Manifest(
        qmlir=__version__,
        iree=compiler_version(),
        target=target.spelling,
        capabilities=target.row(),
        driver=target.driver,
        cpu_features=list(target.capabilities.cpu_features),
        functions=functions,
        arguments=roles(module),
        ops=op_counts(module),
        schemes=schemes(module),
        parameters=list(scopes) if kept else [],
        parameter_types=named_parameters(module) if kept else [],
        source=options.origin,
    )


def packer_text(module: ir.Module, compiler: api.Session, target: Target, options: Options) -> str | None:
    """Move the packing of weights out of `module` into a program of its own. Returns that program, compiled, as text
    for the manifest; None if there is no such packing."""
    packer = taken_out(module, SCOPE)
    if packer is None:
        return None
    attach_manifest(packer, describe(packer, target, options))
    return to_text(invoke(compiler, packer))


def attach_manifest(module: ir.Module, manifest: Manifest) -> None:
    """Store the manifest as a reflection attribute of the first public function."""
    f = public_functions(module)[0]
    f.attributes["iree.reflection"] = ir.DictAttr.get(
        {MANIFEST_KEY: ir.StringAttr.get(json.dumps(manifest.to_json(), separators=(",", ":")))}
    )
