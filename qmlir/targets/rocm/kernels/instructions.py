"""AMD's matrix instructions as kernels see them.

All multiply 16 x K by K x 16. Kernels give the weight on the left, so that what a lane has of the result is one row of
the product and several columns.

Sources: CDNA3 ISA guide, section 7 (layouts of MFMA operands) and AMD's matrix instruction calculator; RDNA3 and RDNA4
ISA guides, section 7.9 (WMMA). RDNA3 wants both halves of a wave to hold the same operands.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....core.mlir import ir, vector
from ....kernels.tile.instruction import Fragments, alike
from ....kernels.tile.layout import Layout
from ...gpu_kernels import emit as e


@dataclass(frozen=True)
class Instruction:
    """`total[16, 16] += left[16, k] * right[k, 16]`."""

    name: str  # as it stands in the assembly, without suffixes
    element: str
    fragments: Fragments

    @property
    def k(self) -> int:
        return self.fragments.shape[2]

    @property
    def registers(self) -> int:
        """Of the result in a lane."""
        return self.fragments.d.size("value")

    @property
    def lanes(self) -> int:
        """Elements along K in one lane."""
        return self.fragments.a.size("value")

    @property
    def parts(self) -> int:
        """Of K among the lanes of a wave."""
        return self.k // self.lanes

    @property
    def words(self) -> int:
        """Of an operand in one lane."""
        return self.lanes * self.bytes // 4

    @property
    def bytes(self) -> int:
        """Of an element of an operand."""
        return 2 if self.element in ("f16", "bf16") else 1

    @property
    def iree_name(self) -> str:
        """IREE's name of it."""
        wmma = "WMMAR3" if None in self.fragments.a["lane"] else "WMMAR4"
        kind, total = "MFMA" if "mfma" in self.name else wmma, "I32" if self.element == "i8" else "F32"
        return f"{kind}_{total}_{'x'.join(map(str, self.fragments.shape))}_{self.element.upper()}"

    def multiply(self, left: list[ir.Value], right: list[ir.Value], total: ir.Value) -> ir.Value:
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


_MFMA = Layout.of(lane="n0 n1 n2 n3 m2 m3", value="m0 m1")
_RDNA3_RESULT = Layout.of(lane="n0 n1 n2 n3 m0", value="m1 m2 m3")
_RDNA4_RESULT = Layout.of(lane="n0 n1 n2 n3 m3", value="m0 m1 m2")
_K16 = Fragments(*alike("x0 x1 x2 x3 k2 k3", "k0 k1"), _MFMA)
_K32 = Fragments(*alike("x0 x1 x2 x3 k3 k4", "k0 k1 k2"), _MFMA)
_K64 = Fragments(*alike("x0 x1 x2 x3 k4 k5", "k0 k1 k2 k3"), _MFMA)
_HALVES_ALIKE = Fragments(*alike("x0 x1 x2 x3 .", "k0 k1 k2 k3"), _RDNA3_RESULT)
_BY_HALVES = Fragments(*alike("x0 x1 x2 x3 k3", "k0 k1 k2"), _RDNA4_RESULT)

_CDNA2 = (
    Instruction("v_mfma_i32_16x16x16i8", "i8", _K16),
    Instruction("v_mfma_f32_16x16x16f16", "f16", _K16),
    Instruction("v_mfma_f32_16x16x16bf16", "bf16", _K16),
)
_CDNA3 = (
    Instruction("v_mfma_i32_16x16x32_i8", "i8", _K32),
    Instruction("v_mfma_f32_16x16x16_f16", "f16", _K16),
    Instruction("v_mfma_f32_16x16x16_bf16", "bf16", _K16),
    Instruction("v_mfma_f32_16x16x32_fp8_fp8", "f8E4M3FNUZ", _K32),
    Instruction("v_mfma_f32_16x16x32_bf8_bf8", "f8E5M2FNUZ", _K32),
)
# The same instructions take OCP's formats on CDNA4.
_CDNA4 = (
    Instruction("v_mfma_i32_16x16x64_i8", "i8", _K64),
    Instruction("v_mfma_f32_16x16x32_f16", "f16", _K32),
    Instruction("v_mfma_f32_16x16x32_bf16", "bf16", _K32),
    *(kind for kind in _CDNA3 if not kind.element.startswith("f8")),
    Instruction("v_mfma_f32_16x16x32_fp8_fp8", "f8E4M3FN", _K32),
    Instruction("v_mfma_f32_16x16x32_bf8_bf8", "f8E5M2", _K32),
)
_RDNA3 = (
    Instruction("v_wmma_i32_16x16x16_iu8", "i8", _HALVES_ALIKE),
    Instruction("v_wmma_f32_16x16x16_f16", "f16", _HALVES_ALIKE),
    Instruction("v_wmma_f32_16x16x16_bf16", "bf16", _HALVES_ALIKE),
)
_RDNA4 = (
    Instruction("v_wmma_i32_16x16x16_iu8", "i8", _BY_HALVES),
    Instruction("v_wmma_f32_16x16x16_f16", "f16", _BY_HALVES),
    Instruction("v_wmma_f32_16x16x16_bf16", "bf16", _BY_HALVES),
    Instruction("v_wmma_f32_16x16x16_fp8_fp8", "f8E4M3FN", _BY_HALVES),
    Instruction("v_wmma_f32_16x16x16_bf8_bf8", "f8E5M2", _BY_HALVES),
)
INSTRUCTIONS = {
    "gfx90a": _CDNA2, "gfx942": _CDNA3, "gfx950": _CDNA4, "gfx1100": _RDNA3, "gfx1151": _RDNA3, "gfx1201": _RDNA4,
}  # fmt: skip
