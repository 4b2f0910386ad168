"""The verifier: it checks the structure of an op against the declarations of its class, then the rules of the class."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.mlir import collect, ir
from ...core.spelling import did_you_mean, location_text
from ...errors import Diagnostic
from ..renamed import RENAMED
from .constraints import OpError
from .op import NAMESPACE, OPERAND_NAMES, OPS, Op, attribute_names, view_of

if TYPE_CHECKING:
    from ...core.mlir import OpLike

# The attribute by which older text, and IRDL, say which optional operands are present: one count for each operand of
# the definition.
SEGMENTS = "operandSegmentSizes"
# `%0 = "name"(%operands)[successors] <{...}>`: for an unregistered op, MLIR stores the attributes in `<{...}>` as
# properties, which its Python bindings do not show.
_PROPERTIES = re.compile(r'[^"]*"[^"]*"\([^)]*\)\s*(?:\[[^\]]*\])?\s*<\{')


def verify_module(module: ir.Module) -> list[Diagnostic]:
    """Check every op of the dialect in `module`; returns one diagnostic for each that breaks a rule."""
    found = []
    for op in collect(module, where=lambda op: op.name.startswith(NAMESPACE + ".")):
        message = problem(op)
        if message:
            found.append(Diagnostic(f"'{op.name}' op {message}", location_text(op.location)))
    return found


def problem(op: OpLike) -> str:
    """The first rule that an op breaks, "" if there is none."""
    if op.name not in OPS:
        known = [name.split(".", 1)[1] for name in OPS]
        return f"is not an op of this dialect{did_you_mean(op.name.split('.', 1)[1], known)}"
    view = view_of(op)
    try:
        verify_structure(view)
    except OpError as e:
        return str(e)
    return misfit(view)


def misfit(view: Op) -> str:
    """The first shape or type rule that an op of valid structure breaks, "" if there is none."""
    try:
        view.verify_semantics()
    except OpError as e:
        return quoted_as(str(e), view.ROLES)
    except IndexError:  # a rule reads an axis that does not exist
        types = [f"'{name}' {value.type}" for name, value in view.operands_by_name().items()]
        return f"has an operand or a result with too few axes: {', '.join(types)}"
    return ""


def quoted_as(message: str, names: Mapping[str, str]) -> str:
    """Replace quoted field names in a message: shared rules use roles (`lhs_scale`), the op its own names."""
    return re.sub(r"'(\w+)'", lambda m: f"'{names.get(m[1], m[1])}'", message)


def verify_structure(view: Op) -> None:
    """Check names, counts and types of operands and results, and names and values of attributes. Raises OpError."""
    op = view.operation
    if len(op.regions) or len(op.successors):
        raise OpError("takes no regions and no successors")
    if _PROPERTIES.match(op.get_asm(print_generic_op_form=True, use_local_scope=True)):
        raise OpError("has attributes in <{...}>, which hides them from an op that MLIR has not registered; "
                      "write {...}")  # fmt: skip
    _verify_operands(view)
    least, most = view.RESULTS
    if not least <= len(op.results) <= most:
        raise OpError(f"expects {least if least == most else f'{least} to {most}'} results, got {len(op.results)}")
    known = [f.name for f in view.FIELDS if f.kind == "attr"]
    for name in attribute_names(op):
        if _renamed(view).get(name) in known:  # an old name alone was replaced by `saved.upgrade`
            raise OpError(f"has attributes '{_renamed(view)[name]}' and '{name}', its old name; leave '{name}' "
                          "out")  # fmt: skip
        if "." not in name and name not in (*known, OPERAND_NAMES):
            raise OpError(f"has no attribute '{name}'{did_you_mean(name, known)}")
    for f in view.FIELDS:
        if f.kind == "attr":
            if f.name not in op.attributes:
                if not f.optional:
                    raise OpError(f"requires attribute '{f.name}'")
                continue
            try:
                getattr(view, f.name)
            except OpError as e:
                raise OpError(f"attribute '{f.name}' {e}") from None
            continue
        value = getattr(view, f.name)
        if value is not None and f.constraint is not None and not f.constraint.check(value.type):
            raise OpError(f"{f.kind} '{f.name}' must be {f.constraint.description}, but is {value.type}")


def _verify_operands(view: Op) -> None:
    """Check that each operand has a name of the definition, none is given twice, and no required one is missing."""
    attributes, count = view.operation.attributes, len(view.operation.operands)
    if SEGMENTS in attributes:
        # `saved.upgrade` has replaced the counts that fit the op.
        raise OpError(f"'{SEGMENTS}' {attributes[SEGMENTS]} does not match {count} operands; name those that are "
                      f"given, {OPERAND_NAMES} = [...], from {_expected(view)}")  # fmt: skip
    if OPERAND_NAMES not in attributes:
        if count == len(view.REQUIRED):
            return
        if view.OPERANDS == view.REQUIRED:
            raise OpError(f"expects {len(view.REQUIRED)} operands ({_expected(view)}), but got {count}")
        raise OpError(f"has {count} operands, and only the required ones need no names; name all, "
                      f"{OPERAND_NAMES} = [...], from {_expected(view)}")  # fmt: skip
    names = attributes[OPERAND_NAMES]
    if not isinstance(names, ir.ArrayAttr) or not all(isinstance(n, ir.StringAttr) for n in names):
        raise OpError(f"attribute '{OPERAND_NAMES}' must be an array of strings, but is {names}")
    given = view.operand_names()
    if len(given) != count:
        raise OpError(f"'{OPERAND_NAMES}' has {len(given)} names for {count} operands")
    for i, name in enumerate(given):
        if name not in view.OPERANDS and _renamed(view).get(name) in given:
            raise OpError(f"has operands '{_renamed(view)[name]}' and '{name}', its old name; leave '{name}' out")
        if name not in view.OPERANDS:
            raise OpError(f"has no operand '{name}'{did_you_mean(name, view.OPERANDS)}")
        if name in given[:i]:
            raise OpError(f"operand '{name}' is given {given.count(name)} times")
    for name in view.REQUIRED:
        if name not in given:
            raise OpError(f"operand '{name}' is missing")


def _renamed(view: Op) -> Mapping[str, str]:
    return RENAMED.get(view.OPERATION_NAME.partition(".")[2], {})


def _expected(view: Op) -> str:
    return ", ".join(name + ("" if name in view.REQUIRED else "?") for name in view.OPERANDS)
