"""The kernel that brings rows of experts into blocks, as CUDA launches it."""

from __future__ import annotations

from ....kernels.routing import Routing
from ...gpu_kernels import route as tables
from .executable import in_a_row

_THREADS = 512
_SHARED = 1 << 15  # bytes that no kernel has to ask for


def routable(routing: Routing) -> bool:
    """Whether the tables fit the kernel."""
    return tables.routable(routing, _SHARED)


def route(routing: Routing) -> None:
    """Put one dispatch in the place of the ops that make the tables."""
    tables.route(routing, in_a_row(_THREADS, lambda rows: 1))
