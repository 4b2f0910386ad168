"""Rows of the manifest that more than one layer writes or reads, as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

# What a plan says of itself.
Fact: TypeAlias = "bool | int | float | str | Sequence[Fact] | Mapping[str, Fact] | None"
Facts: TypeAlias = "Mapping[str, Fact]"


class _Answer(TypedDict):
    strategy: str
    accepted: bool


class AnswerRow(_Answer, total=False):
    """What a strategy answered: a plan and its estimate, or why there is none."""

    plan: dict[str, Fact]
    seconds: float | None
    note: str
    cost: float  # seconds, of plans that the cost model knows
    bound: str  # what takes most of them
    assumed: list[str]  # figures that were not known, with what was taken in their place
    runner_up: tuple[str, float]  # what the strategy would have chosen next, and its seconds
    reason: str
    remedy: str
    on_request: bool  # the refusal does not hold where the strategy is asked for by its name


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
    """A contraction and what was answered. Sizes are None where dynamic."""

    op: str  # of the dialect, that it comes from; not in a file


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
    """Where the numbers of an argument lie, see `spec.Range`."""

    argument: int
    least: int
    most: int
    part: list[tuple[int, int] | None]


class LimitRow(TypedDict):
    """Which sizes an axis may have, see `spec.Limit`."""

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
    """What an argument is used as."""

    role: str  # the operand of an op; "" of none
    limit: int  # that expert ids stay below
    rows_of: int | None  # the argument whose rows sizes of groups add up to
    rows: int | None  # how many that are


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
    """The file that a program was compiled from, and with what."""

    path: str
    sha256: str
    import_options: dict[str, object]
    options: OptionsRow


class CapabilitiesRow(TypedDict, total=False):
    """What a target is, for `qmlir targets`, and what a device is compared with."""

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
