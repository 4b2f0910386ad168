"""The interface between kernels and a target's instructions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...core.mlir import OpLike, ir
from ...kernels import emit as e
from ...kernels.bodies import BodyCloner, Rule


def roundeven(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """`math.roundeven` as a call of the intrinsic: one instruction if the target has it (`cvt.rni`, `v_rndne_f32`). The
    op `llvm.intr.roundeven` is illegal on vectors in IREE 3.13's conversion for CUDA; the call is legal."""
    return e.intrinsic("llvm.roundeven", operands, operands[0].type)


@dataclass(frozen=True)
class Machine(ABC):
    """The instructions of a target, at the current insertion point.

    Attributes:
        subgroup: the number of threads of a subgroup; they are neighbours in a workgroup.
        rules: lowerings of body ops for which the target has a better form.
        bf16_as_bits: whether the target has no bf16 type, so that kernels read and write its bits.
        vectors_in_memory: whether memrefs have vector elements, as SPIR-V needs; else vectors are loaded from memrefs
            of scalars.
        library: whether the target has a library with functions such as erf.
        rolled: K loops of at most so many iterations are not unrolled: unrolled, they would load the operands of all
            iterations first, and spill.
        pooled: whether the functions of an executable share one pool of shared memory (see `shared_memory.py`).
        routing: threads, and bytes of shared memory, of the kernel that routes rows of experts to blocks; kernels may
            use this many bytes without requesting more.
    """

    subgroup: int
    rules: ClassVar[Mapping[str, Rule]]
    bf16_as_bits: ClassVar[bool] = False
    vectors_in_memory: ClassVar[bool] = True
    library: ClassVar[bool] = False
    rolled: ClassVar[int] = 0
    pooled: ClassVar[bool] = False
    routing: ClassVar[tuple[int, int]] = 256, 1 << 14

    @abstractmethod
    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`total` plus the dot product of two words of four signed codes, i32."""

    # ---- workgroups that share K (`stream_k.py`)

    @abstractmethod
    def release(self) -> None:
        """Called before a barrier: makes this thread's stores to global memory visible to a workgroup that observes a
        count by a thread of this workgroup after the barrier."""

    @abstractmethod
    def count(self, counters: ir.Value, number: e.Index) -> ir.Value:
        """Add one to an i32 in global memory and return its old value. Earlier stores (see `release`) are visible to
        workgroups that count there later."""

    @abstractmethod
    def acquire(self) -> None:
        """Called after a barrier that follows a count by a thread of this workgroup: makes the stores of workgroups
        that counted there before visible to this thread."""

    @abstractmethod
    def leave(self) -> None:
        """Called between two tiles of a workgroup: makes its shared memory free for the next tile."""
