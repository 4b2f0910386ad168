"""The two operands of a contraction, as the codes that they are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..ir.affine import indexing_maps
from ..ir.facts import MAGNITUDES
from ..ir.walk import defining_op, made_by, producer, producer_name
from .axes import Axes, dims_of, size_of
from .bodies import computable, unclonable
from .computes import e2m1_codes, signed_from
from .description import COLUMN, GROUP, Factor, Literal, Operand, Previous, Stage, StageSource, Unfit
from .scaled import scaled

if TYPE_CHECKING:
    from ..core.mlir import OpLike


def factor(op: OpLike, position: int, axes: Axes, order: tuple[str, ...]) -> Factor:
    """The operand of `op` at `position` (0: activation, 1: weight). Its axes follow `order`; a weight may also have its
    columns last."""
    value = op.operands[position]
    letters = tuple(a.letter for a in axes)
    merged = [x for i, x in enumerate(letters) if i == 0 or letters[i - 1] != x]
    allowed = [[x for x in order if x in merged]]
    if position == 1:
        allowed.append([*(x for x in allowed[0] if x != COLUMN), COLUMN])
    if merged not in allowed:
        side = "activation" if position == 0 else "weight"
        raise Unfit(f"the axes of the {side} are {', '.join(letters)}", f"{' or '.join(', '.join(a) for a in allowed)}")
    name = MAGNITUDES[position]
    flipped = signed_from(value)
    return Factor(
        value=value if flipped is None else flipped,
        source_axes=letters,
        magnitude=int(op.attributes[name].value) if name in op.attributes else 128,
        flipped=flipped is not None,
    )


def one_byte(value: ir.Value) -> bool:
    """Whether a tensor has one-byte float elements, which are multiplied as codes."""
    element = ir.RankedTensorType(value.type).element_type
    return isinstance(element, ir.FloatType) and bool(element.width == 8)


def both_of_e2m1(lhs: Factor, rhs: Factor) -> tuple[Factor, Factor] | None:
    """Both operands as e2m1 codes, None if one of them is not decoded from e2m1."""
    left, right = _of_e2m1(lhs), _of_e2m1(rhs)
    return None if left is None or right is None else (left, right)


def _of_e2m1(factor: Factor) -> Factor | None:
    """The operand as e2m1 codes, None if it is not decoded from e2m1."""
    value, letters = factor.value, factor.source_axes
    if producer_name(value) == "tensor.expand_shape":
        groups = [len(list(group)) for group in defining_op(value).attributes["reassociation"]]
        if letters[-2:] != (GROUP, "k") or groups != [1] * (len(letters) - 2) + [2]:
            return None
        value, letters = defining_op(value).operands[0], (*letters[:-2], "k")
    codes = e2m1_codes(value)
    if codes is None:
        return None
    return replace(factor, value=codes, source_axes=letters, magnitude=12, e2m1=True)


def decoded_weight(factor: Factor, tables: bool) -> Factor:
    """A float weight as the codes from which one elementwise op decodes it, with K split into groups or not. `tables`:
    a decode that cannot be cloned onto vectors is accepted if it has the form of `scaled`."""
    value, letters = factor.value, list(factor.source_axes)
    owner = producer(value)
    if owner is not None and owner.name == "tensor.collapse_shape":
        groups = [len(list(group)) for group in owner.attributes["reassociation"]]
        k = letters.index("k")
        if any(size != (2 if i == k else 1) for i, size in enumerate(groups)):
            raise Unfit("the weight's reshape does more than merge groups into K", "a weight [N, G, K / G]")
        letters = [x for letter in letters for x in (("g", "k") if letter == "k" else (letter,))]
        value = owner.operands[0]
        owner = producer(value)
    if owner is None or owner.name != "linalg.generic" or len(owner.results) != 1:
        raise Unfit("the weight is not decoded from codes by one elementwise op", "a quantised weight")
    maps = indexing_maps(owner)
    block = owner.regions[0].blocks[0]
    if dims_of(maps[-1]) != list(range(maps[-1].n_dims)):
        raise Unfit("the op that dequantises the weight also transposes it", "a weight [N, K]")
    codes = None
    sources: list[StageSource] = []
    for operand, map_ in zip(list(owner.operands)[:-1], maps, strict=False):
        positions = dims_of(map_)
        axes = () if positions is None else tuple(letters[p] for p in positions)
        if codes is None and axes == tuple(letters) and str(operand.type.element_type) == "i8":
            codes = operand
            sources.append(Previous(0))
        elif (splat := splat_of(operand)) is not None:
            sources.append(Literal(splat))
        elif positions is None or "k" in axes:
            raise Unfit(
                "the op that dequantises the weight reads another tensor along K", "scales of columns or groups"
            )
        else:
            sources.append(Operand(operand, axes))
    if codes is None:
        raise Unfit("the weight has no codes of 8 bits or less", "a quantised weight")
    for argument, source in zip(block.arguments, sources, strict=False):
        if isinstance(source, Operand) and not computable(argument.type):
            raise Unfit(f"what dequantises the weight reads {argument.type}", "scales of 16 or 32 bits")
    decode = Stage(block, tuple(sources))
    if (reason := unclonable(block)) and not (tables and scaled(decode)):
        raise Unfit(f"the op that dequantises the weight cannot be vectorised: {reason}")
    return replace(factor, value=codes, source_axes=tuple(letters), decode=decode)


NUMBERS = ("f32", "bf16")  # element types of weights that are multiplied without a decode


def plain_weight(factor: Factor) -> Factor:
    """A float weight in its stored layout, transposed or not; a filter `[N, K, K, K]` unchanged."""
    value, letters = factor.value, factor.source_axes
    transposed = made_by(value, "linalg.transpose")
    if transposed is not None and len(letters) == 2:
        value, letters = transposed.operands[0], letters[::-1]
    if sorted({*letters}) != ["k", COLUMN] or str(value.type.element_type) not in NUMBERS:
        raise Unfit("the weight is not a matrix of f32 or bf16", "a weight [N, K] of f32 or bf16")
    return replace(factor, value=value, source_axes=letters)


def group_of(rhs: Factor) -> int | None:
    """The group size of a decoded weight; None if it has no groups."""
    return size_of(rhs.value, rhs.source_axes.index("k")) if "g" in rhs.source_axes else None


def splat_of(value: ir.Value) -> ir.Attribute | None:
    """The value of a splat constant tensor; None for any other value."""
    constant = made_by(value, "arith.constant")
    attribute = None if constant is None else constant.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        return attribute.get_splat_value()
    return None
