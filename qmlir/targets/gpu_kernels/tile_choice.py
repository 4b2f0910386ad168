"""Strategies whose tile can be asked for, and which of two ways a product is made: each workgroup a tile of its own, or
all of them sharing K of all tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...kernels.description import Kernel
from ..base import Target
from ..cost import Figures
from ..strategy import Choice, Decline, Knob
from .stream_k import Sharing, in_order

if TYPE_CHECKING:
    from typing_extensions import Self

_FILL = 2.0e-6  # seconds: of the counters of shared tiles, in front of the product
_WORTH = 0.9  # of the time, for which workgroups share K


class NamedTile(Protocol):
    """A tile that is shipped."""

    @property
    def name(self) -> str: ...

    @property
    def stream_k(self) -> bool:
        """Whether workgroups share K (`stream_k`)."""


_Tile = TypeVar("_Tile", bound=NamedTile)
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Tiled(Generic[_Tile]):
    """A strategy whose tile can be asked for (`strategy.Tunable`): by the knob `NAME-tile`, "" being the fastest.

    Attributes:
        tried: whether it is one of `each`: of its tile nobody has asked.
    """

    target: Target
    name: str = ""
    tiles: tuple[_Tile, ...] = ()
    tried: bool = False

    @property
    def _knob(self) -> str:
        return f"{self.name}-tile"

    def space(self) -> tuple[Knob, ...]:
        return (Knob(self._knob, ("", *(tile.name for tile in self.tiles))),) if self.tiles else ()

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        return ()

    def choosing(self, choice: Choice) -> Self:
        asked = choice.get(self._knob)
        return replace(self, tiles=tuple(t for t in self.tiles if t.name == asked)) if asked else self

    def each(self) -> Sequence[Self]:
        """See `multi_version.SizedStrategy`."""
        return [replace(self, tiles=(tile,), tried=True) for tile in self.tiles] if len(self.tiles) > 1 else [self]

    def on_request(self, kernel: Kernel) -> Decline | None:
        """A refusal of a tile that has to be asked for: workgroups would share K, and groups along K are added up in
        their order."""
        if self.tried and in_order(kernel) and all(tile.stream_k for tile in self.tiles):
            tile = f"{{'{self._knob}': '{self.tiles[0].name}'}}"
            return Decline("groups along K are added up in their order: K is shared on request only", f"choice={tile}")
        return None


def best_first(
    apart: Sequence[tuple[float, _Made]], shared: Sequence[tuple[float, _Made]], kernel: Kernel, least: float = 0.0
) -> tuple[list[_Made], str]:
    """Kernels, the fastest first, and why their workgroups share K or do not, "" where there is only one way.

    Args:
        apart: seconds of kernels whose workgroups have tiles of their own, and the kernels, in ascending order.
        shared: of those that share K, the same. They are first where they are better by far; not where parts may be
            shared on request only (`in_order`).
        least: seconds that no kernel can be faster than.
    """
    if not apart or not shared:
        return [made for _, made in apart or shared], ""
    ordered, times = in_order(kernel), [max(least, made[0][0]) for made in (apart, shared)]
    pays = times[1] < _WORTH * times[0] and not ordered
    first, other = (shared, apart) if pays else (apart, [] if ordered else shared)
    rest = sorted((*first[1:], *other), key=lambda pair: pair[0])
    hows = ("with tiles apart", "if K is shared")
    text = " and ".join(f"{1e6 * t:.1f} us {how}" for t, how in zip(times, hows, strict=True))
    why = f"estimated: {text}" + "; groups are added up in their order" * ordered
    return [first[0][1], *(made for _, made in rest)], why


def seconds_of_sharing(sharing: Sharing, of_unit: float, f: Figures) -> float:
    """Of a call whose workgroups, `of_unit` on each unit, share K: counters, and two parts of each share, there and
    back."""
    return f.cache(4 * of_unit * sharing.part_bytes) + _FILL + 4 * f.latency
