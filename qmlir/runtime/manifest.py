"""The form of a manifest: what a file that qmlir wrote may say of its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ..errors import ArtifactError, Diagnostic, QmlirError
from ..spec import Signature


def scheme_text(row: Mapping[str, Any]) -> str:
    """`qmlir.scaled_matmul: i8 x i8 -> f32, scales [?, 1] and [1, 64], zero point of lhs, relu`."""
    scales = [str(["?" if s is None else s for s in row[name]]).replace("'", "")
              for name in ("lhs_scale", "rhs_scale") if row[name] is not None]  # fmt: skip
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


def check_manifest(manifest: Any, name: str = "the program") -> dict[str, Any]:
    """The manifest, once its parts have the form that we write. What it says is not trusted beyond that.

    Raises:
        ArtifactError: naming the part.
    """
    if not isinstance(manifest, dict) or "functions" not in manifest or "target" not in manifest:
        raise ArtifactError(f"{name} is damaged: its manifest lacks functions or target")
    if "driver" not in manifest:
        raise ArtifactError(f"{name} is damaged: its manifest lacks the driver")
    for part, check in _PARTS.items():
        try:
            sound = part not in manifest or check(manifest[part])
        except (KeyError, TypeError, ValueError, AttributeError, QmlirError):
            sound = False
        if not sound:
            raise ArtifactError(f"{name} is damaged: its manifest's {part!r} is not what qmlir writes")
    return manifest


def _texts(value: Any, count: int | None = None) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value) and count in (None, len(value))


def _size(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value < 2**63)


def _notes(value: Any) -> bool:
    return all(isinstance(v, str) for n in value for v in asdict(Diagnostic(**n)).values())


def _functions(value: Any) -> bool:
    made = {name: Signature.from_json(f) for name, f in value.items()}
    return bool(made) and all(isinstance(n, str) for s in made.values() for n, _ in s.inputs)


def _contraction(row: Any) -> bool:
    named = all(isinstance(row[k], str) for k in ("kind", "lhs", "rhs", "acc", "location", "chosen"))
    sizes = all(_size(x) for x in [*row["batch"], row["m"], row["n"], row["k"]])
    return named and sizes and isinstance(row["batch"], list) and all(_answer(a) for a in row["answers"])


def _answer(a: Any) -> bool:
    if not (isinstance(a["strategy"], str) and isinstance(a["accepted"], bool)):
        return False
    if not a["accepted"]:
        return isinstance(a["reason"], str) and isinstance(a["remedy"], str)
    seconds = a["seconds"]
    return isinstance(a["plan"], dict) and isinstance(a["note"], str) and (
        seconds is None or (isinstance(seconds, (int, float)) and 0 <= seconds < 1e9)
    )  # fmt: skip


def _schemes(value: Any) -> bool:

    return isinstance(value, list) and all(isinstance(scheme_text(s), str) for s in value)


def _roles(value: Any) -> bool:
    return all(isinstance(row, dict) for rows in value.values() for row in rows)


def _report(value: Any) -> bool:
    return value is None or all(
        isinstance(v, str) for part in ("raised", "fused", "left") for row in value[part] for v in row.values()
    )


def _source(value: Any) -> bool:
    if value is None:
        return True
    options = value["options"]
    known = {"pipeline", "start", "parameters", "keep_parameters", "flags", "choice"}
    return (
        isinstance(value["path"], str) and isinstance(value["sha256"], str)
        and isinstance(value["import_options"], dict) and isinstance(options, dict) and set(options) <= known
        and _texts(options["flags"]) and isinstance(options["start"], str) and isinstance(options["parameters"], dict)
        and isinstance(options.get("choice", {}), dict)
    )  # fmt: skip


_PARTS: dict[str, Callable[[Any], bool]] = {
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
    "ops": lambda v: all(isinstance(k, str) and type(n) is int for k, n in v.items()),
    "schemes": _schemes,
    "strategies": lambda v: isinstance(v, list) and all(_contraction(row) for row in v),
    "has_state": lambda v: isinstance(v, bool),
    "work": _size,
    "task_work": _size,
    "packer": lambda v: v is None or isinstance(v, str),
    "borrowed": lambda v: all(type(i) is int for numbers in v.values() for i in numbers),
    "import": _report,
    "source": _source,
}
