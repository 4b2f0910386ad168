"""The backends: where their targets are described, and the functions that compile for them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from .base import Target

if TYPE_CHECKING:
    from ..kernels.attention import Attention
    from ..kernels.code_pooling import CodePooling
    from ..kernels.pointwise import Pointwise
    from ..kernels.recurrence import RecurrenceCall
    from ..kernels.rows import RowGroup
    from ..kernels.tile.instruction import Fragments
    from .base import Device
    from .strategy import GroupStrategy, Strategy

_Group = TypeVar("_Group")


class Description(Protocol):
    """The interface of a backend's `description.py`."""

    TARGETS: tuple[Target, ...]

    def names_for(self, device: Device) -> tuple[str, ...]:
        """The names of the targets whose programs run on a present device, best first."""

    def target_for(self, device: Device) -> Target | None:
        """The target to compile for on a present device, None if no target describes the device."""


def backend_description(backend: str) -> Description:
    """The description module of one backend."""
    return cast(Description, importlib.import_module(f".{backend}.description", __package__))


@dataclass(frozen=True)
class Backend:
    """A backend: the functions of its `strategies.py`, which is imported when one of them is first used. Its targets
    are data.

    Attributes:
        on_host: the device is this host's CPU; no driver is queried for it.
        devices_differ: devices of one target differ in properties that its programs may assume, so that a device is
            chosen and checked when a program is loaded.
        no_layouts: why the layouts of the backend's matrix instructions are not known; "" if they are.
    """

    name: str
    on_host: bool = False
    devices_differ: bool = False
    no_layouts: str = ""

    def strategies(self, target: Target) -> tuple[Strategy, ...]:
        """How contractions can be compiled for a target, best first."""
        build: Callable[[Target], tuple[Strategy, ...]] = self._module.strategies
        return build(target)

    def convolved_floats(self, target: Target) -> tuple[str, ...]:
        """The element types whose convolutions over all channels are compiled best in channels-last layout."""
        elements: Callable[[Target], tuple[str, ...]] | None = self._optional("convolved_floats")
        return () if elements is None else elements(target)

    def attention_strategies(self, target: Target) -> tuple[GroupStrategy[Attention], ...]:
        """Kernels for attention, best first. An attention that none accepts is decomposed (`qmlir-attention`)."""
        build: Callable[[Target], tuple[GroupStrategy[Attention], ...]] | None = self._optional("attention_strategies")
        return () if build is None else build(target)

    def recurrence_strategies(self, target: Target) -> tuple[GroupStrategy[RecurrenceCall], ...]:
        """Kernels for recurrent layers, best first. A layer that none accepts stays a loop (`qmlir-recurrences`)."""
        build: Callable[[Target], tuple[GroupStrategy[RecurrenceCall], ...]] | None
        build = self._optional("recurrence_strategies")
        return () if build is None else build(target)

    def rows_strategies(self, target: Target) -> tuple[GroupStrategy[RowGroup], ...]:
        """Kernels for elementwise ops and reductions along rows, best first. A group that none accepts stays unchanged
        (`qmlir-row-kernels`)."""
        build: Callable[[Target], tuple[GroupStrategy[RowGroup], ...]] | None = self._optional("rows_strategies")
        return () if build is None else build(target)

    def codes_strategies(self, target: Target) -> tuple[GroupStrategy[Pointwise | CodePooling], ...]:
        """Kernels from codes to codes, best first. A group that none accepts stays unchanged (`qmlir-code-kernels`)."""
        build: Callable[[Target], tuple[GroupStrategy[Pointwise | CodePooling], ...]] | None
        build = self._optional("codes_strategies")
        return () if build is None else build(target)

    def matrix_instructions(self, target: Target) -> Mapping[str, tuple[str, Fragments]]:
        """Matrix instructions that built-in kernels use and whose layout is known. For each name in the assembly: the
        name that IREE has or would have for it, and which lanes hold which elements."""
        named: Callable[[Target], Mapping[str, tuple[str, Fragments]]] | None = self._optional("matrix_instructions")
        return {} if named is None else named(target)

    def unfit(self, device: Device, subgroup_sizes: tuple[int, ...], matrices: Iterable[str] = ()) -> str:
        """Why programs for these subgroup sizes that use these matrix instructions would compute wrong results on a
        present device, or would not run; "" if they run correctly."""
        judge: Callable[[Device, tuple[int, ...], Iterable[str]], str] | None
        judge = getattr(backend_description(self.name), "unfit", None)
        return "" if judge is None else judge(device, subgroup_sizes, matrices)

    @property
    def _module(self) -> ModuleType:
        return importlib.import_module(f".{self.name}.strategies", __package__)

    def _optional(self, function: str) -> Callable[[Target], _Group] | None:
        """A function of the backend's `strategies.py`, None if it is not defined there."""
        return getattr(self._module, function, None)


def backend_of(target: Target) -> Backend:
    """The backend of a target."""
    return BACKENDS[target.backend]


def backend_spelled(target: str) -> Backend | None:
    """The backend of a target as a user writes it, None if there is no such backend."""
    return BACKENDS.get(target.partition(":")[0])


BACKENDS: Mapping[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("cpu", on_host=True),
        Backend("cuda"),
        Backend("rocm"),
        Backend("vulkan", devices_differ=True, no_layouts="only the driver knows the layout of cooperative matrices"),
    )
}

HOST = next(backend.name for backend in BACKENDS.values() if backend.on_host)  # the bare name: this host's target
