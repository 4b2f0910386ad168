"""The layers of a program, which are its intermediate values worth comparing, and rewrites that make a function
return them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.mlir import func, ir
from ..core.spelling import function_named, location_text
from ..dialect.ods import OPS
from ..ir.signature import public_functions
from ..ir.walk import operations_of
from ..kernels.attention import OP as ATTENTION

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# Ops whose results are not layers: they create, move or reinterpret values, and compute nothing.
_NOT_LAYERS = ("arith.constant", "arith.bitcast", "linalg.fill", "linalg.transpose", "linalg.broadcast", "linalg.copy")


@dataclass(frozen=True)
class Layer:
    """One intermediate value of a function, in program order."""

    name: str
    op: str
    location: str
    shape: tuple[int | None, ...]
    element: str
    position: tuple[int, int]  # index of the op in the function's block, and of the result in the op

    @property
    def form(self) -> tuple[object, ...]:
        """The key by which a layer of another program is matched with this one."""
        return self.op, self.shape, self.element


def function_of(module: ir.Module, name: str) -> OpLike:
    """The public function `name`.

    Raises:
        UsageError: there is no such function; the message lists those that exist.
    """
    return function_named({f.attributes["sym_name"].value: f for f in public_functions(module)}, name)


def inline_calls(module: ir.Module, name: str) -> None:
    """Replace calls in the function by the bodies they call, so that every layer is in one block. MLIR's inliner does
    not inline ops of unregistered dialects."""
    f = function_of(module, name)
    functions = {op.attributes["sym_name"].value: op for op in operations_of(module.body) if op.name == "func.func"}
    for _ in range(10_000):  # bounded, because a program may be recursive; that does not compile either
        block = f.regions[0].blocks[0]
        call = next((op for op in operations_of(block) if op.name == "func.call"), None)
        if call is None:
            return
        callee = functions.get(call.attributes["callee"].value)
        if callee is None or not len(callee.regions[0].blocks) or callee == f:
            return
        # Cloning the whole function remaps its values; the ops of the clone are then moved in front of the call.
        with ir.InsertionPoint(callee):
            copy = callee.clone()
        body = copy.regions[0].blocks[0]
        for argument, value in zip(body.arguments, list(call.operands), strict=True):
            argument.replace_all_uses_with(value)
        *ops, last = operations_of(body)
        for op in ops:
            op.move_before(call)
        for old, new in zip(call.results, list(last.operands), strict=True):
            old.replace_all_uses_with(new)
        call.erase()
        copy.erase()


def layers(module: ir.Module, name: str) -> list[Layer]:
    """The layers of a function: results of the dialect's ops, and tensors that other ops compute."""
    found: list[Layer] = []
    counts: dict[str, int] = {}
    for number, op in enumerate(function_of(module, name).regions[0].blocks[0].operations):
        operation = op.operation
        if operation.name not in OPS and (
            operation.name in _NOT_LAYERS or not operation.name.startswith(("linalg.", "arith.", "math.", ATTENTION))
        ):
            continue
        for which, result in enumerate(operation.results):
            if not isinstance(result.type, ir.RankedTensorType):
                continue
            t = ir.RankedTensorType(result.type)
            shape = tuple(None if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank))
            short = operation.name.split(".", 1)[1]
            counts[short] = counts.get(short, 0) + 1
            named = isinstance(operation.location, ir.NameLoc)
            own = operation.location.name_str if named else ""
            label = own or f"{short}_{counts[short]}"
            if own and len(operation.results) > 1:
                label = f"{own}.{which}"
            place = location_text(operation.location.child_loc if named else operation.location)
            found.append(Layer(label, operation.name, place, shape, str(t.element_type), (number, which)))
    return found


def return_also(module: ir.Module, name: str, chosen: Sequence[Layer], alone: bool = False) -> None:
    """Make the function return the chosen layers after its own results, or only the layers if `alone`."""
    f = function_of(module, name)
    block = f.regions[0].blocks[0]
    ops = operations_of(block)
    values = [ops[layer.position[0]].results[layer.position[1]] for layer in chosen]
    last = ops[-1]
    kept = [] if alone else list(last.operands)
    returned = [*kept, *values]
    with ir.InsertionPoint(last), last.location:
        func.ReturnOp(returned)
    last.erase()
    t = ir.FunctionType(ir.TypeAttr(f.attributes["function_type"]).value)
    f.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(t.inputs, [v.type for v in returned]))
    if "res_attrs" in f.attributes:
        own = [] if alone else list(f.attributes["res_attrs"])
        f.attributes["res_attrs"] = ir.ArrayAttr.get([*own, *[ir.DictAttr.get({}) for _ in values]])


def only(module: ir.Module, name: str) -> None:
    """Remove all public functions except `name`."""
    for f in public_functions(module):
        if f.attributes["sym_name"].value != name:
            f.erase()
