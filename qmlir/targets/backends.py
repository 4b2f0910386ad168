"""The backends: where each describes its targets, and what compiles for them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from .base import Target

if TYPE_CHECKING:
    from ..kernels.attention import Attention
    from ..kernels.code_pooling import CodePooling
    from ..kernels.pointwise import Pointwise
    from ..kernels.rows import RowGroup
    from ..kernels.tile.instruction import Fragments
    from .base import Device
    from .strategy import GroupStrategy, Strategy

_Group = TypeVar("_Group")

BACKENDS = ("cpu", "cuda", "rocm", "vulkan")


class Description(Protocol):
    """What a backend's `description.py` offers."""

    TARGETS: tuple[Target, ...]

    def names_for(self, device: Device) -> tuple[str, ...]:
        """The names of the targets whose programs run on a present device, best first."""


def backend_description(backend: str) -> Description:
    """The description module of one backend."""
    return cast(Description, importlib.import_module(f".{backend}.description", __package__))


@dataclass(frozen=True)
class Backend:
    """What compiles for the targets of one backend: the functions of its `strategies.py`, which is imported when one of
    them is asked for. A target itself is data."""

    name: str

    def strategies(self, target: Target) -> tuple[Strategy, ...]:
        """How contractions can be compiled for a target, best first."""
        build: Callable[[Target], tuple[Strategy, ...]] = self._module.strategies
        return build(target)

    def attention_strategies(self, target: Target) -> tuple[GroupStrategy[Attention], ...]:
        """Kernels for attention, best first. What none accepts is decomposed (`qmlir-attention`)."""
        build: Callable[[Target], tuple[GroupStrategy[Attention], ...]] | None = self._optional("attention_strategies")
        return () if build is None else build(target)

    def rows_strategies(self, target: Target) -> tuple[GroupStrategy[RowGroup], ...]:
        """Kernels for elementwise ops and reductions along rows, best first. What none accepts stays
        (`qmlir-row-kernels`)."""
        build: Callable[[Target], tuple[GroupStrategy[RowGroup], ...]] | None = self._optional("rows_strategies")
        return () if build is None else build(target)

    def codes_strategies(self, target: Target) -> tuple[GroupStrategy[Pointwise | CodePooling], ...]:
        """Kernels from codes to codes, best first. What none accepts stays (`qmlir-code-kernels`)."""
        build: Callable[[Target], tuple[GroupStrategy[Pointwise | CodePooling], ...]] | None
        build = self._optional("codes_strategies")
        return () if build is None else build(target)

    def matrix_instructions(self, target: Target) -> Mapping[str, tuple[str, Fragments]]:
        """Matrix instructions that built-in kernels use and whose layout is known: by their name in the assembly, the
        name that IREE has for it or would have, and where lanes hold the elements."""
        named: Callable[[Target], Mapping[str, tuple[str, Fragments]]] | None = self._optional("matrix_instructions")
        return {} if named is None else named(target)

    @property
    def _module(self) -> ModuleType:
        return importlib.import_module(f".{self.name}.strategies", __package__)

    def _optional(self, function: str) -> Callable[[Target], _Group] | None:
        """A function that not every backend has."""
        return getattr(self._module, function, None)


def backend_of(target: Target) -> Backend:
    """The backend of a target."""
    return Backend(target.backend)
