"""Checks at run time: a call ends with an error if the condition of a check does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.mlir import arith, collect, ir, tensor
from .build import Arg, Extent, as_index, filled, generic, index, product, scalar
from .scalars import i32


def assert_that(condition: ir.Value, message: str) -> None:
    """Fail at run time with the message unless the i1 holds."""
    ir.Operation.create("cf.assert", operands=[condition], attributes={"msg": ir.StringAttr.get(message)})


def equal(a: Extent, b: Extent) -> ir.Value:
    """Whether two sizes are equal, an i1."""
    return arith.cmpi(arith.CmpIPredicate.eq, as_index(a), as_index(b))


def assert_equal(a: Extent, b: Extent, message: str) -> None:
    """Fail at run time with the message unless two sizes are equal."""
    assert_that(equal(a, b), message)


def assert_at_most(sizes: Sequence[Extent], most: int, message: str) -> None:
    """Fail at run time with the message if the product of the sizes is larger than `most`."""
    assert_that(arith.cmpi(arith.CmpIPredicate.ule, as_index(product(sizes)), index(most)), message)


def assert_short_sum(sizes: Sequence[Extent], longest: int) -> None:
    """Fail at run time if a sum over axes of these sizes is longer than a loop of the device can be."""
    assert_at_most(sizes, longest, f"a sum is longer than the {longest} elements that a loop of this device can have")


def refuse(args: Sequence[Arg], loops: int, wrong: Callable[..., ir.Value], message: str) -> None:
    """Fail at run time with the message if `wrong`, a body that returns an i1, holds for some element.

    The summed loops are outer ones. IREE's SPIR-V route makes a reduction across lanes of inner ones, some sizes of
    which it does not legalise.
    """
    zero = scalar(0, i32())
    found = generic(args, filled([], zero), [], loops,
                    lambda *xs: arith.addi(xs[-1], arith.extui(i32(), wrong(*xs[:-1]))))  # fmt: skip
    assert_that(arith.cmpi(arith.CmpIPredicate.eq, tensor.extract(found, []), zero), message)


def outside(x: ir.Value, least: int, most: int) -> ir.Value:
    """Whether an integer, in a body, is not in [least, most]."""
    low = arith.cmpi(arith.CmpIPredicate.slt, x, scalar(least, x.type))
    return arith.ori(low, arith.cmpi(arith.CmpIPredicate.sgt, x, scalar(most, x.type)))


def drop_repeated_checks(module: ir.Module) -> None:
    """Drop all checks of a condition in a block except the first: at each check, IREE ends the batch of work that it
    submits to the device."""
    seen: set[tuple[ir.Value, ir.Block]] = set()
    for op in collect(module, "cf.assert"):
        key = op.operands[0], op.operation.block
        if key in seen:
            op.operation.erase()
        seen.add(key)
