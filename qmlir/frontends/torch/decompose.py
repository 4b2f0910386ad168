"""Replace operators that torch-mlir does not convert by operators that it does, one node of the graph at a time.

A node is replaced by the trace of a function of its arguments: a rule of `rules`, torch's own decomposition, or torch's
implementation of a composite operator. Nodes of `KNOWN` are replaced before the graph is raised, others after their
import has failed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from ...errors import Diagnostic, FrontEndError
from . import (
    indices as _indices,  # noqa: F401  (registers its rules)
    integer_rules as _integer_rules,  # noqa: F401
    norm_rules as _norm_rules,  # noqa: F401
    recurrent_rules as _recurrent_rules,  # noqa: F401
    resampling as _resampling,  # noqa: F401
)
from .complex_rules import FOURIER, OF_COMPLEX
from .convolution_rules import WITH_A_BATCH, axes_with_a_batch, with_a_batch
from .graph import TorchGraph, about, aten, dtype_of, fake_like, is_tensor, mode_of, shape_of
from .order_rules import ALONG_AN_AXIS, with_an_axis
from .paddings import constant_pad
from .program import decompositions
from .rules import BYTES, IF_REFUSED, PRODUCTS_OF_BYTES, SUMS, in_wider, rule_of, wider

if TYPE_CHECKING:
    import sympy
    from torch._ops import OpOverload
    from torch._subclasses import FakeTensorMode
    from torch.fx.node import Target

# torch-mlir does not convert these, or wrongly: it divides the mean of weighted losses by their number, not by the sum
# of the weights.
KNOWN = {
    aten.__and__.Tensor, aten.__and__.Scalar, aten.__or__.Tensor, aten.__or__.Scalar, aten.__xor__.Tensor,
    aten.__xor__.Scalar, aten.diff.default, aten.meshgrid.default, aten.meshgrid.indexing,
    aten.cross_entropy_loss.default, aten.nll_loss_nd.default, aten.nll_loss.default, aten.nll_loss_forward.default,
    aten.nll_loss2d.default, aten.nll_loss2d_forward.default, aten.binary_cross_entropy_with_logits.default,
    aten.conv3d.padding,
}  # fmt: skip
# torch-mlir's conversions of these are wrong. Those of other operators are tried if a rule holds for one size only.
WRONG = {
    aten.conv3d.padding, aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default, aten.embedding_bag.padding_idx, aten.index_put.default, aten.logcumsumexp.default,
}  # fmt: skip
# Applied inside every decomposition. `torch.tensor` in a rule is traced to `detach_`.
_ALWAYS: dict[OpOverload, Callable[..., object]] = {
    **FOURIER, aten.constant_pad_nd.default: constant_pad, aten.detach_.default: lambda x: x,
}  # fmt: skip


def _spell_out_lists(node: Node) -> None:
    """Expand a list of one value for all axes (`int[2]` of a schema) to one value per axis, and state a pool's default
    stride, which is its window: torch-mlir takes missing values for 1, and for 0 in paddings."""
    names = [a.name for a in node.target._schema.arguments]
    args = list(node.args)
    if names[1:3] == ["kernel_size", "stride"] and args[2:3] in ([], [[]]):
        args[2:3] = [args[1]]
    for i, argument in enumerate(node.target._schema.arguments[: len(args)]):
        if (argument.N or 1) > 1 and isinstance(args[i], Sequence) and len(args[i]) == 1:
            args[i] = list(args[i]) * argument.N
    node.args = tuple(args)


def _is_empty(node: Node) -> bool:
    """Whether a node's result has no elements: torch-mlir's conversions of such nodes divide by 0."""
    if not is_tensor(node) or _mutates(node) or node.target is aten.zeros.default:
        return False
    return any(isinstance(size, int) and size == 0 for size in shape_of(node))


def _inline_zeros(graph: TorchGraph, node: Node) -> None:
    """Replace a node by zeros of its sizes; dynamic sizes are computed from the sizes of its arguments."""
    shape, dtype = list(shape_of(node)), dtype_of(node)
    if all(isinstance(size, int) for size in shape):
        graph.replace(node, graph.call(node, aten.zeros.default, [shape], {"dtype": dtype}, node.meta["val"]))
    elif isinstance(node.target, torch._ops.OpOverload):
        made = _traced(
            graph, node, lambda *args, **kwargs: torch.zeros(node.target(*args, **kwargs).shape, dtype=dtype)
        )
        if made is not None:
            _inline(graph, node, *made)


def decompose_known(graph: TorchGraph) -> None:
    """Replace the nodes that are known to need a decomposition, including those among their replacements."""
    seen: set[Node] = set()
    while new := [n for n in graph.nodes if n.op == "call_function" and n not in seen]:
        seen.update(new)
        for node in new:
            _decompose_if_known(graph, node)
        graph.clean()


def _decompose_if_known(graph: TorchGraph, node: Node) -> None:
    if isinstance(node.target, torch._ops.OpOverload):
        _spell_out_lists(node)
    if _is_empty(node):
        _inline_zeros(graph, node)
        return
    first = node.args[0] if node.args else None
    short = isinstance(first, Node) and wider(node.target, first.meta.get("val")) is not None
    known = node.target in KNOWN or rule_of(node.target) or _lacks_an_axis(node)
    if short or known or _has_complex_rule(node) or _is_einsum_to_decompose(node):
        made = decompose(graph, node)
        if not made and node.target in WRONG and (assumed := graph.assumed.get(node.target)):
            raise FrontEndError([of_one_size(node, assumed)])


def of_one_size(node: Node, assumed: str) -> Diagnostic:
    return about(node, f"can be decomposed only under an assumption on dynamic sizes ({assumed}); export "
                       "the program with static sizes, or write it with other operators")  # fmt: skip


def _lacks_an_axis(node: Node) -> bool:
    """Whether a node applies an operator along an axis to a scalar, or one with windows to an unbatched image."""
    if node.target in WITH_A_BATCH:
        axes = [len(shape_of(n)) for n in node.args if is_tensor(n)]
        return axes[0] < axes_with_a_batch(node.target, axes)
    return node.target in ALONG_AN_AXIS and not shape_of(node.args[0])


def _has_complex_rule(node: Node) -> bool:
    """Whether a node reads or makes a complex tensor and has a rule for it."""
    if node.target not in OF_COMPLEX:
        return False
    return any(is_tensor(n) and dtype_of(n).is_complex for n in (node, node.args[0]))


def _is_einsum_to_decompose(node: Node) -> bool:
    """Whether a node is an einsum of bytes, or of a tensor with several dynamic axes: torch-mlir's conversion makes
    views in which it takes one of these sizes for 1. The views of torch's decomposition are lowered by `views.reshape`,
    and its products of bytes by the rules for these."""
    if node.target is not aten.einsum.default:
        return False
    factors: Sequence[Node] = node.args[1]
    return any(dtype_of(f) in BYTES or sum(not isinstance(s, int) for s in shape_of(f)) > 1 for f in factors)


def decompose(graph: TorchGraph, node: Node) -> bool:
    """Replace `node` by simpler operators; False if no rule applies."""
    for rule in _rules(node.target):
        made = _traced(graph, node, rule)
        if made is not None:
            _inline(graph, node, *made)
            return True
    return False


def _rules(target: Target) -> Sequence[Callable[..., object]]:
    from torch._decomp import decomposition_table

    if not isinstance(target, torch._ops.OpOverload):
        return []
    composed = target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    found = [
        in_wider(target) if target in SUMS | PRODUCTS_OF_BYTES else None,
        with_an_axis(target) if target in ALONG_AN_AXIS else None,
        with_a_batch(target) if target in WITH_A_BATCH else None,
        rule_of(target),
        OF_COMPLEX.get(target),
        IF_REFUSED.get(target),
        target.decompose if composed else None,
        decomposition_table.get(target),
    ]
    return [f for f in found if f is not None]


def _traced(graph: TorchGraph, node: Node, rule: Callable[..., object]) -> tuple[GraphModule, list[Node]] | None:
    """Trace `rule` on the arguments of `node`; return the graph and the nodes that are its inputs. None if the rule
    does not apply (it returns NotImplemented), makes a `prims` or mutating operator, or makes the same operator again
    (only qmlir's own rules may, since they do so only if the call is simpler)."""
    leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
    inputs = list(dict.fromkeys(a for a in leaves if isinstance(a, Node)))
    values = [_value(graph, n) for n in inputs]

    def call(*given: torch.Tensor) -> object:
        by_node = dict(zip(inputs, given, strict=True))
        args, kwargs = pytree.tree_unflatten([by_node[a] if isinstance(a, Node) else a for a in leaves], spec)
        found = rule(*args, **kwargs)
        if found is NotImplemented:
            raise _NotThisRule
        return found

    mode = mode_of(node.graph)
    try:
        with torch.no_grad(), mode or nullcontext(), _sizes_kept(mode):
            table = {**decompositions(), **_ALWAYS}
            made = make_fx(call, decomposition_table=table)(*values)
            if any(map(_mutates, made.graph.nodes)):
                made = make_fx(dispatch_functionalize(call), decomposition_table=table)(*values)
    except _SizeFixed as e:
        graph.assumed[node.target] = str(e)
        return None
    except (_NotThisRule, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None
    made.graph.eliminate_dead_code()
    again = rule is not rule_of(node.target) and any(_same(n, node) for n in made.graph.nodes)
    if again or any("prims." in str(n.target) or _mutates(n) for n in made.graph.nodes):
        return None
    return made, inputs


@contextmanager
def _sizes_kept(mode: FakeTensorMode | None) -> Iterator[None]:
    """Raise _SizeFixed if a dynamic size is taken for a number or for another size: `int(x.shape[0])` is the size of
    the example, and the result would be right for that alone. Without the Python dispatcher, torch itself takes sizes
    for numbers."""
    env = getattr(mode, "shape_env", None)
    if env is None:
        yield
        return

    def check(said: sympy.Basic, value: object) -> None:
        relation = getattr(said, "rel_op", None)
        number = relation is None and not said.is_Boolean
        if number or (relation == "==" and value) or (relation == "!=" and not value):
            raise _SizeFixed(f"{said} == {value}" if number else str(said))

    kept, env._check_frozen = env._check_frozen, check
    try:
        with enable_python_dispatcher():
            yield
    finally:
        env._check_frozen = kept


class _SizeFixed(Exception):
    """A decomposition takes a dynamic size for a number."""


def _mutates(node: Node) -> bool:
    """Whether an operator writes into an argument, which crashes torch-mlir."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _same(a: Node, b: Node) -> bool:
    """Whether two nodes call the same operator with the same result dtype and the same rank of the first tensor."""
    return a.target is b.target and _kind(a) == _kind(b)


def _kind(node: Node) -> tuple[object, ...]:
    results = pytree.tree_leaves(node.meta.get("val"))
    first = next((n for n in node.all_input_nodes if is_tensor(n)), None)
    return *(getattr(v, "dtype", None) for v in results[:1]), None if first is None else len(shape_of(first))


class _NotThisRule(Exception):
    """A rule does not apply to the arguments at hand."""


def _value(graph: TorchGraph, node: Node) -> torch.Tensor:
    if "val" in node.meta:
        return node.meta["val"]
    return fake_like(node, graph.attribute(node))


def _inline(graph: TorchGraph, node: Node, made: GraphModule, inputs: Sequence[Node]) -> None:
    """Replace `node` by the nodes of `made`."""
    placeholders = [n for n in made.graph.nodes if n.op == "placeholder"]
    known: dict[Node, Node | tuple[Node, ...]] = dict(zip(placeholders, inputs, strict=True))
    for n in made.graph.nodes:
        if n.op == "get_attr":
            known[n] = graph.new_constant(_attribute(made, str(n.target)), node)
        elif isinstance(n.target, type):  # torch's own named tuple of results
            known[n] = tuple(known[a] for a in n.args)
        elif n.op == "call_function" and ("val" in n.meta or n.users):  # the rest are checks without results
            args, kwargs = pytree.tree_map_only(Node, known.__getitem__, (n.args, dict(n.kwargs)))
            known[n] = graph.call(node, n.target, args, kwargs, n.meta["val"])
        elif n.op == "output":
            result = pytree.tree_map_only(Node, known.__getitem__, n.args[0])
            if isinstance(result, (tuple, list)):
                for user in [u for u in node.users if u.target is operator.getitem]:
                    graph.replace(user, result[int(str(user.args[1]))])
            else:
                graph.replace(node, result)
    graph.clean()


def _attribute(gm: GraphModule, name: str) -> torch.Tensor:
    found: torch.nn.Module | torch.Tensor = gm
    for part in name.split("."):
        found = getattr(found, part)
    return torch.as_tensor(found)
