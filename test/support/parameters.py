"""Move the constants of a program into a parameter file, which is read when the program is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import qmlir
from qmlir.dialect.constants import constant_array
from qmlir.ir.util_globals import declare, load_global, parameter

SCOPE = "model"


def _is_table(value: Any) -> bool:
    """Whether a constant is a codebook: a kernel is generated for its values, so it must stay a constant."""
    uses = [(use.owner.attributes, use.operand_number) for use in value.uses]
    return any("operand_names" in a and a["operand_names"][i].value == "codebook" for a, i in uses)


def apart(artifact: Any, path: Path, **options: Any) -> Any:
    """Compile an artifact's program again with its constants in the file `path`; codebooks stay constants."""
    import iree.runtime as rt

    from qmlir.core.mlir import context, ir

    arrays = {}
    with context():
        module = ir.Module.parse(artifact.source("import"))
        body = module.body.operations[0]
        constants = []

        def visit(op: Any) -> Any:
            tensor = op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType)
            if tensor and not _is_table(op.results[0]):
                constants.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        for i, op in enumerate(constants):
            t, key = op.results[0].type, f"p{i}"
            arrays[key] = np.ascontiguousarray(constant_array(op.results[0]))
            with ir.InsertionPoint(body):
                declare(key, t, parameter(SCOPE, key, t))
            with ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(load_global(key, t))
            op.erase()
        text = str(module)
    index = rt.ParameterIndex()
    for key, array in arrays.items():
        index.add_buffer(key, array.view(np.uint8).reshape(-1).tobytes())
    index.create_archive_file(str(path))
    return qmlir.compile(text, **options)
