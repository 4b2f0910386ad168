"""AMD's matrix instructions as kernels see them.

All multiply 16 x K by K x 16. Lane `l` holds row (of the left side) or column (of the right) `l % 16` and the part
`l / 16` of K, `lanes` neighbouring elements; of the result it holds one column, `l % 16`, and several rows. Kernels
give the weight on the left, so that what a lane has of the result is one row of the product and neighbouring columns.

Sources: CDNA3 ISA guide, section 7 (layouts of MFMA operands) and AMD's matrix instruction calculator; RDNA3 and RDNA4
ISA guides, section 7.9 (WMMA). RDNA3 wants both halves of a wave to hold the same operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core.mlir import ir, vector
from ...gpu_kernels import emit as e


@dataclass(frozen=True)
class Instruction:
    """`total[16, 16] += left[16, k] * right[k, 16]`."""

    name: str  # as it stands in the assembly, without suffixes
    element: str
    k: int
    parts: int  # of K among the lanes of a wave
    registers: int  # of the result in a lane

    @property
    def lanes(self) -> int:
        """Elements along K in one lane."""
        return self.k // self.parts

    @property
    def words(self) -> int:
        """Of an operand in one lane."""
        return self.lanes * self.bytes // 4

    @property
    def bytes(self) -> int:
        """Of an element of an operand."""
        return 2 if self.element in ("f16", "bf16") else 1

    @property
    def interleaved(self) -> bool:
        """Whether a lane has every other row of the result, and not neighbouring ones."""
        return self.parts == 1

    def position(self, row: int) -> int:
        """Which row of the left side becomes the result's neighbour number `row`: lane part * registers + register."""
        return row if not self.interleaved else row % 8 * 2 + row // 8

    def multiply(self, left: list[Any], right: list[Any], total: Any) -> Any:
        """From words of both sides; vectors of as many i32 or f32 as there are registers."""
        ir.Context.current.get_dialect_descriptor("amdgpu")
        element = ir.Type.parse(self.element)
        kind = e.vector_of(self.lanes, element)
        a, b = (vector.bitcast(kind, e.gathered(words)) for words in (left, right))
        i32 = e.integer(32)
        sizes = {name: ir.IntegerAttr.get(i32, v) for name, v in (("m", 16), ("n", 16), ("k", self.k))}
        if self.name.startswith("v_mfma"):
            name, more = "amdgpu.mfma", {"blocks": ir.IntegerAttr.get(i32, 1)}
        else:
            name, more = "amdgpu.wmma", {}
        return ir.Operation.create(
            name, results=[total.type], operands=[a, b, total], attributes={**sizes, **more}
        ).results[0]


def _mfma(name: str, element: str, k: int) -> Instruction:
    return Instruction(f"v_mfma_{name}", element, k, 4, 4)


_CDNA2 = (
    _mfma("i32_16x16x16i8", "i8", 16),
    _mfma("f32_16x16x16f16", "f16", 16),
    _mfma("f32_16x16x16bf16", "bf16", 16),
)
_CDNA3 = (
    _mfma("i32_16x16x32_i8", "i8", 32),
    _mfma("f32_16x16x16_f16", "f16", 16),
    _mfma("f32_16x16x16_bf16", "bf16", 16),
    _mfma("f32_16x16x32_fp8_fp8", "f8E4M3FNUZ", 32),
    _mfma("f32_16x16x32_bf8_bf8", "f8E5M2FNUZ", 32),
)
# The same instructions take OCP's formats on CDNA4.
_CDNA4 = (
    _mfma("i32_16x16x64_i8", "i8", 64),
    _mfma("f32_16x16x32_f16", "f16", 32),
    _mfma("f32_16x16x32_bf16", "bf16", 32),
    *(kind for kind in _CDNA3 if not kind.element.startswith("f8")),
    _mfma("f32_16x16x32_fp8_fp8", "f8E4M3FN", 32),
    _mfma("f32_16x16x32_bf8_bf8", "f8E5M2", 32),
)
_RDNA3 = tuple(
    Instruction(f"v_wmma_{name}", element, 16, 1, 8)
    for name, element in (("i32_16x16x16_iu8", "i8"), ("f32_16x16x16_f16", "f16"), ("f32_16x16x16_bf16", "bf16"))
)
_RDNA4 = tuple(
    Instruction(f"v_wmma_{name}", element, 16, 2, 8)
    for name, element in (
        ("i32_16x16x16_iu8", "i8"),
        ("f32_16x16x16_f16", "f16"),
        ("f32_16x16x16_bf16", "bf16"),
        ("f32_16x16x16_fp8_fp8", "f8E4M3FN"),
        ("f32_16x16x16_bf8_bf8", "f8E5M2"),
    )
)
INSTRUCTIONS = {
    "gfx90a": _CDNA2, "gfx942": _CDNA3, "gfx950": _CDNA4, "gfx1100": _RDNA3, "gfx1151": _RDNA3, "gfx1201": _RDNA4,
}  # fmt: skip
