"""`torch.compile(model, backend="qmlir")`: the backend, which torch finds by its entry-point group
`torch_dynamo_backends`.

Weights are constants of the compiled program, as in a frozen model; if a weight changes (its version counter or its
address), the program is compiled again. If a gradient is required, weights are arguments. A subgraph that does not
compile runs eagerly, and a warning says why.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.fx import GraphModule

from ...compiler.compilation import compile as compile_program
from ...core.spelling import did_you_mean
from ...errors import Diagnostic, FrontEndError, QmlirError, UsageError
from ...runtime.function import Function
from ...runtime.program import load
from ...targets import resolve
from .custom_ops import register
from .graph import TorchGraph, aten, is_tensor
from .program import decompositions, digest_of, freeze_inputs
from .recurrent import LAYERS

if TYPE_CHECKING:
    from torch._dynamo.backends.registry import CompiledFn
    from torch._ops import OpOverload

OPTIONS = ("target", "strict")
# Without this, dynamo leaves LSTM, GRU and RNN out of its graphs, and they run eagerly without a warning.
torch._dynamo.config.allow_rnn = True
# In inference, the fast path computes a Transformer layer with one operator, at which dynamo breaks its graphs.
torch.backends.mha.set_fastpath_enabled(False)


# The form that autograd's runtime calls: a function of one list, which it empties.
Boxed: TypeAlias = "Callable[[list[torch.Tensor | int]], Sequence[torch.Tensor]]"


class EagerFallbackWarning(UserWarning):
    """A subgraph of a compiled model runs eagerly; the message says why."""


def backend(
    gm: GraphModule, example_inputs: Sequence[torch.Tensor | int], *, options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> CompiledFn:  # fmt: skip
    """The backend. `options`: `target` (default `cpu`), `strict` (raise an error instead of running eagerly).

    Raises QmlirError for unknown options and targets."""
    from torch._dynamo.backends.common import aot_autograd

    given = dict(options or {})
    for name in given:
        if name not in OPTIONS:
            raise UsageError(f"backend 'qmlir' has no option {name!r}{did_you_mean(name, OPTIONS)}")
    resolve(str(given.get("target", "cpu")))  # raises for an unknown target instead of running eagerly
    del mode
    register()

    trained = torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in example_inputs)
    if trained and any(n.target is torch.lstm for n in gm.graph.nodes):
        # Ahead-of-time autograd takes torch's inference kernel, whose gradient it then cannot compute.
        reason = ("an LSTM whose gradient may be asked for is not traced; call the model under torch.no_grad() or "
                  "torch.inference_mode()")  # fmt: skip
        if given.get("strict"):
            raise FrontEndError([Diagnostic(reason, "lstm")])
        _warn_once(reason)
        return gm.forward

    def compile_forward(graph: GraphModule, inputs: Sequence[torch.SymInt | torch.Tensor]) -> Boxed:
        del inputs
        return boxed(Subgraph(graph, [] if trained else _static_inputs(), given))

    def compile_backward(graph: GraphModule, inputs: Sequence[torch.SymInt | torch.Tensor]) -> Boxed:
        del inputs
        return boxed(Subgraph(graph, [], given))

    with whole_operators():
        return aot_autograd(fw_compiler=compile_forward, bw_compiler=compile_backward,
                            decompositions=aot_decompositions())(gm, example_inputs)  # fmt: skip


@contextmanager
def whole_operators() -> Iterator[None]:
    """Have ahead-of-time autograd trace each of torchao's quantisations and each recurrent layer as one operator, as
    `torch.export` does, without decomposing it. These operators have no derivative, so this applies only if gradients
    are off. It uses functions of `torch.export` that are private to torch: if they are missing, quantisations run as
    arithmetic (products are still raised), and a recurrent layer becomes one product per step.
    """
    names = ("choose_qparams_affine", "quantize_affine", "dequantize_affine")
    found = [getattr(getattr(torch.ops.torchao, n, None), "default", None) for n in names]
    found = [op for op in found if op is not None] + list(LAYERS)
    try:
        from torch._export.utils import _special_op_to_preserve_cia as keep
        from torch.export.exported_program import _override_composite_implicit_decomp as override
    except ImportError:
        override = keep = None
    if override is None or torch.is_grad_enabled():
        yield
        return
    with override(dict.fromkeys(found, keep)):
        yield


def aot_decompositions() -> dict[OpOverload, Callable[..., object]]:
    """Decompositions of operators that ahead-of-time autograd keeps and torch-mlir does not convert."""
    from torch._decomp import get_decompositions

    more = get_decompositions([aten._scaled_dot_product_flash_attention_for_cpu.default, aten.native_layer_norm.default,
                               aten._safe_softmax.default, aten.native_dropout.default])  # fmt: skip
    return {**decompositions(), **more}


def boxed(call: Subgraph) -> Boxed:
    """Wrap `call` in the form that autograd's runtime calls: a function of one list, which it empties."""

    def run(args: list[torch.Tensor | int]) -> Sequence[torch.Tensor]:
        values = list(args)
        args.clear()
        return call(*values)

    setattr(run, "_boxed_call", True)  # noqa: B010  (autograd looks for this attribute)
    return run


def _static_inputs() -> list[int]:
    """Indices of the inputs that are parameters and buffers, except those that the graph mutates: these, if frozen,
    would be different constants in every call."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    changed = set(getattr(metadata, "mutated_inp_runtime_indices", None) or ())
    return [i for i in getattr(metadata, "static_input_indices", None) or () if i not in changed]


class FxProgram:
    """A traced graph and the values of its constant inputs, in the form that the front end imports."""

    def __init__(self, gm: GraphModule, constants: Mapping[str, torch.Tensor]) -> None:
        self.gm, self.constants = gm, dict(constants)

    def prepare(self) -> TorchGraph:
        """A copy of the graph, which raising may rewrite."""
        gm = GraphModule(self.gm, copy.deepcopy(self.gm.graph))
        _sizes_from_tensors(gm)
        graph = freeze_inputs(gm, self.constants)
        for node in graph.nodes:
            if node.op == "placeholder" and not node.users and not is_tensor(node):
                gm.graph.erase_node(node)
        _keep_tensor_results(gm)
        gm.recompile()
        return graph

    def fingerprint(self) -> str:
        return digest_of(self.gm, {**dict(self.gm.named_buffers()), **self.constants})


def _sizes_from_tensors(gm: GraphModule) -> None:
    """Replace each integer input that is a size by `sym_size` of a tensor input that has this size."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    first = next(n for n in gm.graph.nodes if n.op != "placeholder")
    for node in placeholders:
        size = node.meta.get("val")
        if isinstance(size, torch.Tensor) or not node.users:
            continue
        found = next(((t, i) for t in placeholders if is_tensor(t) for i, s in enumerate(t.meta["val"].shape)
                      if isinstance(s, torch.SymInt) and isinstance(size, torch.SymInt)
                      and s.node.expr == size.node.expr), None)  # fmt: skip
        if found is None:
            raise FrontEndError([Diagnostic(f"the input {node.name!r} is an integer, but not the size of any tensor "
                                            "input", node.name)])  # fmt: skip
        with gm.graph.inserting_before(first):
            asked = gm.graph.call_function(aten.sym_size.int, found)
        asked.meta["val"] = size
        node.replace_all_uses_with(asked)


def _keep_tensor_results(gm: GraphModule) -> None:
    """Keep only the results that are tensors; `Subgraph` supplies the others."""
    node = next(n for n in gm.graph.nodes if n.op == "output")
    results: tuple[torch.fx.Node, ...] = node.args[0]
    node.args = (tuple(r for r in results if is_tensor(r)),)


class Subgraph:
    """One graph that dynamo captured. It is compiled on its first call, when the weights are known."""

    def __init__(self, gm: GraphModule, static: Sequence[int], options: Mapping[str, object]) -> None:
        self.gm, self.options = gm, options
        self.placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.static = [i for i in static if i < len(self.placeholders) and is_tensor(self.placeholders[i])]
        self.dynamic = [i for i, n in enumerate(self.placeholders) if i not in set(self.static) and is_tensor(n)]
        output = next(n for n in gm.graph.nodes if n.op == "output")
        self.results: list[torch.fx.Node] = list(output.args[0])
        self.eager = False
        self._frozen: list[tuple[int, int]] = []
        self._function: Function | None = None
        self._lock = threading.Lock()

    def __call__(self, *args: torch.Tensor | torch.SymInt) -> Sequence[torch.Tensor]:
        if not self.eager:
            with self._lock:
                if self._function is None or self._stale(args):
                    self._compile(args)
        if self.eager:
            results: Sequence[torch.Tensor] = self.gm(*args)
            return results
        assert self._function is not None
        found = self._function(*[args[i].detach() for i in self.dynamic])
        outputs = iter(found if isinstance(found, tuple) else (found,))
        return [self._result(r, outputs, args) for r in self.results]

    def _result(
        self, r: torch.fx.Node, outputs: Iterator[torch.Tensor], args: Sequence[torch.Tensor | int]
    ) -> torch.Tensor:
        if is_tensor(r):
            made = next(outputs)
            return made if isinstance(made, torch.Tensor) else torch.from_numpy(made)
        return args[self.placeholders.index(r)] if r in self.placeholders else r

    def _stale(self, args: Sequence[torch.Tensor | int]) -> bool:
        return [_version_of(args[i]) for i in self.static] != self._frozen

    def _compile(self, args: Sequence[torch.Tensor | int]) -> None:
        try:
            self._check_arguments(args)
            constants = {self.placeholders[i].name: args[i] for i in self.static}
            if not any(n.op == "call_function" for n in self.gm.graph.nodes):
                raise FrontEndError([Diagnostic("the subgraph computes nothing", "")])
            artifact = compile_program(FxProgram(self.gm, constants), target=str(self.options.get("target", "cpu")))
            self._function = load(artifact).main
            self._frozen = [_version_of(args[i]) for i in self.static]
        except (QmlirError, RuntimeError) as e:
            if self.options.get("strict"):
                raise
            self.eager = True
            _warn_once(str(e))

    def _check_arguments(self, args: Sequence[torch.Tensor | int]) -> None:
        for n, a in zip(self.placeholders, args, strict=True):
            if isinstance(a, torch.Tensor) and a.device.type != "cpu":
                raise FrontEndError([Diagnostic(f"the input {n.name!r} is on {a.device}; tensors must be on the CPU",
                                                n.name)])  # fmt: skip
        for r in self.results:
            if isinstance(r, torch.fx.Node) and not is_tensor(r) and r not in self.placeholders:
                raise FrontEndError([Diagnostic(f"the subgraph returns the number {r}", str(r))])


_warned: set[str] = set()


def _version_of(t: torch.Tensor) -> tuple[int, int]:
    """A key that changes when a tensor is written to or replaced: its address and version counter."""
    return (t.data_ptr(), t._version if not t.is_inference() else 0)


def _warn_once(reason: str) -> None:
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"a subgraph runs eagerly, because it does not compile: {reason}", EagerFallbackWarning,
                      stacklevel=4)  # fmt: skip
