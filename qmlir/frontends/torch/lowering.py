"""What is torch's dialect after raising, by torch-mlir's passes to linalg on tensors."""

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
# Not operators of a program: what an operator that is left reads, or a check.
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
    """torch-mlir does not convert a program; `nodes` are what it failed at, as far as is known."""

    def __init__(self, diagnostics: list[Diagnostic], nodes: Sequence[Node] = ()) -> None:
        self.nodes = list(nodes)
        super().__init__(diagnostics)


class Places:
    """Which nodes of a graph were imported at which location."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[Node]] = {}

    def add(self, location: ir.Location, node: Node) -> None:
        self._nodes.setdefault(location_text(location), []).append(node)

    def find(self, location: str, operator: str | None) -> list[Node]:
        """The nodes of an operator in torch-mlir's spelling: at the location, or else everywhere, or else of another
        overload at the location, which torch-mlir may take for this one. Without an operator all at the location."""
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
    """The operator that a message of torch-mlir is about; None where it names none, or what an operator reads."""
    named = re.search(r"""name = "(torch\.[^"]+)\"""", d.message) if "'torch.operator'" in d.message else None
    found = named or re.search(r"'(torch\.[\w.]+)'", d.message)
    return None if found is None or found[1].startswith(_NOT_OPERATORS) else found[1]


def _left_over(module: ir.Module, place: str) -> tuple[str, str] | None:
    """An operator that is still torch's, and where: one at `place` if there is one, else the first."""
    left = collect(module, where=lambda op: op.name.startswith("torch.") and not op.name.startswith(_NOT_OPERATORS))
    found = [
        (op.attributes["name"].value if op.name == "torch.operator" else op.name, location_text(op.location))
        for op in left
    ]
    return next((f for f in found if f[1] == place), found[0] if found else None)
