"""Rows of the manifest, as in its JSON, that more than one layer writes or reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

# A fact that a plan states about itself.
Fact: TypeAlias = "bool | int | float | str | Sequence[Fact] | Mapping[str, Fact] | None"
Facts: TypeAlias = "Mapping[str, Fact]"


class _Answer(TypedDict):
    strategy: str
    accepted: bool


class AnswerRow(_Answer, total=False):
    """A strategy's answer: a plan and its estimate, or the reason why there is none."""

    plan: dict[str, Fact]
    seconds: float | None
    note: str
    cost: float  # seconds, for plans that the cost model covers
    bound: str  # what takes most of these seconds
    assumed: list[str]  # unknown figures, each with the value that was assumed
    runner_up: tuple[str, float]  # the strategy's second choice, and its seconds
    reason: str
    remedy: str
    on_request: bool  # the strategy accepts when it is requested by name


class _Decision(TypedDict):
    kind: str
    batch: list[int | None]
    m: int | None
    n: int | None
    k: int | None
    lhs: str
    rhs: str
    acc: str
    location: str
    chosen: str
    answers: list[AnswerRow]


class DecisionRow(_Decision, total=False):
    """A contraction and the strategies' answers. Sizes are None where dynamic."""

    op: str  # the op of the dialect that it comes from; not written to files


class SchemeRow(TypedDict):
    """How a product is quantised. Sizes of scales are None where dynamic."""

    op: str
    lhs: str
    rhs: str
    out: str
    lhs_scale: list[int | None] | None
    rhs_scale: list[int | None] | None
    zero_points: list[str]  # "lhs", "rhs"
    activation: str
    rounding: str


class ParameterRow(TypedDict):
    """A tensor of a parameter file that a program names."""

    scope: str
    key: str
    shape: list[int]
    element: str


class SpecRow(TypedDict):
    """A tensor of a signature: sizes are numbers, names, or None where dynamic."""

    shape: list[int | str | None]
    dtype: str


class ArgumentRow(SpecRow):
    """An argument of a function."""

    name: str


class RangeRow(TypedDict):
    """The range of an argument's elements, see `spec.Range`."""

    argument: int
    least: int
    most: int
    part: list[tuple[int, int] | None]


class LimitRow(TypedDict):
    """The sizes that an axis may have, see `spec.Limit`."""

    argument: int
    axis: int
    least: int
    most: int | None


class _Signature(TypedDict):
    inputs: list[ArgumentRow]
    outputs: list[SpecRow]


class SignatureRow(_Signature, total=False):
    """What a function takes and returns."""

    ranges: list[RangeRow]
    limits: list[LimitRow]


class RoleRow(TypedDict, total=False):
    """The role of an argument."""

    role: str  # the name of the op's operand; "" if there is none
    limit: int  # expert ids are below it
    rows_of: int | None  # the argument whose number of rows is the sum of the group sizes
    rows: int | None  # that number of rows


class _Options(TypedDict):
    start: str
    parameters: dict[str, str]
    flags: list[str]


class OptionsRow(_Options, total=False):
    """What a program was compiled with."""

    pipeline: str | None
    keep_parameters: bool | Literal["mapped"]
    choice: dict[str, int | str]


class SourceRow(TypedDict):
    """The file that a program was compiled from, and the options of its compilation."""

    path: str
    sha256: str
    import_options: dict[str, object]
    options: OptionsRow


class CapabilitiesRow(TypedDict, total=False):
    """The properties of a target, for `qmlir targets` and for comparison with a device."""

    target: str
    driver: str
    summary: str
    status: str
    mma: list[str]
    int8_dot: bool
    dtypes: list[str]
    subgroup_sizes: list[int]
    shared_memory: int
    cpu_features: list[str]
    host: str
