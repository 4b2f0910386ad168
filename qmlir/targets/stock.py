"""The stock route: the contraction is left unchanged, and IREE's own heuristics compile it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .base import Target
from .gpu import parse_mma
from .roofline import roofline
from .strategy import Accept, Choice, Contraction, Decline, Knob

if TYPE_CHECKING:
    from ..core.mlir import OpLike


@dataclass(frozen=True)
class StockPlan:
    """Leave the op unchanged. `facts` say how IREE is known to compile it; a fact named `slow` is a warning."""

    facts: tuple[tuple[str, str], ...] = ()

    def apply(self, op: OpLike) -> None:
        """Do nothing."""

    def describe(self) -> Mapping[str, str]:
        return {"route": "stock", **dict(self.facts)}


def no_facts(target: Target, contraction: Contraction) -> dict[str, str]:
    """The default for `StockStrategy.facts`."""
    return {}


def unsupported_dtype(target: Target, c: Contraction) -> Decline | None:
    """A Decline if the target does not support one of the operand types, with the types that it supports."""
    for side, dtype in (("lhs", c.lhs), ("rhs", c.rhs)):
        if dtype.startswith("ui") and not target.unsigned_mma and f"i{dtype[2:]}" in target.capabilities.dtypes:
            # Seen for gfx942 and gfx1100 with IREE 3.13: v_mfma_i32_*_i8 for `arith.extui` operands.
            return Decline(
                f"IREE computes {dtype} ({side}) as if it were signed on AMD's matrix instructions",
                "bias the codes to signed ones (xor with 128) and correct for it",
            )
        if dtype.removeprefix("u") not in target.capabilities.dtypes:
            similar = [d for d in target.capabilities.dtypes if d[:2] == dtype[:2]]
            return Decline(
                f"{target.spelling} has no {dtype} arithmetic ({side})",
                f"use one of {', '.join(similar or target.capabilities.dtypes)}, or another target",
            )
    return None


def no_f32_matrix(target: Target, c: Contraction) -> str:
    """Why a float product without a matrix instruction is slow if the target has one for shorter floats, else ""."""
    short = [k for k in map(parse_mma, target.capabilities.mma) if k.lhs in ("f16", "bf16")]
    if 1 in (c.m, c.n) or not short or "f32" not in (c.lhs, c.rhs):
        return ""
    return f"no matrix instruction takes {c.lhs} x {c.rhs}; activations in f16, or compute_dtype 'f16', would have one"


def no_flags(knob: str, value: int | str) -> tuple[str, ...]:
    """The default for `StockStrategy.flags`."""
    return ()


@dataclass(frozen=True)
class StockStrategy:
    """Accept every contraction whose types the target supports. `knobs` are the backend's; `flags` maps their values to
    flags of IREE."""

    target: Target
    facts: Callable[[Target, Contraction], dict[str, str]] = field(default=no_facts)
    name: str = "stock"
    knobs: tuple[Knob, ...] = ()
    flags: Callable[[str, int | str], tuple[str, ...]] = field(default=no_flags)

    def space(self) -> tuple[Knob, ...]:
        """See `strategy.Tunable`."""
        return self.knobs

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        """See `strategy.Tunable`."""
        return tuple(flag for name, value in choice.items() for flag in self.flags(name, value))

    def choosing(self, choice: Choice) -> StockStrategy:
        """See `strategy.Tunable`: the knobs are flags and change no plan."""
        return self

    def consider(self, contraction: Contraction) -> Accept | Decline:
        declined = unsupported_dtype(self.target, contraction)
        if declined is not None:
            return declined
        facts = self.facts(self.target, contraction)
        return Accept(StockPlan(tuple(facts.items())), roofline(self.target, contraction))
