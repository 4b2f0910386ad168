"""Relations between the sizes of a program's arguments and results, found from its operations.

Each operation determines which axes of its operands and results share a size: ops of the dialect by `Op.sizes`, linalg
ops by their indexing maps, others by the rules below. Ops in a branch or a loop are left out, because they need not
run; so are ops without a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..core.mlir import ir, linalg
from ..dialect.ods import OPS, OpError, view_of
from ..dialect.ops.common import shape_of
from ..dialect.sizes import Size, Solver, Term
from .walk import operations_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_DEEPEST = 8  # nested calls of functions that are followed


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


class Relations:
    """The sizes of the values of one function, derived from the sizes of its arguments."""

    def __init__(self, solver: Solver, functions: dict[str, OpLike], depth: int = 0) -> None:
        self._solver, self._functions, self._depth = solver, functions, depth
        self._dims: dict[ir.Value, list[Term]] = {}
        self._index: dict[ir.Value, Term] = {}
        self._equal: dict[ir.Value, tuple[Term, Term]] = {}  # i1 values that compare two sizes

    def dims(self, value: ir.Value) -> list[Term]:
        """The sizes of a tensor."""
        if value not in self._dims:
            self._dims[value] = [self._solver.fresh() if s is None else s for s in shape_of(value)]
        return self._dims[value]

    def read(self, function: OpLike) -> list[list[Term]]:
        """Process the operations of a function of one block. Returns the sizes of each result that is a tensor, none
        for others."""
        *ops, last = operations_of(function.regions[0].blocks[0])
        for op in ops:
            self._read(op)
        return [self.dims(v) if _is_tensor(v) else [] for v in last.operands]

    # ---- rules

    def _read(self, op: OpLike) -> None:
        if op.name in OPS:
            self._own(op)
            return
        rule = _RULES.get(op.name)
        if rule is not None:
            rule(self, op)
            return
        maps = self._maps(op)
        if maps:
            self._structured(op, maps)
        elif op.name.startswith(("arith.", "math.")) or op.name in _SAME_SHAPE:
            self._elementwise(op)

    def _same(self, a: ir.Value, b: ir.Value) -> None:
        """Record that two tensors have the same shape."""
        if a.type.rank == b.type.rank:
            for x, y in zip(self.dims(a), self.dims(b), strict=True):
                self._solver.same(x, y)

    def _own(self, op: OpLike) -> None:
        view = view_of(op)
        names: dict[str, Size] = {}
        try:
            stated_sizes = view.sizes()
        except OpError:  # the op is not verified yet; its rules will report what is wrong
            return
        for field, axes in stated_sizes.items():
            value = getattr(view, field)
            if value is None:
                continue
            for dim, axis in zip(self.dims(value), axes, strict=True):
                if axis is None:
                    continue
                if isinstance(axis, int):
                    self._solver.same(axis, dim)
                    continue
                size = axis if isinstance(axis, Size) else Size(axis)
                known = names.setdefault(size.name, self._solver.fresh(hint=size.name))
                stated = size.after(known)
                if stated is not None:
                    self._solver.same(stated, dim)

    def _maps(self, op: OpLike) -> Sequence[ir.AffineMap]:
        """The indexing maps of a structured op, one for each operand; none for any other."""
        if op.name.startswith("linalg."):
            return [attribute.value for attribute in linalg.get_indexing_maps(op) or ()]
        if "indexing_maps" not in op.attributes:
            return ()
        stated = op.attributes["indexing_maps"]
        return [ir.AffineMapAttr(m).value for m in stated]

    def _structured(self, op: OpLike, maps: Sequence[ir.AffineMap]) -> None:
        loops: dict[int, Term] = {}
        operands = list(op.operands)[: len(maps)]
        for value, indexing in zip(operands, maps, strict=False):
            if not _is_tensor(value):
                continue
            for dim, result in zip(self.dims(value), indexing.results, strict=False):
                if isinstance(result, ir.AffineDimExpr):
                    self._solver.same(loops.setdefault(result.position, dim), dim)
        inits = operands[len(operands) - len(op.results) :]
        for made, init in zip(op.results, inits, strict=False):
            if _is_tensor(made) and _is_tensor(init):
                self._same(init, made)

    def index(self, value: ir.Value) -> Term:
        """The value of an index, as a size."""
        if value not in self._index:
            self._index[value] = self._solver.fresh()
        return self._index[value]

    def _set(self, value: ir.Value, term: Term | None) -> None:
        if term is not None:
            self._index[value] = term

    def _constant(self, op: OpLike) -> None:
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.IntegerAttr) and isinstance(op.results[0].type, ir.IndexType):
            self._set(op.results[0], attribute.value)
        elif _is_tensor(op.results[0]):
            self.dims(op.results[0])

    def _dim(self, op: OpLike) -> None:
        axis = self.index(op.operands[1])
        dims = self.dims(op.operands[0]) if _is_tensor(op.operands[0]) else []
        if isinstance(axis, int) and axis < len(dims):
            self._set(op.results[0], dims[axis])

    def _arithmetic(self, op: OpLike) -> None:
        """A size multiplied by, plus, minus or divided by a constant."""
        if not isinstance(op.results[0].type, ir.IndexType):
            self._elementwise(op)
            return
        a, b = (self._solver.resolve(self.index(v)) for v in op.operands)
        name = op.name.removeprefix("arith.")
        if isinstance(a, int) and name in ("addi", "muli"):
            a, b = b, a
        if not isinstance(b, int) or (b < 1 and name not in ("addi", "subi")):
            return
        shape = {"addi": (1, b, 1), "subi": (1, -b, 1), "muli": (b, 0, 1), "divui": (1, 0, b), "divsi": (1, 0, b),
                 "floordivsi": (1, 0, b), "ceildivui": (1, b - 1, b), "ceildivsi": (1, b - 1, b)}[name]  # fmt: skip
        self._set(op.results[0], Size("x", *shape).after(a))

    def _elementwise(self, op: OpLike) -> None:
        tensors = [v for v in (*op.operands, *op.results) if _is_tensor(v)]
        for value in tensors[1:]:
            self._same(tensors[0], value)

    def _compare(self, op: OpLike) -> None:
        if isinstance(op.operands[0].type, ir.IndexType) and op.attributes["predicate"].value == 0:  # eq
            self._equal[op.results[0]] = (self.index(op.operands[0]), self.index(op.operands[1]))
        else:
            self._elementwise(op)

    def _assert(self, op: OpLike) -> None:
        if op.operands[0] in self._equal:
            self._solver.same(*self._equal[op.operands[0]])

    def _filled(self, value: ir.Value, sizes: Sequence[ir.Value]) -> None:
        """Record that the dynamic sizes of a tensor are the index values `sizes`."""
        dims, given = self.dims(value), iter(sizes)
        for dim, size in zip(dims, shape_of(value), strict=True):
            if size is None and (index := next(given, None)) is not None:
                self._solver.same(dim, self.index(index))

    def _empty(self, op: OpLike) -> None:
        self._filled(op.results[0], list(op.operands))

    def _expand(self, op: OpLike) -> None:
        source, result = op.operands[0], op.results[0]
        self._filled(result, list(op.operands)[1:])
        self._regroup(self.dims(result), self.dims(source), op.attributes["reassociation"])

    def _collapse(self, op: OpLike) -> None:
        source, result = op.operands[0], op.results[0]
        self._regroup(self.dims(source), self.dims(result), op.attributes["reassociation"])

    def _regroup(self, wide: list[Term], flat: list[Term], groups: ir.Attribute) -> None:
        """Record each size of `flat` as the product of a group of `wide`, if at most one of the group is dynamic."""
        for size, group in zip(flat, groups, strict=True):
            product: Term | None = 1
            for axis in group:
                term = self._solver.resolve(wide[axis.value if hasattr(axis, "value") else axis])
                if isinstance(product, int):
                    product = (
                        term * product if isinstance(term, int) else Size("x", product).after(term) if product else 0
                    )
                elif product is not None:
                    product = Size("x", term).after(product) if isinstance(term, int) and term > 0 else None
            if product is not None:
                self._solver.same(size, product)

    def _slice(self, op: OpLike) -> None:
        """The sizes of a slice are given: static ones by its type, others by operands."""
        result = op.results[0]
        sizes = slice_sizes(op, 1)
        if len([s for s in shape_of(result) if s is None]) == len(sizes):
            self._filled(result, sizes)

    def _insert(self, op: OpLike) -> None:
        self._same(op.operands[1], op.results[0])
        sizes = slice_sizes(op, 2)
        if len([s for s in shape_of(op.operands[0]) if s is None]) == len(sizes):
            self._filled(op.operands[0], sizes)

    def _cast(self, op: OpLike) -> None:
        if all(_is_tensor(v) for v in (op.operands[0], op.results[0])):
            self._same(op.operands[0], op.results[0])

    def _reshape(self, op: OpLike) -> None:
        """flow.tensor.reshape: the dynamic sizes of source and result are operands."""
        source, result = op.operands[0], op.results[0]
        dynamic = sum(s is None for s in shape_of(source))
        given = list(op.operands)[1:]
        self._filled(source, given[:dynamic])
        self._filled(result, given[dynamic:])

    def _call(self, op: OpLike) -> None:
        callee = self._functions.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        blocks = list(callee.regions[0].blocks) if callee is not None else []
        if callee is None or len(blocks) != 1 or self._depth >= _DEEPEST:
            return
        inside = Relations(self._solver, self._functions, self._depth + 1)
        for parameter, value in zip(blocks[0].arguments, op.operands, strict=True):
            if _is_tensor(parameter):
                inside._dims[parameter] = self.dims(value)
            elif isinstance(parameter.type, ir.IndexType):
                inside._index[parameter] = self.index(value)
        for result, dims in zip(op.results, inside.read(callee), strict=True):
            if _is_tensor(result):
                self._dims[result] = dims


def slice_sizes(op: OpLike, fixed: int) -> list[ir.Value]:
    """The dynamic sizes among the operands of a slice, which are `fixed` tensors, offsets, sizes and strides."""
    counts = list(op.attributes["operandSegmentSizes"])
    return list(op.operands)[fixed + counts[fixed] : fixed + counts[fixed] + counts[fixed + 1]]


_SAME_SHAPE = ("util.optimization_barrier", "tensor.bitcast")

_RULES: dict[str, Callable[[Relations, OpLike], None]] = {
    "arith.constant": Relations._constant,
    "arith.cmpi": Relations._compare,
    "cf.assert": Relations._assert,
    "tensor.dim": Relations._dim,
    "tensor.empty": Relations._empty,
    "tensor.splat": lambda r, op: r._filled(op.results[0], list(op.operands)[1:]),
    "tensor.cast": Relations._cast,
    "tensor.expand_shape": Relations._expand,
    "tensor.collapse_shape": Relations._collapse,
    "tensor.extract_slice": Relations._slice,
    "tensor.insert_slice": Relations._insert,
    "flow.tensor.reshape": Relations._reshape,
    "func.call": Relations._call,
    **dict.fromkeys((f"arith.{n}" for n in ("addi", "subi", "muli", "divui", "divsi", "floordivsi", "ceildivui",
                                            "ceildivsi")), Relations._arithmetic),
}  # fmt: skip
