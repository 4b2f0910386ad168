"""qmlir.route: which experts each token goes to, and with which weights."""

from __future__ import annotations

from ..enums import SCORING
from ..ods import BOOL, FLOAT, I64, INDEX, Attributes, Enum, Op, Operands, Sizes, Spec, attr, fail, operand, result
from ..shapes import show
from .common import check_result, element_of, shape_of


class RouteOp(Op, name="route"):
    """Choose the experts of each token from `logits [T, E]`.

    Results: `expert_ids [T, topk]` (i32, best first; for equal logits the lower id) and `routing_weights [T, topk]`
    (f32): the scores of the chosen experts, divided by their sum if `renormalize` is set.
    """

    logits = operand(FLOAT, doc="floats `[T, E]`")
    topk = attr(I64, required=True, doc="experts of a token")
    scoring = attr(Enum(SCORING), default="softmax", doc="function from logits to scores, over all experts")
    renormalize = attr(BOOL, default=False, doc="whether the weights of a token are divided by their sum")
    expert_ids = result(INDEX, doc="i32 ids of the experts `[T, topk]`, the best first")
    routing_weights = result(FLOAT, doc="f32 scores of these experts `[T, topk]`")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        shape = (operands["logits"][0][0], attributes["topk"])
        return [(shape, "i32"), (shape, "f32")]

    def sizes(self) -> Sizes:
        return {"logits": ("T", "E"), "expert_ids": ("T", None), "routing_weights": ("T", None)}

    def verify_semantics(self) -> None:
        shape = shape_of(self.logits)
        if len(shape) != 2:
            fail(f"'logits' has shape {show(shape)}, but must be [T, E], one score per token and expert")
        if element_of(self.logits).name == "f64":
            fail("'logits' is f64; use f32, f16 or bf16")
        tokens, experts = shape
        if experts is None:
            fail("the number of experts (axis 1 of 'logits') must be static")
        if not 1 <= self.topk <= experts:
            fail(f"'topk' is {self.topk}, but must be from 1 to the number of experts, {experts}")
        for name, dtype in (("expert_ids", "i32"), ("routing_weights", "f32")):
            value = getattr(self, name)
            if element_of(value).name != dtype:
                fail(f"result '{name}' must be a tensor of {dtype}, but is {value.type}")
            check_result(value, (tokens, self.topk), f"result '{name}'")
