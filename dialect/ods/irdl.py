"""The dialect as text of IRDL, MLIR's dialect for dialect definitions."""

from __future__ import annotations

from .op import NAMESPACE, OPS


def irdl_text() -> str:
    """The dialect as an IRDL module. IRDL has no optional attributes, so they are left out. It distinguishes optional
    operands by segment sizes, which `saved.count_operands` adds to a program."""
    lines = [f"irdl.dialect @{NAMESPACE} {{"]
    for name, cls in sorted(OPS.items()):
        lines.append(f"  irdl.operation @{name.split('.', 1)[1]} {{")
        lists: dict[str, list[str]] = {"operand": [], "result": [], "attr": []}
        for number, f in enumerate(f for f in cls.FIELDS if f.kind != "attr" or not f.optional):
            source = f.constraint if f.constraint is not None else f.attribute
            assert source is not None
            lines.append(f"    %{number} = {source.irdl}")
            mark = "optional " if f.optional else ""
            lists[f.kind].append(f'"{f.name}" = %{number}' if f.kind == "attr" else f"{f.name}: {mark}%{number}")
        for kind in ("operand", "result"):
            if lists[kind]:
                lines.append(f"    irdl.{kind}s({', '.join(lists[kind])})")
        if lists["attr"]:
            lines.append(f"    irdl.attributes {{{', '.join(lists['attr'])}}}")
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"
