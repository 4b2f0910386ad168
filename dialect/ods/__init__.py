"""The definition layer: one Python class per operation provides the view through which passes read it, a typed builder,
the verifier, the signature of the Python function (`qmlir.ops`) and the upstream IRDL text.

A class attribute declares each operand, attribute and result::

    class QuantizeOp(Op, name="quantize"):
        input = operand(FLOAT)
        scale = operand(SCALE)
        zero_point = operand(INT, optional=True)
        rounding = attr(Enum(ROUNDING), default="half_even")
        result = result(INT)

An op with optional operands lists the names of the operands that it has, in their order::

    %0 = "qmlir.quantize"(%x, %s, %z) {operand_names = ["input", "scale", "zero_point"]} : ...

so that a definition can gain an operand without changes to saved programs. The names may be left out if only the
required operands are given, in the order of the definition.

Ops of an unregistered dialect have no C++ verifier: `verify_module`, which the `qmlir-verify` pass runs, replaces it.
`irdl_text` describes the same structure for `iree-opt --irdl-file`.

| file | contents |
|---|---|
| `constraints.py` | constraints on types, kinds of attributes |
| `fields.py` | declarations of operands, attributes, results and parameters |
| `coded_operand.py` | which fields say how an operand's codes are decoded |
| `op.py` | the base class: declarations, builder, view |
| `view.py` | the rules of a class, applied to values that are not such an op |
| `verifier.py` | the verifier |
| `irdl.py` | IRDL text |
"""

from __future__ import annotations

from .coded_operand import CodedOperand, product_sides
from .constraints import (
    ANY,
    BOOL,
    CODE,
    F32,
    FLOAT,
    I64,
    INDEX,
    INT,
    NUMBER,
    RESULT,
    SPARSE_INDEX,
    ZERO,
    AttrKind,
    Constraint,
    Enum,
    F64s,
    I64s,
    OpError,
    fail,
    tensor_of,
)
from .fields import Field, attr, operand, parameter, result
from .irdl import irdl_text
from .op import (
    NAMESPACE,
    OPERAND_NAMES,
    OPS,
    Attributes,
    AxisSizes,
    Keywords,
    Op,
    Operands,
    Sizes,
    Spec,
    attribute_names,
    names_attribute,
    view_of,
    views_of,
)
from .verifier import SEGMENTS, misfit, problem, quoted_as, verify_module, verify_structure
from .view import FieldView

__all__ = [
    "ANY",
    "BOOL",
    "CODE",
    "F32",
    "FLOAT",
    "I64",
    "INDEX",
    "INT",
    "NAMESPACE",
    "NUMBER",
    "OPERAND_NAMES",
    "OPS",
    "RESULT",
    "SEGMENTS",
    "SPARSE_INDEX",
    "ZERO",
    "AttrKind",
    "Attributes",
    "AxisSizes",
    "CodedOperand",
    "Constraint",
    "Enum",
    "F64s",
    "Field",
    "FieldView",
    "I64s",
    "Keywords",
    "Op",
    "OpError",
    "Operands",
    "Sizes",
    "Spec",
    "attr",
    "attribute_names",
    "fail",
    "irdl_text",
    "misfit",
    "names_attribute",
    "operand",
    "parameter",
    "problem",
    "product_sides",
    "quoted_as",
    "result",
    "tensor_of",
    "verify_module",
    "verify_structure",
    "view_of",
    "views_of",
]
