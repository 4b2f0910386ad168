"""The elementwise ops that follow a contraction, and the sum over its groups, which are fused into its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..dialect.constants import is_zero_fill
from ..ir.affine import indexing_maps
from ..ir.attributes import reassociation
from .axes import Axes, Axis, axes_of, dims_of, size_of
from .bodies import unclonable
from .description import ROW, Gate, Literal, Operand, Previous, Stage, StageSource, Unfit
from .factors import splat_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_LONGEST_PATH = 8  # ops between a value and a later op that reads it again


class Chain:
    """Grows a group from its contraction: each step takes in the only op that reads the last value."""

    def __init__(
        self, value: ir.Value, axes: Axes, rows: Axes, column: Axis, batch: Axes = (), small_floats: bool = False
    ) -> None:
        self.small_floats = small_floats
        # The last value: one tensor, or the two halves of its columns.
        self.parts, self.axes = [value], axes
        self.rows, self.column, self.batch = rows, column, batch
        self.gate: Gate | None = None
        self.operations: list[OpLike] = []
        self.stages: list[Stage] = []
        self._kept: dict[ir.Value, int] = {}  # earlier values that are read again, and their stages
        self.total: Stage | None = None
        self.total_type: ir.Type | None = None

    @property
    def value(self) -> ir.Value:
        return self.parts[0]

    def combine(self, groups: Sequence[Axis]) -> None:
        """Take in the sum over groups. It is required: without it the partial sums are a batch of products."""
        user = self._user()
        if user is None:
            raise Unfit("partial sums along K that no op adds up", "a sum over the groups behind the product")
        loops = self._loops(user)
        out = None if loops is None else axes_of(indexing_maps(user)[-1], loops)
        if out != (*self.batch, *self.rows, self.column) or loops is None or len(groups) != 1:
            raise Unfit("partial sums along K that no op adds up", "a sum over the groups behind the product")
        if reason := unclonable(user.regions[0].blocks[0], self.small_floats):
            raise Unfit(f"the sum over groups has no form on vectors: {reason}")
        if not is_zero_fill(user.operands[len(user.operands) - 1]):
            raise Unfit("the sum over groups does not start from zero", "add the other tensor behind the sum")
        sources = self._sources(user, loops)
        if isinstance(sources, str):
            raise Unfit(f"the sum over groups {sources}")
        self.total = Stage(user.regions[0].blocks[0], sources)
        self.total_type = user.results[0].type.element_type
        self._take(user)

    def grow(self, gates: bool) -> None:
        while self._split_rows():
            pass
        while self._stage():
            pass
        if not gates or not self._split_columns():
            return
        if not self._stage():
            self._join_columns()
            return
        while self._stage():
            pass

    def _stage(self) -> bool:
        """Take in the next elementwise op; return whether one fitted."""
        user = self._user()
        return self._branch() if user is None else not _is_boolean(user.results[0]) and self._fits(user)

    def _branch(self) -> bool:
        """Take in a path of ops from the last value to an op that reads both the path's end and the last value, as in
        `x * sigmoid(x)`; return whether such a path fitted."""
        before = self.parts, self.axes, len(self.operations), len(self.stages)
        self._kept = {self.value: len(self.stages)}
        path = self._joining_path()
        taken = bool(path) and all(self._fits(user) for user in path) and not _is_boolean(self.value)
        self._kept = {}
        if not taken:
            self.parts, self.axes, operations, stages = before
            del self.operations[operations:], self.stages[stages:]
        return taken

    def _joining_path(self) -> list[OpLike]:
        """The path from one of the last value's two readers to the other, each op the only reader of the one before it;
        [] if there is no such path."""
        readers = _readers(self.value)
        if len(self.parts) > 1 or len(readers) != 2:
            return []
        for first, last in (readers, readers[::-1]):
            path = [first]
            while len(path) < _LONGEST_PATH and path[-1].name == "linalg.generic" and len(path[-1].results) == 1:
                after = _readers(path[-1].results[0])
                if len(after) != 1:
                    break
                path += after
                if path[-1] == last:
                    return path
        return []

    def _fits(self, user: OpLike) -> bool:
        """Take in an elementwise op if it fits; return whether it did."""
        if user.name != "linalg.generic" or len(user.results) != 1:
            return False
        loops = self._loops(user)
        block = user.regions[0].blocks[0]
        if loops is None or axes_of(indexing_maps(user)[-1], loops) != (*self.batch, *self.rows, self.column):
            return False
        if unclonable(block, self.small_floats) or list(block.arguments[len(block.arguments) - 1].uses):
            return False
        sources = self._sources(user, loops)
        if isinstance(sources, str):
            return False
        self.stages.append(Stage(block, sources))
        self._take(user)
        while self._split_rows():
            pass
        return True

    def _split_columns(self) -> bool:
        """Take in the two slices that halve the columns of the value, a gate and the values it gates; return whether
        the value is read in this way only."""
        slices = [use.owner.operation for use in self.value.uses]
        size = self.column.size
        if len(slices) != 2 or size is None or size % 2 or any(s.name != "tensor.extract_slice" for s in slices):
            return False
        slices.sort(key=lambda s: list(s.attributes["static_offsets"])[-1])
        for i, s in enumerate(slices):
            offsets, strides = (list(s.attributes[f"static_{name}"]) for name in ("offsets", "strides"))
            sizes = [size_of(s.results[0], d) for d in range(len(offsets))]
            whole = [size_of(self.value, d) for d in range(len(offsets) - 1)]
            if offsets != [0] * len(whole) + [i * size // 2] or set(strides) != {1} or sizes != [*whole, size // 2]:
                return False
        self.gate = Gate(len(self.stages), 1 + len(self.operations), self.value.type.element_type)
        self._joined = self.value, self.column
        self.operations += slices
        self.parts = [s.results[0] for s in slices]
        self.column = replace(self.column, size=size // 2)
        self.axes = (*self.batch, *self.rows, self.column)
        return True

    def _join_columns(self) -> None:
        """Undo `_split_columns`: leave the slices to the program."""
        value, self.column = self._joined
        self.parts, self.gate = [value], None
        del self.operations[-2:]
        self.axes = (*self.batch, *self.rows, self.column)

    def _split_rows(self) -> bool:
        """Look through a view that expands the rows to several axes (an image, sequences in a batch) or collapses them;
        return whether there was one."""
        owners = [use.owner.operation for use in self.value.uses]
        if self.batch or len(owners) != 1 or owners[0].name not in ("tensor.expand_shape", "tensor.collapse_shape"):
            return False
        view = owners[0]
        groups = reassociation(view)
        if len(groups[-1]) != 1 or self.axes != (*self.rows, self.column):
            return False
        first = 1 + max(a.number for a in (*self.rows, self.column))
        made = view.results[0]
        self.rows = tuple(
            Axis(ROW, first + i, size_of(made, i)) for i in range(ir.RankedTensorType(made.type).rank - 1)
        )
        self._take(view)
        return True

    def _take(self, user: OpLike) -> None:
        self.operations.append(user)
        self.parts = [user.results[0]]
        self.axes = (*self.batch, *self.rows, self.column)

    def _user(self) -> OpLike | None:
        """The only op that reads the last value, a generic with one result; None if there is no such op."""
        owners = [use.owner.operation for part in self.parts for use in part.uses]
        if not owners or any(o != owners[0] for o in owners) or owners[0].name != "linalg.generic":
            return None
        return owners[0] if len(owners[0].results) == 1 else None

    def _loops(self, user: OpLike) -> Axes | None:
        """The axis of each loop of `user`, derived from how it reads the last value."""
        inputs = list(user.operands)[:-1]
        if self.value not in inputs:
            return None
        positions = dims_of(indexing_maps(user)[inputs.index(self.value)])
        if positions is None or sorted(positions) != list(range(indexing_maps(user)[0].n_dims)):
            return None
        placed = dict(zip(positions, self.axes, strict=True))
        return tuple(placed[i] for i in range(len(positions)))

    def _sources(self, user: OpLike, loops: Axes) -> tuple[StageSource, ...] | str:
        """The source of each block argument, or the reason why an operand cannot be read."""
        found: list[StageSource] = []
        made = {value: Previous(stage) for value, stage in self._kept.items()}
        made |= {part: Previous(len(self.stages), half) for half, part in enumerate(self.parts)}
        for value, map_ in zip(list(user.operands)[:-1], indexing_maps(user), strict=False):
            axes = axes_of(map_, loops)
            if axes is None:
                return "indexes an operand by an expression that is not one loop per axis"
            if value in made:
                if axes != self.axes:
                    return "reads the product transposed"
                found.append(made[value])
                continue
            if (splat := splat_of(value)) is not None:
                found.append(Literal(splat))
                continue
            if _is_boolean(value):
                return "reads an i1 tensor, which a kernel cannot address"
            rows = [a for a in axes if a.letter == ROW]
            wanted = [a for a in self.rows if a in rows or a.size != 1]
            at = [i for i, a in enumerate(axes) if a.letter == ROW]
            if rows and (rows != wanted or at != list(range(at[0], at[0] + len(at)))):
                return "reads some axes of a batch's rows"
            found.append(Operand(value, tuple(a.letter for a in axes)))
        return tuple(found)


def _readers(value: ir.Value) -> list[OpLike]:
    """The distinct ops that read a value."""
    found: list[OpLike] = []
    for use in value.uses:
        if use.owner.operation not in found:
            found.append(use.owner.operation)
    return found


def _is_boolean(value: ir.Value) -> bool:
    """Whether a tensor holds i1 values, whose storage IREE chooses."""
    kind = value.type.element_type
    return isinstance(kind, ir.IntegerType) and bool(kind.width == 1)
