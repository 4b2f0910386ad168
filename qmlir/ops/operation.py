"""One operation as a function: its signature and documentation, eager calls, and compilation."""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, TypedDict, TypeVar

import numpy as np

from ..compiler.choices import choice_flags
from ..compiler.compilation import compile_built
from ..compiler.options import Options
from ..core.cache import key_of
from ..core.mlir import func, ir
from ..core.spelling import did_you_mean
from ..dialect.arrays import is_torch
from ..dialect.dtypes import DTYPES, Array, dtype_name, stored_codes
from ..dialect.ods import Attributes, Field, Op, OpError, Spec, misfit
from ..dialect.ops.common import tensor_type
from ..dialect.renamed import RENAMED, current_names
from ..errors import UsageError
from ..ir.build import dense
from ..ir.signature import state_signature
from ..runtime.artifact import Artifact
from ..runtime.function import Function
from ..runtime.program import load
from ..spec import TensorSpec
from ..targets import resolve
from ..targets.strategy import Choice
from .arguments import Specs, array, check_zero_points, has_shape, normalized, plain, spec_of

T = TypeVar("T")


class _Options(TypedDict, total=False):
    """The fields of `Options` that a call of an operation may set."""

    flags: tuple[str, ...]
    pipeline: str
    choice: dict[str, int | str]


class Operation:
    """One operation of the dialect as a function. See `qmlir.ops`."""

    def __init__(self, definition: type[Op]) -> None:
        self.definition = definition
        self.name = definition.OPERATION_NAME.partition(".")[2]
        self.__name__ = definition.FUNCTION
        self.positional = (*definition.REQUIRED, *definition.POSITIONAL)
        self.required = definition.REQUIRED
        self.operands = (*self.positional, *(n for n in definition.OPERANDS if n not in self.positional))
        fields = [f for f in definition.FIELDS if f.kind == "attr"]
        self.needed = (*definition.REQUIRED, *(f.name for f in fields if not f.optional))
        self.attributes = tuple(f.name for f in (*fields, *definition.PARAMETERS))
        self._kinds = {f.name: f.attribute for f in (*fields, *definition.PARAMETERS) if f.attribute is not None}
        self.__signature__ = self._signature(fields)
        self.__doc__ = self._documentation()
        vars(self)["compile"] = self._described_compile()  # the method, with the signature of this operation
        self._renamed = frozenset(RENAMED.get(self.name, ()))
        self._programs: dict[tuple[object, ...], tuple[Function, list[str]]] = {}
        # By the arguments as a call gives them: the function, and where in the call its arguments are.
        self._calls: dict[tuple[object, ...], tuple[Function, list[int]]] = {}
        self._lock = threading.Lock()

    def _signature(self, fields: Sequence[Field]) -> Signature:
        """The signature, positional operands first. Attributes that other arguments imply default to None."""
        by_name = [Parameter(n, Parameter.KEYWORD_ONLY, default=None, annotation="ArrayLike | None")
                   for n in self.operands if n not in self.positional]  # fmt: skip
        for f in (*fields, *self.definition.PARAMETERS):
            given = f.function_default if f.optional else Parameter.empty
            assert f.attribute is not None
            python = f.attribute.python if given is not None else f"{f.attribute.python} | None"
            by_name.append(Parameter(f.name, Parameter.KEYWORD_ONLY, default=given, annotation=python))
        by_name.append(Parameter("target", Parameter.KEYWORD_ONLY, default="cpu", annotation="str"))
        return Signature([*self._unnamed(), *by_name])

    def _documentation(self) -> str:
        """The docstring, from the op's definition: what the operation computes, its arguments and its results."""
        lines = [inspect.cleandoc(self.definition.__doc__ or ""), "", "Args:", *self._described_arguments()]
        results = [f for f in self.definition.FIELDS if f.kind == "result"]
        lines += ["", "Returns:", *(f"    {f.name}: {f.described}." for f in results)]
        return "\n".join(lines)

    def _described_arguments(self) -> list[str]:
        """A line for each argument."""
        stated = {f.name: f for f in (*self.definition.FIELDS, *self.definition.PARAMETERS)}
        lines: list[str] = []
        for p in self.__signature__.parameters.values():
            field = stated.get(p.name)
            if field is None:
                lines.append(f"    {p.name}: {_OTHER_ARGUMENTS[p.name]}.")
                continue
            without = ""
            if p.default is not Parameter.empty:
                without = ("; default: what the other arguments imply" if field.implied else
                           f"; default: {p.default!r}" if field.constraint is None else "; optional")  # fmt: skip
            lines.append(f"    {p.name}: {field.described}{without}.")
        return lines

    def _unnamed(self) -> list[Parameter]:
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return [
            Parameter(n, kind, annotation="ArrayLike")
            if n in self.required
            else Parameter(n, kind, default=None, annotation="ArrayLike | None")
            for n in self.positional
        ]

    def _described_compile(self) -> Callable[..., Artifact]:
        """`compile` as a function whose signature and documentation name the arguments of this operation."""
        method: Callable[..., Artifact] = self.compile

        def compile(*args: object, **kw: object) -> Artifact:
            return method(*args, **kw)

        own = [p.replace(annotation=_ANNOTATIONS_OF_COMPILE.get(p.annotation, p.annotation))
               for p in self.__signature__.parameters.values()]  # fmt: skip
        options = [Parameter(n, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
                   for n, (annotation, default, _) in _OPTIONS_OF_COMPILE.items()]  # fmt: skip
        compile.__qualname__ = f"{self.__name__}.compile"
        vars(compile)["__signature__"] = Signature([*own, *options], return_annotation="Artifact")
        lines = [inspect.cleandoc(method.__doc__ or ""), "", "Args:", *self._described_arguments()]
        lines += [f"    {n}: {text}." for n, (_, _, text) in _OPTIONS_OF_COMPILE.items()]
        compile.__doc__ = "\n".join(lines)
        return compile

    def __repr__(self) -> str:
        return f"<qmlir operation {self.__name__}>"

    # ---- calls

    def __call__(self, *args: object, target: str = "cpu", **kw: object) -> Any:
        """Run on arrays (numpy, torch, dlpack).

        Raises:
            UsageError, VerifyError: arguments that do not fit the op's definition.
            InputError: values that the program refuses.
        """
        given = (*args, *kw.values())
        call = (target, len(args), *kw, *[(v.shape, v.dtype) if type(v) is np.ndarray else _kind(v) for v in given])
        known = self._calls.get(call)
        if known is not None:
            function, places = known
            return function(*[given[i] for i in places])
        arrays: dict[str, object] = {}
        attributes: dict[str, object] = {}
        key: list[object] = [target]
        for i, arg in enumerate(args):
            arrays[self._name_of(i)] = arg
        for name, value in self.by_current_names(kw).items():
            if name in arrays:
                raise self._twice(name)
            if value is None:
                continue
            if name in self.operands:
                arrays[name] = value
            else:
                attributes[name] = value = plain(value)
                key.append((name, value))
        for name, value in arrays.items():
            if type(value) is not np.ndarray:
                if isinstance(value, TensorSpec):
                    raise UsageError(
                        f"{self.__name__}: {name!r} is a TensorSpec, which is for qmlir.ops.{self.__name__}.compile; "
                        "a call takes arrays"
                    )
                made = arrays[name] = value if has_shape(value) else array(name, value)
                key.append((name, tuple(made.shape), str(made.dtype)))
            else:
                key.append((name, value.shape, value.dtype))
        found = self._programs.get(tuple(key))
        if found is None:
            found = self._prepare(arrays, attributes, target, tuple(key))
        function, order = found
        operands = [arrays[name] for name in order]
        names = (*self.positional[: len(args)], *kw)
        if None not in call and self._renamed.isdisjoint(kw):
            places = [names.index(name) for name in order]
            if all(given[i] is operand for i, operand in zip(places, operands, strict=True)):  # none is of a number
                self._calls[call] = function, places
        return function(*operands)

    def by_current_names(self, given: dict[str, T]) -> dict[str, T]:
        """The arguments by name, with former names replaced by the current ones."""
        if self._renamed.isdisjoint(given):
            return given
        try:
            return current_names(self.name, given)
        except ValueError as e:
            raise UsageError(f"{self.__name__}: {e}") from None

    def _name_of(self, i: int) -> str:
        if i >= len(self.positional):
            raise UsageError(f"{self.__name__} takes {len(self.positional)} positional arguments: "
                             f"{', '.join(self.positional)}")  # fmt: skip
        return self.positional[i]

    def _twice(self, name: str) -> UsageError:
        return UsageError(f"{self.__name__} got {name!r} twice: by position and by name")

    def _prepare(
        self, arrays: dict[str, object], attributes: dict[str, object], target: str, key: tuple[object, ...]
    ) -> tuple[Function, list[str]]:
        with self._lock:
            if key in self._programs:
                return self._programs[key]
        specs = {name: spec_of(name, value) for name, value in arrays.items()}
        artifact = self._compile(specs, {}, attributes, target, {})
        made = (load(artifact).main, [n for n in self.operands if n in specs])
        with self._lock:
            return self._programs.setdefault(key, made)

    def compile(
        self, *args: object, target: str = "cpu", flags: tuple[str, ...] = (), strict: bool = False,
        pipeline: str | None = None, choice: Choice | None = None, **kw: object,
    ) -> Artifact:  # fmt: skip
        """Compile ahead of time. Returns an `Artifact`.

        A `TensorSpec` becomes an argument of the program's `main`, in the order of the op's operands; an array becomes
        a constant, which is folded and packed at compile time.
        """
        specs: Specs = {}
        constants: dict[str, Array] = {}
        attributes: dict[str, object] = {}
        kw = self.by_current_names(kw)
        for i, arg in enumerate(args):
            if (name := self._name_of(i)) in kw:
                raise self._twice(name)
            kw[name] = arg
        for name, value in kw.items():
            if value is None:
                continue
            if name not in self.operands:
                attributes[name] = plain(value)
            elif isinstance(value, TensorSpec):
                specs[name] = value
            else:
                constants[name] = array(name, value)
        options: _Options = {"flags": tuple(flags)} if flags else {}
        if pipeline is not None:
            options["pipeline"] = pipeline
        if choice:
            options["choice"] = dict(choice)
            options["flags"] = (*choice_flags(target, choice), *flags)
        return self._compile(specs, constants, attributes, target, options, strict)

    # ---- building

    def _compile(
        self,
        specs: Specs,
        constants: dict[str, Array],
        attributes: Attributes,
        target: str,
        options: _Options,
        strict: bool = False,
    ) -> Artifact:
        every = {**specs, **{name: spec_of(name, value) for name, value in constants.items()}}
        attributes = normalized(self.definition, every, self._checked(every, attributes))
        check_zero_points(self.definition, every, attributes)
        resolved = resolve(target)
        digests = {n: [str(a.dtype), a.shape, hashlib.sha256(np.ascontiguousarray(a).view(np.uint8).data).hexdigest()
                       if a.size and a.ndim else str(a)] for n, a in constants.items()}  # fmt: skip
        key = key_of([self.name, {n: str(s) for n, s in specs.items()}, digests, attributes, resolved.spelling,
                      resolved.row(), options])  # fmt: skip
        made = Options(**options, strict=strict)
        return compile_built(lambda ctx: self.module(specs, constants, attributes), resolved, made, key)

    def module(self, specs: Specs, constants: Mapping[str, Array], attributes: Attributes) -> ir.Module:
        """An `ir.Module` in the current context: `@main` takes the specs and returns the op's results."""
        every = {**specs, **{name: spec_of(name, value) for name, value in constants.items()}}
        results = self._inferred(every, attributes)
        order = [n for n in self.operands if n in specs]
        module = ir.Module.create()
        result_types = [tensor_type(shape, dtype) for shape, dtype in results]
        with ir.InsertionPoint(module.body):
            argument_types = [tensor_type(specs[n].shape, specs[n].dtype) for n in order]
            f = func.FuncOp("main", ir.FunctionType.get(argument_types, result_types))
            stated = [(n, specs[n].dtype, specs[n].symbols) for n in order]
            state_signature(f.operation, stated, [dtype for _, dtype in results])
            with ir.InsertionPoint(f.add_entry_block()):
                values = dict(zip(order, f.arguments, strict=True))
                for n, array in constants.items():
                    values[n] = dense(
                        stored_codes(array), every[n].dtype if DTYPES[every[n].dtype].kind == "float" else None
                    )
                func.ReturnOp([value for value, _ in self._op(values, every, attributes)])
        return module

    def emit(
        self, values: Mapping[str, ir.Value], specs: Specs, attributes: Attributes
    ) -> list[tuple[ir.Value, TensorSpec]]:
        """Build the op on `ir.Value`s at the current insertion point, for programs of several operations. Returns its
        results, each with its spec. `specs` are those of the values.

        Raises UsageError for arguments that do not fit the op's definition."""
        values, specs, attributes = (self.by_current_names(dict(x)) for x in (values, specs, attributes))
        return self._op(values, specs, normalized(self.definition, specs, self._checked(specs, attributes)))

    def _op(
        self, values: Mapping[str, ir.Value], specs: Specs, attributes: Attributes
    ) -> list[tuple[ir.Value, TensorSpec]]:
        inferred = self._inferred(specs, attributes)
        results = [TensorSpec(shape, dtype) for shape, dtype in inferred]
        op = self._built([tensor_type(*result) for result in inferred], values, attributes)
        return list(zip(op.operation.results, results, strict=True))

    def _built(self, results: Sequence[ir.Type], values: Mapping[str, ir.Value], attributes: Attributes) -> Op:
        """Build the op on `ir.Value`s at the current insertion point, with results of these types."""
        stated = {f.name: attributes[f.name] for f in self.definition.FIELDS if f.name in attributes}
        try:
            return self.definition.build({**values, **stated}, results=results)
        except OpError as e:
            raise UsageError(f"{self.__name__}: {e}") from None

    def _inferred(self, specs: Specs, attributes: Attributes) -> list[Spec]:
        """Shapes and dtypes of the results."""
        try:
            results = self.definition.inferred({n: (s.shape, s.dtype) for n, s in specs.items()}, attributes)
        except ValueError as e:
            raise UsageError(f"{self.__name__}: {e}") from None
        except (IndexError, ZeroDivisionError):  # fewer axes than the rule reads, or no elements in a block
            results = None
        if results is None or any(size is not None and size < 0 for shape, _ in results for size in shape):
            raise UsageError(f"{self.__name__}: {self._misfit(specs, attributes)}")
        return results

    def _misfit(self, specs: Specs, attributes: Attributes) -> str:
        """The verifier's message about operands for which no result shape can be inferred."""
        given = {name: specs[name] for name in self.operands if name in specs}
        with ir.InsertionPoint(ir.Module.create().body):
            f = func.FuncOp("main", ([tensor_type(s.shape, s.dtype) for s in given.values()], []))
            with ir.InsertionPoint(f.add_entry_block()):
                values = dict(zip(given, f.arguments, strict=True))
                results = [tensor_type((None, None), "f32")] * self.definition.RESULTS[0]
                return misfit(self._built(results, values, attributes))

    def _checked(self, specs: Specs, attributes: Attributes) -> dict[str, object]:
        """The attributes, with dtypes by their short names. Raises UsageError for a name or value that the op does not
        have, and for a missing argument."""
        for name in attributes:
            if name not in self.attributes:
                known = [*self.operands, *self.attributes]
                raise UsageError(f"{self.__name__} has no argument {name!r}{did_you_mean(name, known)}")
        for name in self.needed:
            if name not in specs and attributes.get(name) is None:
                raise UsageError(f"{self.__name__} needs the argument {name!r}")
        checked = dict(attributes)
        for name, value in attributes.items():
            if value is None or (name == "activation" and str(value).startswith("clamp(")):
                continue
            try:
                checked[name] = self._kinds[name].of(dtype_name(value) if name.endswith("dtype") else value)
            except OpError as e:
                raise UsageError(f"{name}={value!r} {e}") from None
        return checked


# Types of attributes whose values tell calls apart.
_PLAIN = frozenset({str, int, float, bool, type(None)})


def _kind(value: object) -> tuple[object, object] | None:
    """What two arguments of calls of one program have in common; None if it takes long to find."""
    if is_torch(value):
        return value.shape, value.dtype
    return (type(value), value) if type(value) in _PLAIN else None


# Options of `.compile`, in addition to the arguments of a call and `target`: type, default, meaning.
_OPTIONS_OF_COMPILE: dict[str, tuple[str, object, str]] = {
    "flags": ("Sequence[str]", (), "additional flags for IREE's compiler"),
    "strict": ("bool", False, "raise a CompileError for a part that is known to be slow on the target"),
    "pipeline": ("str | None", None, "passes to run instead of the target's own"),
    "choice": ("Choice | None", None, "values for the knobs of the target's strategies, as of `qmlir.compile`"),
}
_ANNOTATIONS_OF_COMPILE = {
    "ArrayLike": "ArrayLike | TensorSpec",
    "ArrayLike | None": "ArrayLike | TensorSpec | None",
    "SparseWeight": "SparseWeight | SparseSpec",
}

# Arguments that no op definition describes.
_OTHER_ARGUMENTS = {
    "target": "what to compile for and run on, such as 'cpu', 'cuda:sm_90a' or 'vulkan:ada'",
    "weight": "a SparseWeight",
}
