"""A program with its constants as parameters of a file, which it loads when it is loaded itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import qmlir
from qmlir.dialect.ops.constants import constant_array

SCOPE = "model"


def apart(artifact: Any, path: Path, **options: Any) -> Any:
    """The program of an artifact, compiled again with what its constants hold in the file `path`."""
    import iree.runtime as rt

    from qmlir._mlir import context, ir

    arrays = {}
    with context():
        module = ir.Module.parse(artifact.source("import"))
        body = module.body.operations[0]
        constants = []

        def visit(op: Any) -> Any:
            if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
                constants.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        for i, op in enumerate(constants):
            t, key = op.results[0].type, f"p{i}"
            arrays[key] = np.ascontiguousarray(constant_array(op.results[0]))
            with ir.InsertionPoint(body):
                ir.Operation.create("util.global", attributes={
                    "sym_name": ir.StringAttr.get(key), "type": ir.TypeAttr.get(t),
                    "sym_visibility": ir.StringAttr.get("private"),
                    "initial_value": ir.Attribute.parse(f'#flow.parameter.named<"{SCOPE}"::"{key}"> : {t}'),
                })  # fmt: skip
            with ir.InsertionPoint(op):
                name = ir.FlatSymbolRefAttr.get(key)
                load = ir.Operation.create("util.global.load", results=[t], attributes={"global": name})
            op.results[0].replace_all_uses_with(load.results[0])
            op.erase()
        text = str(module)
    index = rt.ParameterIndex()
    for key, array in arrays.items():
        index.add_buffer(key, array.view(np.uint8).reshape(-1).tobytes())
    index.create_archive_file(str(path))
    return qmlir.compile(text, **options)
