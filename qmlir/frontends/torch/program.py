"""Convert a `torch.export.ExportedProgram` to a graph whose parameters are constants."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch.fx import GraphModule, Node

from ...errors import Diagnostic, FrontEndError
from .conditions import inline_conditions
from .graph import TorchGraph, aten, mode_of
from .state import HeldBuffer

if TYPE_CHECKING:
    from torch._ops import OpOverload

# Operators that torch-mlir does not convert. All others keep their form, above all quantised operators.
_DECOMPOSED = (
    aten.index_copy.default, aten.norm.ScalarOpt_dim, aten.native_group_norm.default, aten.index_add.default,
    aten.masked_fill.Tensor, aten.masked_fill.Scalar, aten.addmv.default,
    aten.diagonal_copy.default, aten.linalg_vector_norm.default,
)  # fmt: skip


def decompositions() -> dict[OpOverload, Callable[..., object]]:
    """torch's decompositions of the operators in `_DECOMPOSED`."""
    from torch._decomp import get_decompositions

    return dict(get_decompositions(_DECOMPOSED))


def prepare(program: torch.export.ExportedProgram) -> TorchGraph:
    """The inference graph of an exported program.

    Raises FrontEndError for a program that mutates its inputs, or uses an input that is not a tensor."""
    from torch.export.graph_signature import InputKind, OutputKind

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's warnings about its own code
        program = _with_flat_arguments(program).run_decompositions(decompositions())
    inline_conditions(program.graph_module)
    signature = program.graph_signature
    changed: dict[str | None, int] = {}
    for i, spec in enumerate(signature.output_specs):
        if spec.kind == OutputKind.BUFFER_MUTATION:
            changed[spec.target] = i
        elif spec.kind != OutputKind.USER_OUTPUT:
            what = spec.kind.name.replace("_", " ").lower()
            raise FrontEndError([Diagnostic(f"the program has a {what} of {spec.target!r}: return the new value, or "
                                            "make it a buffer of the module", str(spec.target))])  # fmt: skip
    gm = GraphModule(torch.nn.Module(), program.graph_module.graph)
    _copy_attributes(program.graph_module, gm)
    placeholders = {n.name: n for n in gm.graph.nodes if n.op == "placeholder"}
    values: Mapping[str, torch.Tensor] = {**program.constants, **program.state_dict}
    buffers: list[HeldBuffer] = []
    for i, spec in enumerate(signature.input_specs):
        node = placeholders[spec.arg.name]
        if spec.kind == InputKind.USER_INPUT:
            if not isinstance(node.meta.get("val"), torch.Tensor):
                if node.users:
                    raise FrontEndError([Diagnostic(f"the input {node.name!r} is not a tensor; export the "
                                                    "program with a tensor or a constant", node.name)])  # fmt: skip
                gm.graph.erase_node(node)
            continue
        if spec.target not in values:
            raise FrontEndError([Diagnostic(f"the program's {spec.kind.name.lower()} {spec.target!r} has no value",
                                            str(spec.target))])  # fmt: skip
        if spec.target in changed:
            buffers.append(HeldBuffer(spec.target, node.name, values[spec.target].detach(), changed[spec.target]))
        else:
            _freeze(gm, node, f"_qmlir_weight_{i}", values[spec.target])
    output = next(n for n in gm.graph.nodes if n.op == "output")
    output.args = (tuple(r for r in output.args[0] if r is not None),)  # None: nn.MultiheadAttention's weights
    gm.recompile()
    return TorchGraph(gm, program.range_constraints, buffers)


def _with_flat_arguments(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The same program, called with the leaves of its arguments. Decomposing traces the program again, including
    containers that compute when they are built from leaves (transformers' DynamicCache concatenates) and whose
    constants then have no value."""
    from torch.export import ModuleCallEntry, ModuleCallSignature
    from torch.export.graph_signature import InputKind
    from torch.utils._pytree import tree_structure

    arguments = [spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    takes = tree_structure(((0,) * program.call_spec.in_spec.num_leaves, {}))
    gives = tree_structure((0,) * program.call_spec.out_spec.num_leaves)
    signature = ModuleCallSignature(arguments, [], takes, gives, [arg.name for arg in arguments])
    flat = copy.copy(program)
    flat._example_inputs = None  # they are containers
    flat._module_call_graph = [ModuleCallEntry("", signature)]
    return flat


def _copy_attributes(source: GraphModule, target: GraphModule) -> None:
    """Copy the attributes that `get_attr` nodes of the program already name: tensors that tracing lifted."""
    for node in target.graph.nodes:
        if node.op == "get_attr" and hasattr(source, str(node.target)):
            setattr(target, str(node.target), getattr(source, str(node.target)))


def _freeze(gm: GraphModule, node: Node, name: str, value: torch.Tensor) -> None:
    """Replace a placeholder by a constant, which shares the tensor."""
    gm.register_buffer(name, value.detach(), persistent=False)
    with gm.graph.inserting_before(node):
        constant = gm.graph.get_attr(name)
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant)
    gm.graph.erase_node(node)


def freeze_inputs(gm: GraphModule, constants: Mapping[str, torch.Tensor]) -> TorchGraph:
    """A traced graph in which the placeholders named in `constants` are constants."""
    for i, node in enumerate([n for n in gm.graph.nodes if n.op == "placeholder" and n.name in constants]):
        _freeze(gm, node, f"_qmlir_weight_{i}", constants[node.name])
    gm.recompile()
    return TorchGraph(gm)


def fingerprint(program: torch.export.ExportedProgram) -> str:
    """A digest of everything on which the imported module depends."""
    more = f"{program.graph_signature} {program.range_constraints}"
    return digest_of(program.graph_module, {**program.constants, **program.state_dict}, more)


def digest_of(gm: GraphModule, values: Mapping[str, torch.Tensor], more: str = "") -> str:
    """A digest of a graph, of the branches that it names, and of the tensors."""
    env = getattr(mode_of(gm.graph), "shape_env", None)
    guards = [] if env is None else [str(guard.expr) for guard in env.guards]  # `settle_sizes` reads them
    digest = hashlib.sha256(f"{torch.__version__} {more} {guards}".encode())
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        described = str(value)
        if isinstance(value, torch.Tensor):  # the rule of `as_strided` reads the strides
            described = f"{tuple(value.shape)} {value.stride()} {value.dtype}"
        digest.update(f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} {described}\n".encode())
        branch = getattr(gm, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(branch, GraphModule):
            digest.update(digest_of(branch, dict(branch.named_buffers())).encode())
    for name, value in sorted(values.items()):
        if isinstance(value, torch.Tensor):
            for part, tensor, form in _plain_tensors(name, value):
                digest.update(f"{part} {tuple(tensor.shape)} {tensor.dtype} {form}".encode())
                digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def _plain_tensors(name: str, value: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, str]]:
    """The plain tensors that make up a tensor (torchao's: codes and scales), by name, and all else that determines
    it."""
    if not hasattr(value, "__tensor_flatten__"):
        yield name, value, ""
        return
    parts, form = value.__tensor_flatten__()
    for part in parts:
        for inner, tensor, more in _plain_tensors(f"{name}.{part}", getattr(value, part)):
            yield inner, tensor, f"{type(value).__name__} {form} {more}"


def tensor_bytes(value: torch.Tensor) -> memoryview | bytes:
    """The elements of a tensor as they are stored, without a copy if it is contiguous and on the CPU."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else b""
