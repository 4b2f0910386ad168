"""Emits products with a weight of a checkpoint, and gathers of its rows."""

from __future__ import annotations

from typing import Literal

import numpy as np

from .. import ops
from ..checkpoint import Activations, QuantizedWeight
from ..core.mlir import arith, ir
from ..dialect.dtypes import DTYPES, Array
from ..dialect.shapes import group_along
from ..errors import CheckpointError, UsageError
from ..ir.build import Arg, collapse, dense, dims, elementwise, expand, scalar
from ..passes.core.lower.blocks import gather, loop_i32, read
from ..spec import TensorSpec
from .program import ParameterGlobals

ModelWeight = QuantizedWeight | Array
# How inputs of layers are quantised: not at all (False), as the checkpoint says (True), or to int8 per token.
Quantize = Literal["token"] | bool
TOKEN = Activations("i8", "token", dynamic=True)


def spec_of(value: ir.Value, dtype: str) -> TensorSpec:
    """The spec of a tensor value."""
    t = value.type
    return TensorSpec(tuple(None if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank)), dtype)


def product(
    x: ir.Value, name: str, weight: ModelWeight, parameters: ParameterGlobals, *, bias: Array | None = None,
    residual: ir.Value | None = None, activation: str = "none", quantize: Quantize = False,
) -> ir.Value:  # fmt: skip
    """`activation(x @ weight^T + bias + residual)`, x f32 `[M, K]`.

    Args:
        name: the weight's name, from which the names of its parameters are made.
        quantize: how the input of a quantised weight is quantised: True as the checkpoint says
            (`QuantizedWeight.activations`), "token" to int8 with one scale per token.
    """
    values: dict[str, ir.Value] = {"lhs": x}
    specs = {"lhs": spec_of(x, "f32")}
    attributes: dict[str, object] = {"activation": activation, "out_dtype": "f32"}
    if isinstance(weight, QuantizedWeight):
        if weight.order is not None:
            values["lhs"] = _reordered(x, weight.order, name, parameters)
        said = TOKEN if quantize == "token" else weight.activations if quantize else None
        if said is not None:
            _quantize(values, specs, attributes, said, name)
        operands = weight.operands()
    else:
        operands = {"rhs": weight, "rhs_transposed": True}
    for key, value in operands.items():
        if isinstance(value, (np.ndarray, np.generic)):
            values[key], specs[key] = parameters.load(_key(name, key), np.asarray(value))
        else:
            attributes[key] = value
    if bias is not None:
        values["bias"], specs["bias"] = parameters.load(name.removesuffix(".weight") + ".bias", bias.astype(np.float32))
        attributes["bias_stage"] = "scaled"
    if residual is not None:
        values["c"], specs["c"] = residual, spec_of(residual, "f32")
        attributes["beta"] = 1.0
    # The checkpoint states its groups, so short ones are no mistake: state `group_size`.
    scales = [specs[n].shape if n in specs else None for n in ("rhs_scale", "rhs_zero_point")]
    codes = (
        (*specs["rhs"].shape[:-1], specs["lhs"].shape[-1]) if attributes.get("rhs_transposed") else specs["rhs"].shape
    )
    if (group := group_along(codes, -1 if attributes.get("rhs_transposed") else -2, *scales)) is not None:
        attributes["group_size"] = group
    return ops.scaled_matmul.emit(values, specs, attributes)[0][0]


def _key(name: str, operand: str) -> str:
    """The parameter's name: codes have the weight's name; other operands append theirs, such as `.scale`."""
    return name if operand == "rhs" else f"{name}.{operand.removeprefix('rhs_')}"


def _reordered(x: ir.Value, order: Array, name: str, parameters: ParameterGlobals) -> ir.Value:
    """The inputs in the weight's order: column j is input `order[j]`."""
    where, _ = parameters.load(f"{name}.order", order.astype(np.int32))
    sizes = dims(x)
    return elementwise([Arg(where, (1,))], sizes, x.type.element_type,
                       lambda column: read(x, loop_i32(0), column))  # fmt: skip


def _quantize(
    values: dict[str, ir.Value],
    specs: dict[str, TensorSpec],
    attributes: dict[str, object],
    said: Activations,
    name: str,
) -> None:
    """Replace the input by its codes, quantised as `said` states, and add its scale and zero point."""
    x, spec = values["lhs"], specs["lhs"]
    if said.dtype != "i8" and not (said.dtype == "e4m3" and said.dynamic):
        how = "from the data" if said.dynamic else "of its own"
        raise CheckpointError(
            f"the input of {name!r} is {said.dtype} with a scale {how}; known: i8, and e4m3 with a scale from the "
            "data. Import it without --quantize-activations"
        )
    if said.dynamic:
        keywords: dict[str, object] = {
            "granularity": said.granularity,
            "out_dtype": said.dtype,
            "symmetric": said.symmetric,
        }
        if said.group_size is not None:
            keywords["group_size"] = said.group_size
        keywords["recipe"] = "torchao" if said.dtype == "i8" else "amax"
        made = ops.dynamic_quantize.emit({"input": x}, {"input": spec}, keywords)
        for key, (value, made_spec) in zip(("lhs", "lhs_scale", "lhs_zero_point"), made, strict=False):
            values[key], specs[key] = value, made_spec
    else:
        scale = dense(np.asarray(said.scale, np.float32), "f32")
        given = {"input": x, "scale": scale}
        given_specs = {"input": spec, "scale": TensorSpec((), "f32")}
        if said.zero_point is not None:
            given["zero_point"] = dense(np.asarray(said.zero_point, np.int32))
            given_specs["zero_point"] = TensorSpec((), "i32")
        values["lhs"], specs["lhs"] = ops.quantize.emit(given, given_specs, {"out_dtype": said.dtype})[0]
        values["lhs_scale"], specs["lhs_scale"] = scale, TensorSpec((), "f32")
        if said.zero_point is not None:
            values["lhs_zero_point"], specs["lhs_zero_point"] = given["zero_point"], TensorSpec((), "i32")
    if "lhs_zero_point" in values:
        attributes["lhs_zero_mode"] = "int"
    attributes["lhs_dtype"] = said.dtype


def rows(ids: ir.Value, name: str, weight: ModelWeight, parameters: ParameterGlobals) -> ir.Value:
    """Rows `[T, K]` of a weight `[V, K]`, f32, at ids `[T]` (i32, in range): only these rows are dequantised."""
    f32 = ir.F32Type.get()
    if not isinstance(weight, QuantizedWeight):
        value, spec = parameters.load(name, weight)
        found = gather(value, ids)
        return found if spec.dtype == "f32" else _widened(found, f32)
    if not weight.transposed or weight.order is not None or weight.scale.ndim != 2:
        raise UsageError(f"{name!r} is stored by columns, so that rows of it cannot be taken; it is an embedding")
    values: dict[str, ir.Value] = {}
    specs: dict[str, TensorSpec] = {}
    kept = {"rhs": "input", "rhs_scale": "scale", "rhs_zero_point": "zero_point", "codebook": "codebook"}
    for key, operand in weight.operands().items():
        if key not in kept:
            continue
        stored = np.asarray(operand)
        whole, spec = parameters.load(_key(name, key), stored)
        taken = whole if key == "codebook" or stored.shape[0] == 1 else gather(whole, _blocks(ids, weight, stored))
        values[kept[key]] = taken
        specs[kept[key]] = spec_of(taken, spec.dtype)
    attributes: dict[str, object] = {"dtype": weight.dtype, "zero_mode": weight.zero_mode, "packing": weight.packing}
    if weight.packing != "none":
        attributes["length"] = weight.shape[-1]
    if DTYPES[weight.dtype].kind == "float":
        found = _scaled(_widened(values["input"], f32), values["scale"])
    else:
        found = ops.dequantize.emit(values, specs, attributes)[0][0]
    if weight.global_scale is None:
        return found
    overall, _ = parameters.load(_key(name, "rhs_global_scale"), np.asarray(weight.global_scale, np.float32))
    sizes = dims(found)
    return elementwise([Arg.aligned(found, sizes), Arg.aligned(overall, sizes)], sizes, f32,
                       lambda a, b: arith.mulf(a, b))  # fmt: skip


def _blocks(ids: ir.Value, weight: QuantizedWeight, stored: Array) -> ir.Value:
    """The rows of `stored` for the rows `ids` of the weight: `stored` may have one row per block of rows."""
    size = weight.shape[0] // stored.shape[0]
    if size == 1:
        return ids
    sizes = dims(ids)
    t = ids.type.element_type
    return elementwise([Arg.aligned(ids, sizes)], sizes, t, lambda i: arith.divui(i, scalar(size, t)))


def _scaled(value: ir.Value, scale: ir.Value) -> ir.Value:
    """Multiply floats `[T, K]` by scales `[T, G]` or `[1, G]` of groups along K. `dequantize` takes no float codes."""
    f32, k, groups = value.type.element_type, value.type.get_dim_size(1), scale.type.get_dim_size(1)
    if scale.type.element_type != f32:
        scale = _widened(scale, f32)
    parts = expand(value, [[dims(value)[0]], [groups, k // groups]])
    sizes = dims(parts)
    each = expand(scale, [[dims(scale)[0]], [groups, 1]])
    made = elementwise([Arg.aligned(parts, sizes), Arg.aligned(each, sizes)], sizes, f32, arith.mulf)
    return collapse(made, [[0], [1, 2]])


def _widened(value: ir.Value, t: ir.Type) -> ir.Value:
    sizes = dims(value)
    return elementwise([Arg.aligned(value, sizes)], sizes, t, lambda x: arith.extf(t, x))
