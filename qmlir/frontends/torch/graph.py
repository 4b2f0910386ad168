"""An FX graph with its constants, as the fusing rules and the importer read and write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...errors import Diagnostic

if TYPE_CHECKING:
    import sympy
    from torch._ops import OpOverload
    from torch._subclasses import FakeTensorMode
    from torch.fx.node import Argument, Target
    from torch.utils._sympy.value_ranges import ValueRanges

    from .state import HeldBuffer

aten = torch.ops.aten
# Operators that change neither the elements nor their order: a view of a constant is a constant.
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default,
         aten.squeeze.dim, aten.squeeze.dims, aten.flatten.using_ints, aten.unflatten.int)  # fmt: skip
TRANSPOSES = (aten.t.default, aten.transpose.int, aten.permute.default)
_PURE = (*VIEWS, *TRANSPOSES, aten.expand.default, aten._to_copy.default, aten.to.dtype, aten.mul.Tensor,
         aten.sub.Tensor, aten.add.Tensor, aten.div.Tensor, aten.reciprocal.default, aten.select.int,
         aten.slice.Tensor)  # fmt: skip
_FOLDABLE = 1 << 22  # largest size in bytes of a constant that is folded to inspect it


class TorchGraph:
    """A graph module `gm` in which every parameter, buffer and constant is a `get_attr` node, and every other input a
    placeholder with a tensor in `meta["val"]`. `ranges`: the ranges of the sizes for which it was exported, by torch's
    expressions of the sizes. `buffers`: those that a call updates for the next, each a placeholder and a result.
    `assumed`: by operator, what its decomposition assumes of dynamic sizes. `not_empty`: sizes that must not be 0."""

    def __init__(
        self, gm: GraphModule, ranges: Mapping[sympy.Expr, ValueRanges] | None = None,
        buffers: Sequence[HeldBuffer] = (),
    ) -> None:  # fmt: skip
        self.gm = gm
        self.ranges = ranges or {}
        self.buffers = buffers
        self.assumed: dict[OpOverload, str] = {}
        self.not_empty: set[sympy.Basic] = set()
        self._folded: dict[Node, torch.Tensor | None] = {}
        self._constants: dict[str, str] = {}

    @property
    def nodes(self) -> list[Node]:
        return list(self.gm.graph.nodes)

    # ---- constants

    def attribute(self, node: Node) -> torch.Tensor:
        """The tensor that a `get_attr` node names."""
        found: torch.nn.Module | torch.Tensor = self.gm
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return found

    def constant(self, value: torch.Tensor | torch.fx.Node) -> torch.Tensor | None:
        """The constant value of a node, through views and through arithmetic on small tensors; else None."""
        if isinstance(value, torch.Tensor):
            return value.detach()
        if not isinstance(value, Node):
            return None
        if value.op == "get_attr":
            found = self.attribute(value)
            return found.detach() if isinstance(found, torch.Tensor) else None
        if value.op != "call_function" or value.target not in _PURE:
            return None
        if value not in self._folded:
            self._folded[value] = self._fold(value)
        found = self._folded[value]
        return found if isinstance(found, torch.Tensor) else None

    def _fold(self, node: Node) -> torch.Tensor | None:
        args: list[Argument] = []
        for a in node.args:
            if isinstance(a, Node):
                known = self.constant(a)
                if known is None:
                    return None
                args.append(known)
            elif isinstance(a, (list, tuple)) and any(isinstance(x, Node) for x in a):
                return None
            else:
                args.append(a)
        free = node.target in VIEWS or node.target in TRANSPOSES
        val = node.meta.get("val")
        if not free and isinstance(val, torch.Tensor) and val.numel() * val.element_size() > _FOLDABLE:
            return None
        with torch.no_grad():
            return node.target(*args, **node.kwargs)

    def new_constant(self, tensor: torch.Tensor, before: Node) -> Node:
        """A new `get_attr` node of a tensor."""
        name = f"_qmlir_constant_{len(self._constants)}"
        self._constants[name] = name
        self.gm.register_buffer(name, tensor.detach(), persistent=False)
        with self.gm.graph.inserting_before(before):
            node = self.gm.graph.get_attr(name)
        node.meta["val"] = fake_like(before, tensor)
        return node

    # ---- rewriting

    def call(
        self, before: Node, target: Target, args: Sequence[Argument], kwargs: Mapping[str, Argument],
        val: torch.Tensor | torch.SymInt,
    ) -> Node:  # fmt: skip
        """A call whose result has the meta value `val`, with the source location of `before`."""
        with self.gm.graph.inserting_before(before):
            node = self.gm.graph.call_function(target, tuple(args), kwargs)
        node.meta = {k: v for k, v in before.meta.items() if k in ("stack_trace", "nn_module_stack", "from_node")}
        node.meta["val"] = val
        return node

    def replace(self, old: Node, new: Node) -> None:
        old.replace_all_uses_with(new)

    def clean(self) -> None:
        """Erase the nodes without users."""
        self.gm.graph.eliminate_dead_code(lambda n: n.op in ("placeholder", "output"))


def fake_like(node: Node, tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` as a value of the fake mode in which `node` was traced; the tensor itself if there is none."""
    mode = mode_of(node.graph)
    return mode.from_tensor(tensor.detach(), static_shapes=True) if mode is not None else tensor.detach()


def mode_of(graph: torch.fx.Graph) -> FakeTensorMode | None:
    """The fake mode of a graph's values; None if they are real tensors."""
    for node in graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None:
            return mode
    return None


def retyped(val: torch.Tensor, dtype: torch.dtype, shape: Sequence[torch.SymInt | int] | None = None) -> torch.Tensor:
    """A meta value with another dtype or shape."""
    return val.new_empty(tuple(val.shape) if shape is None else tuple(shape), dtype=dtype)


def shape_of(node: torch.fx.Node) -> tuple[torch.SymInt | int, ...]:
    """The sizes of a node's value, symbols included."""
    return tuple(node.meta["val"].shape)


def dtype_of(node: torch.fx.Node) -> torch.dtype:
    return node.meta["val"].dtype


def is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def same(a: torch.SymInt | int, b: torch.SymInt | int) -> bool:
    """Whether two sizes are equal for every value of their symbols."""
    return bool(statically_known_true(a == b))


def same_shape(a: Sequence[torch.SymInt | int], b: Sequence[torch.SymInt | int]) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def sole_user(node: Node) -> Node | None:
    """The only user of `node`, if it is a call that uses it once; otherwise None."""
    users = list(node.users)
    if len(users) != 1 or users[0].op != "call_function":
        return None
    uses = sum(1 for a in _flat(users[0]) if a is node)
    return users[0] if uses == 1 else None


def _flat(node: Node) -> Iterator[Argument]:
    for a in (*node.args, *node.kwargs.values()):
        if isinstance(a, (list, tuple)):
            yield from a
        else:
            yield a


def argument(node: Node, name: str) -> Argument:
    """An argument by its name in the operator's schema, or its default value if it is not passed."""
    schema = node.target._schema
    for i, a in enumerate(schema.arguments):
        if a.name == name:
            if name in node.kwargs:
                return node.kwargs[name]
            return node.args[i] if i < len(node.args) else a.default_value
    raise KeyError(name)


def where(node: Node) -> str:
    """A node for the report: its name, its module, and the line that called it."""
    frames = _frames(node)
    line = "" if not frames else f"{frames[-1][0].rsplit('/', 1)[-1]}:{frames[-1][1]}"
    place = ", ".join(filter(None, (_module(node), line)))
    return f"{node.name} ({place})" if place else node.name


def called(node: Node) -> str:
    """A node for a message: its name, its module, and the text of the line that called it."""
    frames = _own_frames(node)
    module = _module(node)
    text = frames[-1][2] if frames else ""
    return f"{node.name}" + (f" of module {module}" if module else "") + (f" (`{text}`)" if text else "")


def about(node: Node, what: str, place: str = "") -> Diagnostic:
    """A diagnostic on the operator of a node, at the line that called it, or at `place` if that is unknown."""
    text = f"the operator {str(node.target).removesuffix('.default')}, {called(node)}, {what}"
    return Diagnostic(text, source_line(node) or place or where(node))


def source_line(node: Node) -> str:
    """`file:line` of the innermost line outside of torch that called a node, "" if it is unknown."""
    frames = _own_frames(node)
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else ""


def _module(node: Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    module = next((str(v[0]) for v in reversed(list(stack.values())) if v and v[0]), "")
    return module.removeprefix("L['self'].").removeprefix("L['self']")


def _own_frames(node: Node) -> list[tuple[str, str, str]]:
    """The frames outside of torch; all frames if there are none."""
    folder = str(Path(torch.__file__).parent)
    frames = _frames(node)
    return [f for f in frames if not f[0].startswith(folder)] or frames


def _frames(node: Node) -> list[tuple[str, str, str]]:
    """File, line number and text of the calls that created a node, innermost last."""
    found: list[tuple[str, str, str]] = []
    for text in str(node.meta.get("stack_trace") or "").splitlines():
        text = text.strip()
        if text.startswith('File "'):
            file, _, rest = text[6:].partition('", line ')
            found.append((file, rest.partition(",")[0], ""))
        elif found and not found[-1][2] and not set(text) <= {"^", "~"}:
            found[-1] = (*found[-1][:2], text)
    return found
