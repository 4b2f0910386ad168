"""One linear layer of a checkpoint as a program."""

from __future__ import annotations

import numpy as np

from ..checkpoint import QuantizedWeight
from ..checkpoint.contents import Checkpoint
from ..core.mlir import context, func, ir
from ..dialect.dtypes import Array
from ..errors import UsageError
from ..ir.signature import NAME
from .program import Imported, ParameterGlobals
from .weights import Quantize, product


def linear(model: Checkpoint, name: str, *, quantize_activations: Quantize = False) -> Imported:
    """`main(x: f32 [M, K]) -> f32 [M, N]`: the product with a weight of the checkpoint, plus its bias if it has one.

    Args:
        name: the weight's name, such as `model.layers.0.mlp.up_proj.weight`.
        quantize_activations: quantise the input, so that codes are multiplied: True as the checkpoint says, "token" to
            int8 with one scale per token.

    Raises:
        CheckpointError: no such tensor. UsageError: it is not a matrix, or its input cannot be quantised as asked.
    """
    weight = model[name]
    if len(weight.shape) != 2:
        raise UsageError(f"{name!r} has shape {list(weight.shape)}; a linear layer's weight is a matrix [N, K]")
    if quantize_activations and not isinstance(weight, QuantizedWeight):
        raise UsageError(f"{name!r} is not quantised, so that its input cannot be either")
    if quantize_activations is True and isinstance(weight, QuantizedWeight) and weight.activations is None:
        raise UsageError(
            f"the checkpoint does not say how the input of {name!r} is quantised; 'token' quantises it to int8"
        )
    bias_name = name.removesuffix(".weight") + ".bias"
    bias = _plain(model[bias_name], bias_name) if bias_name != name and bias_name in model else None
    n, k = weight.shape
    with context():
        module = ir.Module.create()
        parameters = ParameterGlobals(module)
        f32 = ir.F32Type.get()
        dynamic = ir.ShapedType.get_dynamic_size()
        with ir.InsertionPoint(module.body):
            types = [[ir.RankedTensorType.get([dynamic, size], f32)] for size in (k, n)]
            f = func.FuncOp("main", ir.FunctionType.get(*types))
            f.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({NAME: ir.StringAttr.get("input")})])
        with ir.InsertionPoint(f.add_entry_block()):
            x = f.arguments[0]
            func.ReturnOp([product(x, name, weight, parameters, bias=bias, quantize=quantize_activations)])
        return Imported(str(module), parameters.arrays)


def _plain(value: QuantizedWeight | Array, name: str) -> Array:
    if isinstance(value, QuantizedWeight):
        raise UsageError(f"{name!r} is quantised, but a bias is not")
    return np.asarray(value)
