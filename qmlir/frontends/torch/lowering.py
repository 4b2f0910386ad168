"""Lower the ops of the torch dialect that remain after raising to linalg on tensors, by torch-mlir's passes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch.fx import Node

from ...core.spelling import location_text
from ...errors import Diagnostic, FrontEndError
from ...ir.walk import collect
from ..torch_mlir import to_linalg, without_ir
from .graph import about

if TYPE_CHECKING:
    from ...core.mlir import ir

_HEAD = ("func.func(torch-reduce-op-variants,canonicalize,torch-recompose-complex-ops,torch-scalarize-shapes)",)
# Not operators of the program, but checks and operands of unconverted operators.
_NOT_OPERATORS = (
    "torch.constant",
    "torch.vtensor",
    "torch.prim",
    "torch.debug",
    "torch.runtime",
    "torch.tensor_static",
)
_WHAT_TO_DO = (
    "write it with other operators, register a raising pattern for it (qmlir.frontends.raising.raises), or leave it "
    "out of the compiled part"
)


class TorchUnconverted(FrontEndError):
    """torch-mlir does not convert a program; `nodes` are the nodes at which it failed, if known."""

    def __init__(self, diagnostics: list[Diagnostic], nodes: Sequence[Node] = ()) -> None:
        self.nodes = list(nodes)
        super().__init__(diagnostics)


class Places:
    """The nodes of a graph by the location at which they were imported."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[Node]] = {}

    def add(self, location: ir.Location, node: Node) -> None:
        self._nodes.setdefault(location_text(location), []).append(node)

    def find(self, location: str, operator: str | None) -> list[Node]:
        """The nodes of an operator, in torch-mlir's spelling: at the location, else anywhere, else of another overload
        at the location, because torch-mlir may substitute overloads. Without an operator, all at the location."""
        near = self._nodes.get(location, [])
        if operator is None:
            return near
        every = [n for many in self._nodes.values() for n in many]
        exact = ([n for n in many if spelled(n) == operator] for many in (near, every))
        overloads = [n for n in near if spelled(n).rpartition(".")[0] == operator.rpartition(".")[0]]
        return next(filter(None, (*exact, overloads)), [])


def spelled(node: Node) -> str:
    """torch-mlir's name of a node's operator."""
    return "torch." + str(node.target).removesuffix(".default")


def lower_torch(module: ir.Module, name: str, places: Places) -> None:
    """Lower every torch op of `module`. Raises TorchUnconverted, which names the operator and its place."""
    found: list[Node] = []

    def blame(said: list[Diagnostic]) -> Diagnostic | None:
        if not said:
            return None
        operator, place = _culprit(said[0]), said[0].location
        if operator is None:
            left = _left_over(module, place)
            operator, place = (None, place) if left is None else left
        found[:] = places.find(place, operator)
        if not found:
            return Diagnostic(f"{operator or without_ir(said[0].message)}: not converted by torch-mlir; {_WHAT_TO_DO}",
                              place)  # fmt: skip
        node = found[0]
        why = "" if _culprit(said[0]) is not None else f" ({without_ir(said[0].message)})"
        return about(node, f"is not converted by torch-mlir{why}; {_WHAT_TO_DO}", place)

    try:
        to_linalg(module, _HEAD, name, blame)
    except FrontEndError as e:
        raise TorchUnconverted(e.diagnostics, found) from None


def _culprit(d: Diagnostic) -> str | None:
    """The operator that a message of torch-mlir is about; None if it names none, or only an op in `_NOT_OPERATORS`."""
    named = re.search(r"""name = "(torch\.[^"]+)\"""", d.message) if "'torch.operator'" in d.message else None
    found = named or re.search(r"'(torch\.[\w.]+)'", d.message)
    return None if found is None or found[1].startswith(_NOT_OPERATORS) else found[1]


def _left_over(module: ir.Module, place: str) -> tuple[str, str] | None:
    """An unconverted operator and its location: one at `place` if there is one, else the first."""
    left = collect(module, where=lambda op: op.name.startswith("torch.") and not op.name.startswith(_NOT_OPERATORS))
    found = [
        (op.attributes["name"].value if op.name == "torch.operator" else op.name, location_text(op.location))
        for op in left
    ]
    return next((f for f in found if f[1] == place), found[0] if found else None)
