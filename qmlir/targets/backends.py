"""The backends and where each describes its targets."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

from .base import Target

if TYPE_CHECKING:
    from .base import Device

BACKENDS = ("cpu", "cuda", "rocm", "vulkan")


class Description(Protocol):
    """What a backend's `description.py` offers."""

    TARGETS: tuple[Target, ...]

    def names_for(self, device: Device) -> tuple[str, ...]:
        """The names of the targets whose programs run on a present device, best first."""


def backend_description(backend: str) -> Description:
    """The description module of one backend."""
    return cast(Description, importlib.import_module(f".{backend}.description", __package__))
