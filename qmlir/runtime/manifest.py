"""The schema of a manifest: the description of a program in a file that qmlir wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields

from ..core.rows import CapabilitiesRow, DecisionRow, ParameterRow, RoleRow, SchemeRow, SourceRow
from ..core.version import __version__
from ..errors import ArtifactError, Diagnostic, QmlirError
from ..spec import Signature

SCHEMA = 1  # incremented if readers of the previous schema would misread a file; not for new keys
_KEYS = {"import_report": "import", "zero_copy": "borrowed"}  # fields that have another name in the file


def scheme_text(row: SchemeRow) -> str:
    """`qmlir.scaled_matmul: i8 x i8 -> f32, scales [?, 1] and [1, 64], zero point of lhs, relu`."""
    shapes = [shape for shape in (row["lhs_scale"], row["rhs_scale"]) if shape is not None]
    scales = [str(["?" if s is None else s for s in shape]).replace("'", "") for shape in shapes]
    parts = [f"{row['op']}: {row['lhs']} x {row['rhs']} -> {row['out']}"]
    if scales:
        parts.append(f"{'scale' if len(scales) == 1 else 'scales'} {' and '.join(scales)}")
    if row["zero_points"]:
        parts.append(f"zero point of {' and '.join(row['zero_points'])}")
    if row["activation"] != "none":
        parts.append(row["activation"])
    if row["out"] in ("i8", "u8"):
        parts.append(f"rounded {row['rounding']}")
    return ", ".join(parts)


@dataclass(kw_only=True)
class Manifest:
    """The description of a program in its `.vmfb`. `to_json` and `from_json` convert it to and from its form there.

    Attributes:
        schema: version of the schema. A file without one predates versions, and is read as version 1.
        target: as a user writes it, `rocm:gfx942`.
        driver: the driver of IREE's runtime.
        functions: the signatures of the public functions, by name.
        qmlir, iree: the versions that compiled it.
        capabilities: those of the target, which a device is compared with before the program is loaded.
        cpu_features: CPU features that the host must have, in LLVM's spelling.
        arguments: the role of each argument of each function, see `inputs.make`.
        ops: the number of occurrences of each operation of the source.
        schemes: the quantisation scheme of each product, see `scheme_text`.
        parameters: scopes of parameter files that loading needs.
        parameter_types: the tensors in them: `scope`, `key`, `shape`, `element`.
        source: `path`, `sha256` and options of the file that was compiled; None for one from memory.
        import_report: the ops that a front end raised, fused and left; None for MLIR.
        pipeline: the passes that ran.
        notes: diagnostics of the compiler.
        strategies: `Decision.summary` of each contraction.
        work: multiply-adds of one call; None if some size is dynamic.
        task_work: those of them that IREE's task system distributes over threads.
        zero_copy: for each function, the indices of the arguments that are passed without a copy; kernels read them at
            any alignment.
        has_state: whether a call may change the results of the next call.
        packer: the program that packs weights when they are loaded, as text; None if there is none.
    """

    target: str
    driver: str
    functions: dict[str, Signature]
    schema: int = SCHEMA
    qmlir: str = "?"
    iree: str = "?"
    capabilities: CapabilitiesRow = field(default_factory=CapabilitiesRow)
    cpu_features: list[str] = field(default_factory=list)
    arguments: dict[str, list[RoleRow]] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=dict)
    schemes: list[SchemeRow] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    parameter_types: list[ParameterRow] = field(default_factory=list)
    source: SourceRow | None = None
    import_report: dict[str, list[dict[str, str]]] | None = None
    pipeline: str = ""
    notes: list[Diagnostic] = field(default_factory=list)
    strategies: list[DecisionRow] = field(default_factory=list)
    work: int | None = None
    task_work: int | None = None
    zero_copy: dict[str, list[int]] = field(default_factory=dict)
    has_state: bool = False
    packer: str | None = None

    def to_json(self) -> dict[str, object]:
        rows = {_KEYS.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}
        functions = {name: s.to_json() for name, s in self.functions.items()}
        return rows | {"functions": functions, "notes": [asdict(n) for n in self.notes]}

    @classmethod
    def from_json(cls, value: object, name: str = "the program") -> Manifest:
        """Read a manifest whose values have the types that qmlir writes; unknown keys are ignored. Its content is not
        trusted beyond that.

        Raises:
            ArtifactError: a value has another type; the message names its key.
        """
        if not isinstance(value, dict) or "functions" not in value or "target" not in value:
            raise ArtifactError(f"{name} is damaged: its manifest lacks functions or target")
        if "driver" not in value:
            raise ArtifactError(f"{name} is damaged: its manifest lacks the driver")
        schema = value.get("schema", SCHEMA)
        if type(schema) is int and schema > SCHEMA:
            by = f"qmlir {value['qmlir']}" if isinstance(value.get("qmlir"), str) else "a later qmlir"
            raise ArtifactError(
                f"{name} was compiled by {by}, whose manifests have the form {schema}; this is qmlir {__version__}, "
                f"which reads up to {SCHEMA}: install that version, or compile the program again"
            )
        for part, check in _PARTS.items():
            try:
                sound = part not in value or check(value[part])
            except (KeyError, TypeError, ValueError, AttributeError, QmlirError):
                sound = False
            if not sound:
                raise ArtifactError(f"{name} is damaged: its manifest's {part!r} is not what qmlir writes")
        keys = {_KEYS.get(f.name, f.name): f.name for f in fields(cls)}
        given = {keys[k]: v for k, v in value.items() if k in keys}
        functions = {n: Signature.from_json(f) for n, f in value["functions"].items()}
        notes = [Diagnostic(**n) for n in value.get("notes", [])]
        return cls(**given | {"functions": functions, "notes": notes})


def _texts(value: object, count: int | None = None) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value) and count in (None, len(value))


def _size(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value < 2**63)


def _notes(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for n in value for v in asdict(Diagnostic(**n)).values())


def _functions(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    made = {name: Signature.from_json(f) for name, f in value.items()}
    return bool(made) and all(made) and all(isinstance(n, str) for s in made.values() for n, _ in s.inputs)


def _contraction(row: object) -> bool:
    if not isinstance(row, dict):
        return False
    named = all(isinstance(row[k], str) for k in ("kind", "lhs", "rhs", "acc", "location", "chosen"))
    sizes = all(_size(x) for x in [*row["batch"], row["m"], row["n"], row["k"]])
    return named and sizes and isinstance(row["batch"], list) and all(_answer(a) for a in row["answers"])


def _answer(a: object) -> bool:
    if not (isinstance(a, dict) and isinstance(a["strategy"], str) and isinstance(a["accepted"], bool)):
        return False
    if not a["accepted"]:
        return isinstance(a["reason"], str) and isinstance(a["remedy"], str)
    seconds = a["seconds"]
    return isinstance(a["plan"], dict) and isinstance(a["note"], str) and (
        seconds is None or (isinstance(seconds, (int, float)) and 0 <= seconds < 1e9)
    )  # fmt: skip


def _schemes(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(scheme_text(s), str) for s in value)


def _roles(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(row, dict) for rows in value.values() for row in rows)


def _report(value: object) -> bool:
    if not isinstance(value, dict):
        return value is None
    return all(isinstance(v, str) for part in ("raised", "fused", "left") for row in value[part] for v in row.values())


def _counts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and type(n) is int for k, n in value.items())


def _numbers(value: object) -> bool:
    return isinstance(value, dict) and all(type(i) is int for numbers in value.values() for i in numbers)


def _source(value: object) -> bool:
    if not isinstance(value, dict):
        return value is None
    options = value["options"]
    known = {"pipeline", "start", "parameters", "keep_parameters", "flags", "choice"}
    return (
        isinstance(value["path"], str) and isinstance(value["sha256"], str)
        and isinstance(value["import_options"], dict) and isinstance(options, dict) and set(options) <= known
        and _texts(options["flags"]) and isinstance(options["start"], str) and isinstance(options["parameters"], dict)
        and isinstance(options.get("choice", {}), dict)
    )  # fmt: skip


_PARTS: dict[str, Callable[[object], bool]] = {
    "schema": lambda v: type(v) is int and v > 0,
    "target": lambda v: isinstance(v, str),
    "driver": lambda v: isinstance(v, str),
    "pipeline": lambda v: isinstance(v, str),
    "qmlir": lambda v: isinstance(v, str),
    "iree": lambda v: isinstance(v, str),
    "functions": _functions,
    "notes": _notes,
    "cpu_features": _texts,
    "parameters": _texts,
    "parameter_types": lambda v: isinstance(v, list) and all(isinstance(p["scope"], str) for p in v),
    "capabilities": lambda v: isinstance(v, dict),
    "arguments": _roles,
    "ops": _counts,
    "schemes": _schemes,
    "strategies": lambda v: isinstance(v, list) and all(_contraction(row) for row in v),
    "has_state": lambda v: isinstance(v, bool),
    "work": _size,
    "task_work": _size,
    "packer": lambda v: v is None or isinstance(v, str),
    "borrowed": _numbers,
    "import": _report,
    "source": _source,
}
