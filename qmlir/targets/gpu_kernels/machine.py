"""What a kernel asks of a target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...core.mlir import OpLike, ir
from ...kernels import emit as e
from ...kernels.bodies import BodyCloner, Rule


def roundeven(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """One instruction where the target has it (`cvt.rni`, `v_rndne_f32`). `llvm.intr.roundeven` is illegal on vectors
    in IREE 3.13's conversion for CUDA, the call of it is not."""
    return e.intrinsic("llvm.roundeven", operands, operands[0].type)


@dataclass(frozen=True)
class Machine(ABC):
    """The instructions of a target, at the current insertion point.

    Attributes:
        subgroup: threads that run together; neighbours in a workgroup.
        rules: ops of bodies that the target has a better form for.
        bf16_as_bits: whether the target has no type of bf16, so that kernels read and write its bits.
        vectors_in_memory: whether kernels see memory as vectors, as SPIR-V asks for; else vectors are loaded from
            memory of scalars.
        library: whether the target has functions for erf and its like.
        rolled: the most rounds of a loop along K that stays one: unrolled, so few begin by reading what all of them
            multiply, and spill.
        pooled: whether the functions of an executable share one pool of shared memory (see `shared_memory.py`).
        routing: of the kernel that brings rows of experts into blocks, its threads and the bytes of shared memory that
            it may use; no kernel has to ask for so many.
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
