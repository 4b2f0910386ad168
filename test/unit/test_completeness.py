"""Every op and every pass has all its parts (verifier, reference, lowering, documentation, tests)."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import qmlir
from qmlir.dialect import (
    ops as _defines_the_dialect,  # noqa: F401
    reference,
)
from qmlir.dialect.ods import OPS, Op
from qmlir.dialect.reference.epilogue import ReferenceEpilogue
from qmlir.errors import UsageError
from qmlir.passes.core.lower import RULES
from qmlir.passes.registry import PASSES, pass_class

TEST = Path(__file__).resolve().parent.parent
NAMES = sorted(name.removeprefix("qmlir.") for name in OPS)


def texts(*folders: str, suffixes: tuple[str, ...]) -> str:
    """The text of all files in the folders with these suffixes, except the output of lit."""
    return "\n".join(
        path.read_text()
        for folder in folders
        for path in sorted((TEST / folder).rglob("*"))
        if path.suffix in suffixes and "Output" not in path.parts
    )


def test_the_dialect_has_its_ops() -> None:
    assert {"dequant", "quantize", "dynamic_quantize", "unpack", "scaled_matmul", "conv2d_q", "grouped_matmul"} <= set(
        NAMES
    )


@pytest.mark.parametrize("name", NAMES)
def test_op_is_complete(name: str) -> None:
    cls = OPS[f"qmlir.{name}"]
    assert cls.__doc__
    assert cls.__doc__ != Op.__doc__
    assert cls.verify_semantics is not Op.verify_semantics, "it has no verifier"
    assert reference.BY_NAME[name].__doc__
    assert OPS[f"qmlir.{name}"].FUNCTION in reference.__all__
    assert cls.infer is not Op.infer, "its result types are not inferred"
    assert f"qmlir.{name}" in RULES, "it is not lowered"
    operation = qmlir.ops.BY_NAME[name]
    assert operation.__doc__
    assert operation is getattr(qmlir.ops, OPS[f"qmlir.{name}"].FUNCTION)
    assert operation.__name__ in qmlir.ops.__all__


@pytest.mark.parametrize("name", NAMES)
def test_function_has_the_signature_of_its_op(name: str) -> None:
    """Completion and help() show the arguments that a call takes."""
    cls, operation = OPS[f"qmlir.{name}"], qmlir.ops.BY_NAME[name]
    signature = inspect.signature(operation)
    by_position = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    stated = {f.name for f in (*cls.FIELDS, *cls.PARAMETERS) if f.kind != "result"}
    if name == "sparse_matmul":
        assert [p.name for p in by_position] == ["lhs", "weight"]
        stated -= {"values", "indices", "indptr", "format", "rhs_shape", "block", "rhs_dtype", "rhs_packing"}
        stated = (stated - {"rhs_transposed"}) | {"weight"}
    else:
        assert [p.name for p in by_position if p.default is p.empty] == list(cls.REQUIRED)
    assert set(signature.parameters) == stated | {"target"}
    text, described = str(inspect.getdoc(operation)), str(inspect.getdoc(cls))
    assert text.startswith(described)
    for p in signature.parameters.values():
        assert f"\n    {p.name}: " in text, "help() does not say what it takes"
    for f in (*cls.FIELDS, *cls.PARAMETERS):
        if f.name in signature.parameters or f.kind == "result":
            assert f.doc, f"{f.name} has no `doc`: its meaning, shape and unit"
            assert f"\n    {f.name}: {f.doc}; {f.takes}" in text
            assert "{" not in f.doc
    compiled = inspect.signature(operation.compile)
    assert list(compiled.parameters) == [*signature.parameters, "flags", "strict", "pipeline", "choice"]
    assert {p.default for p in by_position} == {compiled.parameters[p.name].default for p in by_position}
    assert all(f"\n    {p}: " in str(operation.compile.__doc__) for p in compiled.parameters)
    with pytest.raises(UsageError, match="has no argument 'nothing'"):
        qmlir.ops.Operation.compile(operation, nothing=1)


@pytest.mark.parametrize("name", NAMES)
def test_reference_has_the_defaults_of_the_definition(name: str) -> None:
    """An argument's default in the reference is the one in the op's definition."""
    cls = OPS[f"qmlir.{name}"]
    shared = inspect.signature(ReferenceEpilogue).parameters if name.endswith(("matmul", "conv2d_q")) else {}
    given = {**shared, **inspect.signature(reference.BY_NAME[name]).parameters}
    stated = [f for f in (*cls.FIELDS, *cls.PARAMETERS) if f.kind != "result" and f.name in given]
    assert stated
    for f in stated:
        assert given[f.name].default == (f.function_default if f.optional else inspect.Parameter.empty), f.name


def test_reference_states_no_default_of_its_own() -> None:
    """A literal default would state the definition's default a second time."""
    folder = Path(str(reference.__file__)).parent
    public = {function.__name__ for function in reference.BY_NAME.values()}
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name in public:
                defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
                assert all(isinstance(d, ast.Subscript) or ast.unparse(d) == "None" for d in defaults), node.name


@pytest.mark.parametrize("name", NAMES)
def test_op_is_tested(name: str) -> None:
    folder = TEST / "dialect" / name
    assert f'"qmlir.{name}"' in (folder / "ops.mlir").read_text()
    assert f'"qmlir.{name}"' in (folder / "ops_invalid.mlir").read_text()
    assert "expected-error" in (folder / "ops_invalid.mlir").read_text()
    assert re.search(rf"\b{OPS[f'qmlir.{name}'].FUNCTION}\b", texts("numerics", suffixes=(".py",))), (
        "no numeric test mentions it"
    )


def test_nothing_is_defined_for_ops_that_are_not_there() -> None:
    assert set(RULES) == set(OPS)
    assert set(qmlir.ops.BY_NAME) == set(NAMES)


@pytest.mark.parametrize("name", sorted(PASSES))
def test_pass_is_complete(name: str) -> None:
    cls = pass_class(name)
    assert cls.name == name
    assert cls.summary
    # The docstring of a dataclass without one is its signature.
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")
    assert importlib.import_module(cls.__module__).__doc__
    lit = texts("passes", "dialect", "targets", "cli", suffixes=(".mlir", ".test"))
    assert re.search(rf"{re.escape(name)}(?![\w-])", lit), "no lit test runs it"
