"""Strategies whose tile can be asked for, and which of two ways a product is made: each workgroup a tile of its own, or
all of them sharing K of all tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...kernels.description import Kernel
from ..base import Target
from ..strategy import Choice, Decline, Knob
from .stream_k import in_order

if TYPE_CHECKING:
    from typing_extensions import Self

FILL = 2.0e-6  # seconds: of the counters of shared tiles, in front of the product
_WORTH = 0.9  # of the time, for which workgroups share K


class NamedTile(Protocol):
    """A tile that is shipped."""

    @property
    def name(self) -> str: ...

    @property
    def stream_k(self) -> bool:
        """Whether workgroups share K (`stream_k`)."""


_Tile = TypeVar("_Tile", bound=NamedTile)


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


@dataclass(frozen=True)
class Ways:
    """Seconds of the best tiles: of workgroups with tiles of their own, and of such that share K; `ordered`: parts may
    be shared on request only, for the order of sums is in the bits of the result (`stream_k.in_order`)."""

    apart: float
    shared: float
    ordered: bool

    @property
    def pays(self) -> bool:
        """Whether sharing is worth it."""
        return self.shared < _WORTH * self.apart and not self.ordered

    @property
    def text(self) -> str:
        """Why K is shared, or is not."""
        times = ((self.apart, "with tiles apart"), (self.shared, "if K is shared"))
        text = " and ".join(f"{1e6 * t:.1f} us {how}" for t, how in times)
        return f"estimated: {text}" + "; groups are added up in their order" * self.ordered
