"""qmlir.moe_align_block_size: slots of tokens sorted by expert, each expert padded to whole blocks."""

from __future__ import annotations

from ..ods import BOOL, I64, INDEX, Attributes, Op, Operands, Sizes, Spec, attr, fail, operand, result
from ..shapes import block_count
from .common import check_result, element_of, routed_shape


class MoeAlignBlockSizeOp(Op, name="moe_align_block_size"):
    """Sort the slots of `expert_ids [T, topk]` into the layout that block-wise grouped products read (vLLM, AITER).

    A slot is `token * topk + k`. `sorted_token_ids [NB * block_size]` (i32) lists the slots of expert 0, then 1, ...,
    in ascending order; the entries that pad an expert's last block, and the unused blocks at the end, are T * topk.
    `block_expert_ids [NB]` (i32) is the expert of each block, -1 for unused blocks, and `num_tokens_post_padded []`
    (i32) is the number of entries in used blocks. NB = min(T * topk, ceil(T * topk / block_size) + experts - 1).
    Raises InputError for an id outside [0, experts) unless skip_invalid. Source: vLLM, moe_align_block_size.
    """

    expert_ids = operand(INDEX, doc="the experts of each token `[T, topk]`")
    experts = attr(I64, required=True, doc="number of experts E")
    block_size = attr(I64, required=True, doc="rows of a block")
    skip_invalid = attr(BOOL, default=False, doc="whether ids outside [0, E) are left out")
    sorted_token_ids = result(INDEX, doc="slots `t * topk + k` by expert, padded to whole blocks")
    block_expert_ids = result(INDEX, doc="the expert of each block, -1 of unused ones")
    num_tokens_post_padded = result(INDEX, doc="number of slots in used blocks, with padding, `[]`")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        ids = operands["expert_ids"][0]
        tokens, topk = ids[0], ids[1]
        slots = None if tokens is None or topk is None else tokens * topk
        width = attributes["block_size"]
        blocks = block_count(slots, attributes["experts"], width)
        return [((None if blocks is None else blocks * width,), "i32"), ((blocks,), "i32"), ((), "i32")]

    def sizes(self) -> Sizes:
        return {"expert_ids": ("T", "topk")}

    def verify_semantics(self) -> None:
        tokens, topk = routed_shape(self.expert_ids)
        for name in ("experts", "block_size"):
            if getattr(self, name) < 1:
                fail(f"'{name}' is {getattr(self, name)}, but must be at least 1")
        slots = None if tokens is None else tokens * topk
        blocks = block_count(slots, self.experts, self.block_size)
        places = None if blocks is None else blocks * self.block_size
        for name, shape in (
            ("sorted_token_ids", (places,)),
            ("block_expert_ids", (blocks,)),
            ("num_tokens_post_padded", ()),
        ):
            value = getattr(self, name)
            if element_of(value).name != "i32":
                fail(f"result '{name}' holds i32 integers, but is {value.type}")
            check_result(value, shape, f"result '{name}'")
