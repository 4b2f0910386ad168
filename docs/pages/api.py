"""Writes api/: a page for every public function and class, from its signature, its docstring and, for the operations
of the dialect, their specification (`dialect/ops`)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import qmlir
from qmlir.ops import Operation

MADE = "*This page is written by `python docs/generate.py` from the code's docstrings and specifications.*"
FUNCTIONS = ("compile", "load", "check", "bench", "tune", "explain", "inspect", "source")
CLASSES = ("Artifact", "Program", "TensorSpec", "SparseSpec", "SparseWeight", "Tolerance", "BenchReport",
           "Explanation", "Inspection", "Emulation")  # fmt: skip
MODULES = {
    "checkpoint": ("open", "Checkpoint", "QuantizedWeight", "Activations"),
    "importing": ("linear", "decoder", "Imported", "DecoderConfig"),
    "frontends": ("raises", "register_raising", "front_ends", "FrontEnd", "ImportOptions", "ImportReport", "Raising",
                  "Tensor", "PatternDeclined"),
    "signing": ("sign", "verify", "digest", "check_digest"),
}  # fmt: skip
SECTIONS = ("Args", "Attributes", "Raises", "Returns")
# A page of the documentation that a docstring names by its path in the repository.
_PAGE = re.compile(r"`?docs/([\w-]+)\.md`?")


def pages() -> dict[str, str]:
    """File name -> text."""
    found = {f"api/ops-{name}.md": operation_page(name, op) for name, op in operations()}
    for name in FUNCTIONS:
        found[f"api/{name}.md"] = f"# qmlir.{name}\n\n{MADE}\n\n{callable_text(f'qmlir.{name}', getattr(qmlir, name))}"
    for name in CLASSES:
        found[f"api/{name}.md"] = f"# qmlir.{name}\n\n{MADE}\n\n{class_text(f'qmlir.{name}', getattr(qmlir, name))}"
    for name, members in MODULES.items():
        found[f"api/{name}.md"] = module_page(name, members)
    found["api/index.md"] = index_page()
    return found


def operations() -> Iterator[tuple[str, Operation]]:
    """The public functions of `qmlir.ops`, by name."""
    for name in qmlir.ops.__all__:
        value = getattr(qmlir.ops, name)
        if isinstance(value, Operation):
            yield name, value


def index_page() -> str:
    parts = [f"# API reference\n\n{MADE}\n"]
    rows = [(f"ops-{name}.md", f"qmlir.ops.{name}", first_sentence(op)) for name, op in operations()]
    parts.append(f"## Operations\n\n{_table(rows)}\n\nEach has a definition in numpy, `qmlir.reference.NAME`, "
                 "with the same arguments; [the numerics contract](../semantics.md) states what they compute. "
                 "Errors are in [the catalogue](../errors.md).\n")  # fmt: skip
    for title, names in (("Functions", FUNCTIONS), ("Classes", CLASSES), ("Modules", tuple(MODULES))):
        rows = [(f"{name}.md", f"qmlir.{name}", first_sentence(getattr(qmlir, name))) for name in names]
        parts.append(f"## {title}\n\n{_table(rows)}\n")
    return "\n".join(parts)


def _table(rows: list[tuple[str, str, str]]) -> str:
    return "| name | summary |\n|---|---|\n" + "\n".join(f"| [`{n}`]({f}) | {_cell(s)} |" for f, n, s in rows)


def first_sentence(value: Any) -> str:
    """The first sentence of a docstring, on one line."""
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    text = re.sub(r"^qmlir\.\w+: ", "", text)
    end = re.search(r"(?<!e\.g)\.(?= [A-Z`])", text)
    return _links(text[: end.start()] if end else text).rstrip(".:")


def operation_page(name: str, op: Operation) -> str:
    """The function, its operands and its attributes with their constraints and defaults."""
    definition = op.definition
    fields = {f.name: f for f in definition.FIELDS}
    rows = []
    for operand in op.operands:
        if (field := fields.get(operand)) and field.constraint:
            needed = "" if field.optional else "required; "
            rows.append(f"| `{operand}` | {_cell(field.doc)} | {needed}{_cell(field.takes)} |")
    # The op's own docstring. `help()` of the function adds the arguments to it, which the tables have here.
    parts = [f"# qmlir.ops.{name}\n\n{MADE}\n",
             f"```py\n{signature_text(f'qmlir.ops.{name}', op)}\n```\n\n{docstring(definition)}\n"]  # fmt: skip
    table = "| operand | is | must be |\n|---|---|---|\n" + "\n".join(rows)
    given = "Arrays of numpy, torch or DLPack in a call; for `.compile` a `TensorSpec`, or an array as a constant."
    parts.append(f"## Operands\n\n{given}\n\n{table}\n")
    parameters = inspect.signature(op).parameters
    rows = []
    for attribute in op.attributes:
        found = fields.get(attribute) or next(f for f in definition.PARAMETERS if f.name == attribute)
        assert found.attribute is not None
        value = parameters[attribute].default if attribute in parameters else found.default
        default = "required" if value is inspect.Parameter.empty else "inferred" if found.implied else f"`{value!r}`"
        rows.append(f"| `{attribute}` | {_cell(found.doc)} | {_cell(found.takes)} | {default} |")
    if rows:
        table = "| attribute | is | must be | default |\n|---|---|---|---|\n" + "\n".join(rows)
        inferred = "\n`inferred`: if not given, it follows from the operands.\n" if "inferred" in table else ""
        parts.append(f"## Attributes\n\n{table}\n{inferred}")
    results = [f for f in definition.FIELDS if f.kind == "result"]
    listed = "\n".join(f"* `{f.name}`: {f.doc} ({f.takes})" for f in results)
    returns = f"`qmlir.ops.{name}(..., target=T)` returns the same kind of arrays as its arguments (numpy, torch)."
    parts.append(f"## Results\n\n{listed}\n\n{returns}\n")
    described, _, arguments = docstring(op.compile).partition("**Args**")
    options = [line for line in arguments.splitlines() if not any(f"`{p}`: " in line for p in parameters)]
    shown = f"```py\n{signature_text(f'qmlir.ops.{name}.compile', op.compile)}\n```"
    described = described.strip().replace("`Artifact`", "[`Artifact`](Artifact.md)")
    parts.append(f"## Compile\n\n{shown}\n\n{described}\n\n" + "\n".join(options).strip() + "\n")
    return "\n".join(parts)


def callable_text(name: str, value: Callable[..., Any]) -> str:
    """A function's signature and docstring."""
    return f"```py\n{signature_text(name, value)}\n```\n\n{docstring(value)}\n"


def signature_text(name: str, value: Callable[..., Any]) -> str:
    """The signature, with one line per argument if it is long."""
    parameters, lines, keyword_only = inspect.signature(value).parameters.values(), [], False
    for p in parameters:
        if p.name == "self":
            continue
        if p.kind is p.VAR_POSITIONAL:
            keyword_only = True
        elif p.kind is p.KEYWORD_ONLY and not keyword_only:
            lines.append("*")
            keyword_only = True
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        kind = "" if p.annotation is p.empty else f": {p.annotation}"
        given = "" if p.default is p.empty else f" = {'...' if callable(p.default) else repr(p.default)}"
        lines.append(f"{star}{p.name}{kind}{given}")
    returned = inspect.signature(value).return_annotation
    end = ")" if returned in (inspect.Signature.empty, "None") else f") -> {returned}"
    text = f"{name}({', '.join(lines)}{end}"
    if len(text) <= 100:
        return text
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + end


def class_text(name: str, value: type, level: str = "##") -> str:
    """A class with its public members."""
    parts = []
    if "__init__" in vars(value) and not issubclass(value, Exception):
        parts.append(f"```py\n{signature_text(name, value)}\n```\n")
    parts.append(docstring(value) + "\n")
    for member, function in vars(value).items():
        text = inspect.getdoc(function)
        if member.startswith("_") or not text:
            continue
        if isinstance(function, property):
            parts.append(f"{level} {member}\n\n{docstring(function)}\n")
        elif isinstance(function, (classmethod, staticmethod)) or inspect.isfunction(function):
            plain = function.__func__ if isinstance(function, (classmethod, staticmethod)) else function
            shown = signature_text(member, plain).replace("(cls, ", "(").replace("(cls)", "()")
            shown = shown.replace("(\n    cls,\n", "(\n")
            parts.append(f"{level} {member}\n\n```py\n{shown}\n```\n\n{docstring(function)}\n")
    return "\n".join(parts)


def module_page(name: str, members: tuple[str, ...]) -> str:
    module = getattr(qmlir, name)
    parts = [f"# qmlir.{name}\n\n{MADE}\n", docstring(module) + "\n"]
    for member in members:
        value = getattr(module, member)
        shown = f"qmlir.{name}.{member}"
        text = class_text(shown, value, "###") if inspect.isclass(value) else callable_text(shown, value)
        parts.append(f"## {member}\n\n{text}")
    return "\n".join(parts)


def docstring(value: Any) -> str:
    """A docstring as Markdown: sections such as `Args:` become lists, indented text becomes code."""
    parts: list[str] = []
    listed = code = False
    for line in (inspect.getdoc(value) or "").splitlines():
        section = line.removesuffix(":")
        if line.endswith(":") and section in SECTIONS:
            parts += ["", f"**{section}**", ""]
            listed = True
        elif listed and re.match(r"    \S", line):
            parts.append(re.sub(r"^    ([\w, *`]+?): ", lambda m: f"* {_code(m[1])}: ", line) if ": " in line
                         else f"* {line.strip()}")  # fmt: skip
        elif listed and line.startswith("        "):
            parts.append(f"  {line.strip()}")
        elif line.startswith("    ") and not listed:
            parts += [line[4:]] if code else ["```py", line[4:]]
            code = True
            continue
        else:
            listed = listed and not line
            if code and line:
                while parts[-1] == "":
                    parts.pop()
                parts += ["```", ""]
            parts.append(line)
        code = code and not line
    text = "\n".join([*parts, "```"] if code else parts)
    return _links(re.sub(r"\n{3,}", "\n\n", text)).strip()


def _code(names: str) -> str:
    return names if "`" in names else ", ".join(f"`{n.strip()}`" for n in names.split(","))


def _links(text: str) -> str:
    """The text with paths of documentation pages replaced by links."""
    return _PAGE.sub(lambda m: f"[{m[1].replace('-', ' ')}](../{m[1]}.md)", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
