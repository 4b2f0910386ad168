"""qmlir.moe: a mixture-of-experts layer: two grouped products, with an activation and requantisation between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..dtypes import DTYPES, DType
from ..enums import (
    GATED,
    PACKING,
    RECIPE,
    ROUNDING,
    ROUTING_STAGE,
    SYMMETRIC_RECIPES,
    ZERO_MODE,
)
from ..ods import (
    ANY,
    BOOL,
    FLOAT,
    I64,
    INDEX,
    INT as INT_TENSOR,
    NUMBER,
    RESULT,
    ZERO,
    Attributes,
    CodedOperand,
    Enum,
    FieldView,
    Op,
    Operands,
    OpError,
    Sizes,
    Spec,
    attr,
    fail,
    operand,
    quoted_as,
    result as result_field,
)
from ..shapes import show
from ..sizes import Size
from .common import Intermediate, check_result, element_of, routed_shape, shape_of, tensor_type
from .grouped_matmul import GroupedMatmulOp
from .product import ROW_TYPES, WEIGHT_TYPES, activation_fields, columns

if TYPE_CHECKING:
    from ...core.mlir import ir

INTERMEDIATE = ("f32", "f16", "bf16", "i8", "u8")


class MoeOp(Op, name="moe"):
    """A mixture-of-experts layer: `out[t] = sum_k routing_weights[t,k] * (act(input[t] @ W1[e] + b1) @ W2[e] + b2)`,
    `e = expert_ids[t,k]`.

    `input [T, H]`, or `[T, topk, H]` with one row per slot; `w1 [E, H, F]` (`[E, H, 2F]` for a gated activation) and
    `w2 [E, F, N]`, or `[E, F, H]` and `[E, N, F]` with `weights_transposed`; biases `[F]` or `[E, F]`; result `[T, N]`.

    The intermediate `[T, topk, F]` holds floats or codes. Codes are requantised by `intermediate_scale []` if it is
    given, else by `dynamic_quantize` per token: symmetric for i8 with `recipe` torchao, amax or aiter, else asymmetric.
    Raises InputError for an id outside [0, E) unless skip_invalid. Source: docs/semantics.md, section 4.
    """

    SIDES = (
        CodedOperand("input", "input_dtype", "input_scale", ("input_zero_point",), "input_zero_mode"),
        CodedOperand(
            "w1", "weight_dtype", "w1_scale", ("w1_zero_point", "w2_zero_point"), "weight_zero_mode", "weight_packing"
        ),
    )

    input = operand(ANY, doc="codes or floats, tokens `[T, H]`, or `[T, topk, H]` with one row per slot")
    w1 = operand(ANY, doc="first weights, codes or floats `[E, H, F]`, of a gated activation `[E, H, 2F]`")
    w2 = operand(ANY, doc="second weights, codes or floats `[E, F, N]`")
    expert_ids = operand(INDEX, doc="the experts of each token `[T, topk]`")
    routing_weights = operand(FLOAT, doc="weights of the experts of each token `[T, topk]`")
    input_scale = operand(FLOAT, optional=True, doc="scale of `input`, broadcast in blocks against its shape")
    input_zero_point = operand(ZERO, optional=True, doc="zero point of `input`")
    w1_scale = operand(FLOAT, optional=True, doc="scale of `w1`, broadcast in blocks against its shape")
    w1_zero_point = operand(ZERO, optional=True, doc="zero point of `w1`, of any shape that its scale may have")
    w1_bias = operand(NUMBER, optional=True, doc="added after the first product, `[F]` or `[E, F]` (2F if gated)")
    w2_scale = operand(FLOAT, optional=True, doc="scale of `w2`, broadcast in blocks against its shape")
    w2_zero_point = operand(ZERO, optional=True, doc="zero point of `w2`, of any shape that its scale may have")
    w2_bias = operand(NUMBER, optional=True, doc="added after the second product, `[N]` or `[E, N]`")
    intermediate_scale = operand(FLOAT, optional=True, doc="scale of the intermediate's codes, `[]`")
    intermediate_zero_point = operand(INT_TENSOR, optional=True, doc="its zero point")
    codebook = operand(FLOAT, optional=True, doc="f32 `[16]`, the values of codes of dtype 'codebook'")

    input_dtype = attr(Enum(ROW_TYPES), doc="dtype of `input`, if it is not its array's")
    weight_dtype = attr(Enum(WEIGHT_TYPES), doc="dtype of both weights, if it is not their arrays'")
    weight_packing = attr(Enum(PACKING), default="none", doc="packing of both weights along their last axis")
    weight_zero_mode = attr(Enum(ZERO_MODE), default="none", implied=True, doc="meaning of their zero points")
    input_zero_mode = attr(Enum(("none", "int")), default="none", implied=True, doc="meaning of its zero point")
    compute_dtype = attr(
        Enum(("f32", "f16", "bf16")), doc="type that weights are rounded to if `input` is a float tensor"
    )
    weights_transposed = attr(BOOL, default=False, doc="whether the weights are `[E, F, H]` and `[E, N, F]`")
    activation, act_clamp, gate_layout = activation_fields()
    intermediate_dtype = attr(Enum(INTERMEDIATE), default="f32", doc="dtype between the two products")
    recipe = attr(Enum(RECIPE), default="torchao", doc="whose formula quantises an 8-bit intermediate per token")
    rounding = attr(Enum(ROUNDING), default="half_even", doc="how the intermediate is rounded to codes")
    routing_stage = attr(Enum(ROUTING_STAGE), default="output", doc="tensor that `routing_weights` multiply")
    skip_invalid = attr(BOOL, default=False, doc="whether ids outside [0, E) are skipped")
    out_dtype = attr(Enum(("f32", "f16", "bf16")), function_default="f32", doc="dtype of the result")
    group_size = attr(I64, doc="least elements along the contracted axes per scale, if below 8")
    result = result_field(RESULT, doc="`[T, N]`")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        w2 = {"rhs": operands["w2"]} | {
            name: operands[mine] for mine, name in (("w2_scale", "rhs_scale"), ("w2_bias", "bias")) if mine in operands
        }
        packed = {"rhs_dtype": attributes["weight_dtype"], "rhs_packing": attributes["weight_packing"]}
        n = columns(w2, packed, 1 if attributes["weights_transposed"] else 2)
        return [((operands["input"][0][0], n), attributes["out_dtype"])]

    # ---- the two products, for the verifier and the lowering

    @property
    def out_code(self) -> DType:
        """The dtype of the result: stated, or its element type's."""
        return DTYPES[self.out_dtype] if self.out_dtype else element_of(self.result)

    @property
    def intermediate_width(self) -> int | None:
        """The size F of the intermediate."""
        if not self.weights_transposed:
            return shape_of(self.w2)[1]
        n = shape_of(self.w1)[1]
        return n // 2 if n is not None and self.activation in GATED else n

    @property
    def quantises_dynamically(self) -> bool:
        """Whether the intermediate's scale is computed from the data."""
        return DTYPES[self.intermediate_dtype].is_int and self.intermediate_scale is None

    @property
    def symmetric(self) -> bool:
        """Whether a dynamically quantised intermediate has no zero point, which its dtype and the recipe determine."""
        return self.intermediate_dtype == "i8" and self.recipe in ("torchao", *SYMMETRIC_RECIPES)

    def first(self, **replaced: object) -> FieldView:
        """The product with W1, as a `grouped_matmul` whose result is the intermediate (f32 before a dynamic
        quantisation)."""
        slots = shape_of(self.expert_ids)
        out = "f32" if self.quantises_dynamically else self.intermediate_dtype
        t = tensor_type((*slots, self.intermediate_width), out)
        values = {
            "lhs": self.input, "rhs": self.w1, "lhs_dtype": self.input_dtype, "lhs_scale": self.input_scale,
            "lhs_zero_point": self.input_zero_point, "lhs_zero_mode": self.input_zero_mode,
            "rhs_scale": self.w1_scale, "rhs_zero_point": self.w1_zero_point,
            "rhs_zero_mode": self._mode(self.w1_zero_point), "activation": self.activation, "act_clamp": self.act_clamp,
            "gate_layout": self.gate_layout, "out_dtype": out, "out_scale": self.intermediate_scale,
            "out_zero_point": self.intermediate_zero_point, "result": Intermediate(t), "results": [Intermediate(t)],
        }  # fmt: skip
        return self._product(values, self.w1_bias, replaced)

    def second(
        self,
        hidden: Intermediate | ir.Value,
        scale: Intermediate | ir.Value | None,
        zero: Intermediate | ir.Value | None,
        **replaced: object,
    ) -> FieldView:
        """The product with W2, as a `grouped_matmul` of the intermediate `hidden` with its scale and zero point."""
        weighted = self.routing_stage == "output"
        t = (
            self.result.type
            if weighted
            else tensor_type((*shape_of(self.expert_ids), shape_of(self.result)[-1]), "f32")
        )
        values = {
            "lhs": hidden, "rhs": self.w2, "lhs_dtype": self.intermediate_dtype, "lhs_scale": scale,
            "lhs_zero_point": zero, "lhs_zero_mode": "none" if zero is None else "int",
            "rhs_scale": self.w2_scale, "rhs_zero_point": self.w2_zero_point,
            "rhs_zero_mode": self._mode(self.w2_zero_point), "result": Intermediate(t), "results": [Intermediate(t)],
            "routing_weights": self.routing_weights if weighted else None,
            "out_dtype": self.out_dtype if weighted else "f32",
        }  # fmt: skip
        return self._product(values, self.w2_bias, replaced)

    def _product(
        self, values: Mapping[str, object], bias: ir.Value | None, replaced: Mapping[str, object]
    ) -> FieldView:
        shared = {
            "expert_ids": self.expert_ids, "rhs_dtype": self.weight_dtype, "rhs_packing": self.weight_packing,
            "codebook": self.codebook, "compute_dtype": self.compute_dtype, "rounding": self.rounding,
            "rhs_transposed": self.weights_transposed, "skip_invalid": self.skip_invalid,
            "group_size": self.group_size, "bias": bias,
            "bias_stage": "acc" if bias is not None and element_of(bias).is_int else "scaled",
        }  # fmt: skip
        return FieldView(GroupedMatmulOp, {**shared, **values, **replaced})

    def _mode(self, zero: object) -> str:
        """The zero mode of a weight: the offset modes apply even without a zero point."""
        return str(self.weight_zero_mode) if zero is not None or self.weight_zero_mode.startswith("offset") else "none"

    def products(self) -> tuple[FieldView, FieldView]:
        """Both products, for an intermediate of which only the type is known."""
        ids = shape_of(self.expert_ids)
        hidden = Intermediate(tensor_type((*ids, self.intermediate_width), self.intermediate_dtype))
        scale: Intermediate | ir.Value | None = self.intermediate_scale
        zero: Intermediate | ir.Value | None = self.intermediate_zero_point
        if self.quantises_dynamically:
            scale = Intermediate(tensor_type((*ids, 1), "f32"))
            zero = None if self.symmetric else Intermediate(tensor_type((*ids, 1), "i32"))
        return self.first(), self.second(hidden, scale, zero)

    def sizes(self) -> Sizes:
        # The first product's N is the second's K, or twice that with a gated activation.
        width = Size("F", div=2) if self.activation in GATED else "F"
        found: Sizes = {}
        own_names: tuple[dict[str, str | Size], ...] = ({"K": "H", "N": "F"}, {"K": width})
        for product, names, own in zip(self.products(), (_FIRST, _SECOND), own_names, strict=True):
            for name, axes in product.sizes().items():
                if names.get(name, name) in self.operands_by_name():
                    found[names.get(name, name)] = tuple(_renamed_size(axis, own) for axis in axes)
        return {**found, "routing_weights": ("T", "topk"), "result": ("T", "N")}

    # ---- rules

    def verify_semantics(self) -> None:
        w1, w2 = shape_of(self.w1), shape_of(self.w2)
        if len(w1) != 3 or len(w2) != 3:
            fail(f"'w1' and 'w2' must have three axes, experts first, but are {self.w1.type} and {self.w2.type}")
        if w1[0] != w2[0]:
            fail(f"'w1' {show(w1)} holds {w1[0]} experts, but 'w2' {show(w2)} holds {w2[0]}")
        ids, weights = routed_shape(self.expert_ids), shape_of(self.routing_weights)
        if weights != ids:
            fail(f"'routing_weights' has shape {show(weights)}, but 'expert_ids' has {show(ids)}")
        if self.weight_zero_mode not in ("none", "offset_int", "offset_float") and not (
            self.w1_zero_point or self.w2_zero_point
        ):
            fail(
                f"attribute 'weight_zero_mode' is '{self.weight_zero_mode}', which needs operand 'w1_zero_point' or "
                "'w2_zero_point'"
            )
        self._verify_intermediate()
        first, second = self.products()
        columns, width = first.rhs_codes_shape()[1 if self.weights_transposed else 2], self.intermediate_width
        each = 2 if self.activation in GATED else 1
        if columns is not None and width is not None and columns != each * width:
            halves = f", a gate and a value each with '{self.activation}'" if each == 2 else ""
            fail(f"'w1' {show(w1)} gives {columns} columns, but 'w2' {show(w2)} takes {width} rows{halves}")
        _verify_product(first, _FIRST)
        _verify_product(second, _SECOND)
        rows = shape_of(self.input)[0]
        check_result(self.result, (rows, shape_of(self.result)[-1]))

    def _verify_intermediate(self) -> None:
        if not DTYPES[self.intermediate_dtype].is_int:
            for name in ("intermediate_scale", "intermediate_zero_point"):
                if getattr(self, name) is not None:
                    fail(
                        f"'{name}' requantises the intermediate, which is {self.intermediate_dtype}; state 'i8' or 'u8'"
                    )
            return
        if self.quantises_dynamically and self.recipe in SYMMETRIC_RECIPES and self.intermediate_dtype == "u8":
            fail(
                f"recipe '{self.recipe}' is symmetric, which u8 codes cannot be; use 'torchao', 'onnx' or 'fbgemm', "
                "or i8"
            )
        for name in ("intermediate_scale", "intermediate_zero_point"):
            value = getattr(self, name)
            if value is not None and any(s != 1 for s in shape_of(value)):
                fail(f"'{name}' is one value, because it is constant along the second product's K, but has shape "
                     f"{show(shape_of(value))}")  # fmt: skip
        if self.intermediate_zero_point is not None and self.intermediate_scale is None:
            fail(
                "'intermediate_zero_point' requires 'intermediate_scale'; a dynamic quantisation computes its own "
                "zero point"
            )


# The roles of fields in the rules of grouped_matmul, and the names of the same fields in this op.
_COMMON = {
    "rhs_dtype": "weight_dtype", "rhs_transposed": "weights_transposed", "rhs_packing": "weight_packing",
    "rhs_zero_mode": "weight_zero_mode",
}  # fmt: skip
_FIRST = _COMMON | {
    "lhs": "input", "rhs": "w1", "lhs_dtype": "input_dtype", "lhs_scale": "input_scale",
    "lhs_zero_point": "input_zero_point", "lhs_zero_mode": "input_zero_mode", "rhs_scale": "w1_scale",
    "rhs_zero_point": "w1_zero_point", "bias": "w1_bias", "out_scale": "intermediate_scale",
    "out_zero_point": "intermediate_zero_point", "out_dtype": "intermediate_dtype",
}  # fmt: skip
_SECOND = _COMMON | {
    "lhs": "intermediate", "rhs": "w2", "lhs_dtype": "intermediate_dtype", "lhs_scale": "intermediate_scale",
    "lhs_zero_point": "intermediate_zero_point", "rhs_scale": "w2_scale", "rhs_zero_point": "w2_zero_point",
    "bias": "w2_bias",
}  # fmt: skip


def _renamed_size(axis: str | Size | int | None, names: Mapping[str, str | Size]) -> str | Size | int | None:
    """The size of a product's axis, in this op's size names."""
    if isinstance(axis, str):
        return names.get(axis, axis)
    if axis is None or isinstance(axis, int) or axis.name not in names:
        return axis
    other = names[axis.name]
    return axis.after(other if isinstance(other, Size) else Size(other))


def _verify_product(product: FieldView, names: dict[str, str]) -> None:
    """Verify one product; a message has this op's names of the operands."""
    try:
        product.verify_semantics()
    except OpError as e:
        fail(quoted_as(str(e), names))
