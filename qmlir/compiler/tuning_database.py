"""The results of tuning: a JSON file that people can read and compare. Merging two files loses nothing.

A key names the contractions of a program, the target and the versions of the compiler (`key_of`). Its records are a
set, and merging is the union: the order of merges does not matter, and merging twice changes nothing. A record names
values of declared knobs, never flags: the strategies define the flags of a value, so a file cannot make the compiler do
anything else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict

from ..core.files import write_atomically
from ..core.iree import compiler_version
from ..core.rows import DecisionRow
from ..core.version import __version__
from ..errors import UsageError
from ..targets import Target
from ..targets.strategy import Choice, saved_choice, shape_text

FORMAT = 1
# A choice counts as better than the default if it takes at most this share of its time: a smaller gain is noise.
BETTER = 0.98
# The results in the wheel, which `python -m benchmarks.tuning` measured.
SHIPPED, DEFAULTS = "shipped", Path(__file__).with_name("tuning_defaults.json")


@dataclass(frozen=True)
class Record:
    """One measured choice: its time and that of the default in seconds, measured in alternation on `device`."""

    choice: tuple[tuple[str, int | str], ...]
    seconds: float
    baseline: float
    device: str

    @property
    def ratio(self) -> float:
        """Below 1: faster than the default."""
        return self.seconds / self.baseline


class RecordRow(TypedDict):
    """A record in a file."""

    choice: dict[str, int | str]
    seconds: float
    baseline: float
    device: str


@dataclass
class Database:
    """Records by key."""

    entries: dict[str, set[Record]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str | os.PathLike[str]) -> Database:
        """The database to compile with: a file's records, and for keys that it lacks those that this package ships.
        With the name `shipped`, the latter only."""
        shipped = cls.read(DEFAULTS)
        if name == SHIPPED:
            return shipped
        read = cls.read(name)
        return cls({**shipped.entries, **read.entries})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Database:
        """Raises UsageError for a file that is missing, damaged or of another format."""
        try:
            data = json.loads(Path(path).read_text())
        except OSError as e:
            raise UsageError(f"cannot read {path}: {e.strerror or e}") from None
        except ValueError as e:
            raise UsageError(f"{path} is not a tuning database: {e}") from None
        try:
            if data["format"] != FORMAT:
                raise UsageError(f"{path} has format {data['format']}, but this version reads {FORMAT}; tune again")
            made = cls()
            for key, rows in data["entries"].items():
                made.entries[str(key)] = {_record(row) for row in rows}
            return made
        except (KeyError, TypeError, AttributeError, ValueError) as e:
            raise UsageError(f"{path} is not a tuning database: {type(e).__name__} {e}") from None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically, sorted, so that two files can be compared line by line."""
        rows = {
            key: [{**asdict(r), "choice": dict(r.choice)} for r in sorted(self.entries[key], key=_order)]
            for key in sorted(self.entries)
        }
        text = json.dumps({"format": FORMAT, "entries": rows}, indent=1, sort_keys=True)
        write_atomically(Path(path), (text + "\n").encode())

    def add(self, key: str, record: Record) -> None:
        self.entries.setdefault(key, set()).add(record)

    def merged(self, other: Database) -> Database:
        """Every record of both."""
        keys = [*self.entries, *other.entries]
        return Database({k: self.entries.get(k, set()) | other.entries.get(k, set()) for k in keys})

    def best(self, key: str) -> Choice | None:
        """The fastest choice, {} if none is clearly faster than the default; None if there are no records."""
        records = self.entries.get(key)
        if not records:
            return None
        found = min(records, key=lambda r: (r.ratio, _order(r)))
        return dict(found.choice) if found.ratio <= BETTER else {}


def _record(row: RecordRow) -> Record:
    choice = tuple(sorted(saved_choice({str(k): v for k, v in row["choice"].items()}).items()))
    if not all(isinstance(v, (str, int, float, bool)) for _, v in choice):
        raise ValueError("a choice has values that are not plain ones")
    seconds, baseline = float(row["seconds"]), float(row["baseline"])
    if not (0 < seconds < 1e6 and 0 < baseline < 1e6):
        raise ValueError("a time is not a positive number of seconds")
    return Record(choice, seconds, baseline, str(row["device"]))


def _order(r: Record) -> str:
    return json.dumps([r.choice, r.seconds, r.baseline, r.device])


def key_of(target: Target, contractions: Iterable[DecisionRow]) -> str:
    """The key of results: target (with the host's name for bare `cpu`), versions, and each contraction with its op,
    types and sizes (M rounded up to a power of two)."""
    forms = []
    for row in contractions:
        rounded = row.copy()
        rounded["m"] = bucket(row["m"])
        forms.append(f"{row.get('op') or row['kind']} {shape_text(rounded)}")
    name = f"{target.spelling} ({target.host})" if target.host else target.spelling
    return "; ".join([name, f"qmlir {__version__}", f"iree {compiler_version()}", *sorted(forms)])


def bucket(size: int | None) -> int | None:
    """A size rounded up to a power of two: such sizes share results."""
    return None if size is None else 1 << max(size - 1, 0).bit_length()
