"""`qmlir.bench`: times compiled programs in alternation, and compares the times with the machine's limits.

Its parts can be used separately: `timing.alternate` times any callables, `measured_cpu` measures a CPU.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import settings
from ..checking.onnxruntime import open as open_peer
from ..compiler.compilation import compile
from ..compiler.options import CompileOptions
from ..core.deprecation import renamed
from ..core.progress import Step
from ..core.spelling import function_named
from ..dialect.dtypes import Array
from ..errors import UsageError
from ..report import html, plots
from ..runtime import inputs
from ..runtime.artifact import Artifact
from ..runtime.function import Function
from ..runtime.program import load
from ..targets import backend_of, resolve
from ..targets.strategy import seconds_text
from .timing import Timing, alternate, best, peak_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Unpack

# ---------------------------------------------------------------------------------------------------------- limits


@dataclass(frozen=True)
class Limits:
    """The limits of a machine: operations per second (two per multiply-add) and bytes per second. `source` says where
    the figures are from."""

    operations: float | None
    bandwidth: float | None
    source: str


# int8 multiply-adds per f32 multiply-add of the same vector width: vpdpbusd and Arm's dot products do four (Intel 64
# and Arm manuals), a pair of vpmaddwd and vpaddd one; AMX's tdpbssd does 1024 per cycle, AVX-512 does 32 in f32.
_INT8_RATIO = (("amx-int8", 32.0), ("avx512vnni", 4.0), ("avxvnni", 4.0), ("i8mm", 8.0), ("dotprod", 4.0))


def limits_of(artifact: Artifact) -> Limits:
    """The limits for a program. For a GPU: published figures of its product. For this CPU: f32 products of numpy's
    BLAS, times the ratio of its int8 instruction for int8 programs, and reads of memory, both measured here."""
    target = resolve(artifact.target)
    types = {row["lhs"] for row in artifact.manifest.strategies}
    has = target.capabilities
    if has.peak is not None:
        rates = [r for t in types if (r := has.peak.rate(t)) is not None]
        return Limits(min(rates, default=None), has.peak.bandwidth, f"published, {has.peak.product}")
    if not backend_of(target).on_host:
        return Limits(None, None, f"no published figures for {target.spelling}")
    f32, bandwidth = measured_cpu()
    integer = bool(types) and all(t.lstrip("u") in ("i8", "i4") for t in types)
    name, ratio = next(((n, r) for n, r in _INT8_RATIO if n in has.cpu_features), ("", 1.0)) if integer else ("", 1.0)
    more = f", int8 by {name} {ratio:g} times that" if name else ""
    return Limits(f32 * ratio, bandwidth, f"measured here: f32 products of numpy, reads of memory{more}")


_measured: tuple[float, float] | None = None


def measured_cpu() -> tuple[float, float]:
    """f32 operations per second of numpy's BLAS, and bytes per second of reading memory; measured once per process, in
    about half a second."""
    global _measured
    if _measured is None:
        n = 384
        a = np.ones((n, n), np.float32)
        out = np.empty_like(a)
        big = np.ones(1 << 24, np.float32)  # 64 MiB: beyond most caches
        product = best(lambda: np.matmul(a, a, out=out))
        read = best(lambda: np.dot(big, big))  # both operands are one array, read once per pass
        _measured = 2 * n**3 / product, big.nbytes / read
    return _measured


# ---------------------------------------------------------------------------------------------------------- bench


@dataclass(frozen=True)
class BenchRow:
    """One program's figures."""

    name: str
    target: str
    timing: Timing
    operations: float | None  # of one call: two per multiply-add; None if a size is dynamic
    traffic: int  # bytes of arguments, results and constants
    limits: Limits
    vmfb: int

    @property
    def bound(self) -> float | None:
        """The shortest time that the limits allow, in seconds."""
        parts = []
        if self.operations and self.limits.operations:
            parts.append(self.operations / self.limits.operations)
        if self.limits.bandwidth:
            parts.append(self.traffic / self.limits.bandwidth)
        return max(parts) if parts else None

    @property
    def share(self) -> float | None:
        """Share of the roofline: 1 is as fast as the limits allow; None for a peer. The bound by bandwidth assumes that
        nothing is cached."""
        return None if self.bound is None or not self.vmfb else self.bound / self.timing.median

    def to_json(self) -> dict[str, object]:
        t = self.timing
        return {
            "name": self.name, "target": self.target, "median": t.median, "p10": t.p10, "p90": t.p90,
            "calls_per_second": 1 / t.median, "samples": len(t.samples), "operations": self.operations,
            "traffic": self.traffic, "vmfb": self.vmfb, "limits": asdict(self.limits), "roofline_share": self.share,
        }  # fmt: skip


@dataclass(frozen=True)
class BenchReport:
    """The results of `bench`; ratios are relative to the first row."""

    rows: tuple[BenchRow, ...]
    threads: int
    peak_memory: int  # bytes, of the process

    def ratio(self, row: BenchRow) -> float:
        """The time of a row divided by that of the first row."""
        return row.timing.median / self.rows[0].timing.median

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The figures, 80 columns wide."""
        lines = [f"{'program':<24} {'median':>9} {'p10':>9} {'p90':>9} {'calls/s':>9} {'roofline':>8} {'ratio':>6}"]
        for r in self.rows:
            t = r.timing
            share = "-" if r.share is None else f"{r.share:.1%}"
            name = r.name if len(r.name) <= 24 else "..." + r.name[-21:]
            lines.append(f"{name:<24} {seconds_text(t.median):>9} {seconds_text(t.p10):>9} {seconds_text(t.p90):>9} "
                         f"{1 / t.median:>9.4g} {share:>8} {self.ratio(r):>6.3g}")  # fmt: skip
        threads = f"{self.threads} thread" + ("s" if self.threads != 1 else "")
        lines.append(f"{threads}, peak memory of the process {self.peak_memory / 2**20:.0f} MiB")
        lines += sorted({f"roofline: {r.limits.source}" for r in self.rows if r.limits.source})
        if any((r.share or 0) > 1 for r in self.rows):
            lines.append(
                "more than the limits allow: the machine was busy when they were measured (--limits states them)"
            )
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        return {"threads": self.threads, "peak_memory": self.peak_memory, "rows": self._rows()}

    def _rows(self) -> list[dict[str, object]]:
        return [{**r.to_json(), "ratio": self.ratio(r)} for r in self.rows]

    def to_csv(self) -> str:
        """One line per program, with a header."""
        out = io.StringIO()
        rows = [{k: v for k, v in r.items() if k != "limits"} for r in self._rows()]
        writer = csv.DictWriter(out, [*rows[0], "threads"], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "threads": self.threads})
        return out.getvalue()

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure | None:
        """Draw the roofline, the programs whose number of operations is known, and the ratios as bars. The picture is
        written to `path`, or returned as a matplotlib figure. Needs the extra `plot`."""
        programs = [
            plots.Timed(r.name, r.timing.median, r.operations, r.traffic, r.limits.operations, r.limits.bandwidth)
            for r in self.rows
        ]
        return plots.bench(programs, path)

    def _repr_html_(self) -> str:
        rows = [
            (r.name, r.target, seconds_text(r.timing.median), seconds_text(r.timing.p10), seconds_text(r.timing.p90),
             "-" if r.share is None else f"{r.share:.1%}", f"{self.ratio(r):.3g}")
            for r in self.rows
        ]  # fmt: skip
        head = ("program", "target", "median", "p10", "p90", "roofline", "ratio")
        return html.section(f"{self.threads} threads", html.table(head, rows))


@renamed(sizes="shapes", stated="limits", vs="against", repeats="rounds")
def bench(
    *programs: object,
    against: object = (),
    target: str = "cpu",
    function: str = "main",
    arguments: Sequence[Array] | Mapping[str, Array] | None = None,
    size: int = 4,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    seed: int = 0,
    seconds: float = 1.0,
    warmup: int = 3,
    rounds: int | None = None,
    limits: Limits | None = None,
    device: str | None = None,
    step: Step = lambda text: None,
    **options: Unpack[CompileOptions],
) -> BenchReport:
    """Measure programs in alternation. Returns a `BenchReport`: seconds per call (median, 10th and 90th percentile) of
    each, and its share of the roofline.

    Args:
        programs, against: artifacts, paths of `.vmfb` files, or sources for `qmlir.compile`, compiled for `target`.
            `against` may also name a peer, `onnxruntime`, which runs the first program if that is an ONNX model.
        arguments: in the order of the signature, or by name; default: random, from `seed`, with `size` for dynamic
            sizes and `shapes` for whole shapes by name.
        seconds: how long to measure each program; `warmup` calls before it are not counted.
        rounds: number of rounds, in place of `seconds`; a round calls each program for about a millisecond.
        limits: operations and bytes per second of the roofline; default: measured on a CPU, published for a GPU.
        device: where to run, as in `qmlir.load`.
        step: a function that is called with a text before each step.
        options: those of `qmlir.compile` for sources, and `parameters` for programs compiled with `keep_parameters`.

    Raises:
        UsageError: nothing to measure.
        InputError: arguments that do not fit one of the programs.
    """
    others = against if isinstance(against, (list, tuple)) else [against]
    if not (programs or others):
        raise UsageError("there is no program to measure")
    subjects: list[_Subject] = []
    for i, source in enumerate([*programs, *others]):
        step(f"loading {i + 1} of {len(programs) + len(others)}")
        if isinstance(source, str) and source in PEERS and i >= len(programs):
            subjects.append(_peer(source, programs[0] if programs else None, subjects))
            continue
        artifact, call = _loaded(source, target, function, device, options)
        roles = artifact.manifest.arguments.get(function)
        given = inputs.given_or_made(arguments, call.signature, roles, size=size, shapes=shapes, seed=seed)
        subjects.append(_Subject(_name(source), artifact, given, partial(call, *given)))
    for subject in subjects:
        subject.run()  # a program with an error raises before anything is measured
    step("measuring")
    timings = alternate([s.run for s in subjects], seconds=seconds, warmup=warmup, rounds=rounds, step=step)
    peak = peak_memory()
    step("the limits of this machine")
    rows = tuple(_row(s, t, limits) for s, t in zip(subjects, timings, strict=True))
    return BenchReport(rows, settings.threads(), peak)


# Peers that `against` may name in addition to programs: other systems that run an ONNX model.
PEERS = ("onnxruntime",)


@dataclass(frozen=True)
class _Subject:
    """What is measured: a qmlir program with its artifact, or a peer that runs the first program's model."""

    name: str
    artifact: Artifact | None
    arguments: Sequence[Array]
    run: Callable[[], object]


def _loaded(
    source: object, target: str, function: str, device: str | None, options: CompileOptions
) -> tuple[Artifact, Function]:
    """The artifact of a program and its function."""
    if isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".vmfb":
        artifact = Artifact.open(source)
    else:
        artifact = source if isinstance(source, Artifact) else compile(source, target=target, **options)
    kept = dict(options.get("parameters") or {}) if artifact.manifest.parameters else {}
    program = load(artifact, device=device, parameters=kept)
    return artifact, function_named(program.functions, function, _name(source))


def _peer(name: str, model: object, subjects: Sequence[_Subject]) -> _Subject:
    """A peer that runs the first program, which must be an ONNX model, on as many threads as qmlir uses."""
    path = model if isinstance(model, (str, os.PathLike)) else getattr(model, "path", None) or model
    if isinstance(path, (str, os.PathLike)) and Path(path).suffix == ".vmfb":
        raise UsageError(f"{name} runs ONNX models: give the .onnx file instead of {path}, and it is compiled here")
    runner = open_peer(path, "main", {}, settings.threads())
    given = subjects[0].arguments
    return _Subject(name, None, given, lambda: runner.run(given))


def _row(subject: _Subject, timing: Timing, stated: Limits | None) -> BenchRow:
    results = subject.run()
    moved = inputs.bytes_of([*subject.arguments, *(results if isinstance(results, (tuple, list)) else (results,))])
    artifact = subject.artifact
    if artifact is None:
        return BenchRow(subject.name, subject.name, timing, None, moved, stated or Limits(None, None, ""), 0)
    moved += constant_bytes(artifact)
    limits, size = stated or limits_of(artifact), len(artifact.vmfb)
    return BenchRow(subject.name, artifact.target, timing, _operations(artifact), moved, limits, size)


def constant_bytes(artifact: Artifact) -> int:
    """Bytes of the constants in the file."""

    with zipfile.ZipFile(io.BytesIO(artifact.vmfb)) as archive:
        return sum(e.file_size for e in archive.infolist() if e.filename.endswith(".bin"))


def _operations(artifact: Artifact) -> float | None:
    work = artifact.manifest.work
    return None if work is None else 2.0 * work


def _name(source: object) -> str:
    if isinstance(source, Artifact):
        return str(source.path or "program")
    return str(source) if isinstance(source, (str, os.PathLike)) and "\n" not in str(source) else "program"
