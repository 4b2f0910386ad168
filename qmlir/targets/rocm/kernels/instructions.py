"""AMD's matrix instructions as kernels see them.

All multiply 16 x K by K x 16. Kernels pass the weight as the left operand, so that a lane's results are several columns
of one row of the product.

Sources: CDNA3 ISA guide, section 7 (layouts of MFMA operands) and AMD's matrix instruction calculator; RDNA3 and RDNA4
ISA guides, section 7.9 (WMMA). RDNA3 requires both halves of a wave to hold the same operands.
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

    name: str  # as in the assembly, without suffixes
    element: str
    fragments: Fragments

    @property
    def k(self) -> int:
        return self.fragments.shape[2]

    @property
    def registers(self) -> int:
        """Registers of the result per lane."""
        return self.fragments.d.size("value")

    @property
    def lanes(self) -> int:
        """Elements of an operand along K per lane."""
        return self.fragments.a.size("value")

    @property
    def parts(self) -> int:
        """Parts into which K is divided among the lanes of a wave."""
        return self.k // self.lanes

    @property
    def words(self) -> int:
        """Words of an operand per lane."""
        return self.lanes * self.bytes // 4

    @property
    def bytes(self) -> int:
        """Bytes of an element of an operand."""
        return 2 if self.element in ("f16", "bf16") else 1

    @property
    def rate(self) -> str:
        """The operand type whose rate applies to it (see `Figures.rate`)."""
        return self.element

    @property
    def iree_name(self) -> str:
        """IREE's name of the instruction."""
        wmma = "WMMAR3" if None in self.fragments.a["lane"] else "WMMAR4"
        kind, total = "MFMA" if "mfma" in self.name else wmma, "I32" if self.element == "i8" else "F32"
        return f"{kind}_{total}_{'x'.join(map(str, self.fragments.shape))}_{self.element.upper()}"

    def multiply(self, left: list[ir.Value], right: list[ir.Value], total: ir.Value) -> ir.Value:
        """The product of words of both sides, added to `total`, a vector of `registers` i32 or f32."""
        element = ir.Type.parse(self.element)
        kind = e.vector_of(self.lanes, element)
        a, b = (vector.bitcast(kind, e.gathered(words)) for words in (left, right))
        i32 = e.integer(32)
        sizes = {name: ir.IntegerAttr.get(i32, v) for name, v in (("m", 16), ("n", 16), ("k", self.k))}
        if self.name.startswith("v_mfma"):
            name, more = "amdgpu.mfma", {"blocks": ir.IntegerAttr.get(i32, 1)}
        else:
            name, more = "amdgpu.wmma", {}
        return e.operation(name, total.type, [a, b, total], **sizes, **more)


_MFMA = Layout.of(lane="n0 n1 n2 n3 m2 m3", value="m0 m1")
_RDNA3_RESULT = Layout.of(lane="n0 n1 n2 n3 m0", value="m1 m2 m3")
_RDNA4_RESULT = Layout.of(lane="n0 n1 n2 n3 m3", value="m0 m1 m2")
_K16 = Fragments(*alike("x0 x1 x2 x3 k2 k3", "k0 k1"), _MFMA)
_K32 = Fragments(*alike("x0 x1 x2 x3 k3 k4", "k0 k1 k2"), _MFMA)
_K64 = Fragments(*alike("x0 x1 x2 x3 k4 k5", "k0 k1 k2 k3"), _MFMA)
_RDNA3_K16 = Fragments(*alike("x0 x1 x2 x3 .", "k0 k1 k2 k3"), _RDNA3_RESULT)
_RDNA4_K16 = Fragments(*alike("x0 x1 x2 x3 k3", "k0 k1 k2"), _RDNA4_RESULT)

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
# On CDNA4 the fp8 instructions of CDNA3 take OCP's formats.
_CDNA4 = (
    Instruction("v_mfma_i32_16x16x64_i8", "i8", _K64),
    Instruction("v_mfma_f32_16x16x32_f16", "f16", _K32),
    Instruction("v_mfma_f32_16x16x32_bf16", "bf16", _K32),
    *(kind for kind in _CDNA3 if not kind.element.startswith("f8")),
    Instruction("v_mfma_f32_16x16x32_fp8_fp8", "f8E4M3FN", _K32),
    Instruction("v_mfma_f32_16x16x32_bf8_bf8", "f8E5M2", _K32),
)
_RDNA3 = (
    Instruction("v_wmma_i32_16x16x16_iu8", "i8", _RDNA3_K16),
    Instruction("v_wmma_f32_16x16x16_f16", "f16", _RDNA3_K16),
    Instruction("v_wmma_f32_16x16x16_bf16", "bf16", _RDNA3_K16),
)
_RDNA4 = (
    Instruction("v_wmma_i32_16x16x16_iu8", "i8", _RDNA4_K16),
    Instruction("v_wmma_f32_16x16x16_f16", "f16", _RDNA4_K16),
    Instruction("v_wmma_f32_16x16x16_bf16", "bf16", _RDNA4_K16),
    Instruction("v_wmma_f32_16x16x16_fp8_fp8", "f8E4M3FN", _RDNA4_K16),
    Instruction("v_wmma_f32_16x16x16_bf8_bf8", "f8E5M2", _RDNA4_K16),
)
INSTRUCTIONS = {
    "gfx90a": _CDNA2, "gfx942": _CDNA3, "gfx950": _CDNA4, "gfx1100": _RDNA3, "gfx1151": _RDNA3, "gfx1201": _RDNA4,
}  # fmt: skip


@dataclass(frozen=True)
class ScaledMfma(Instruction):
    """`v_mfma_scale_f32_16x16x128_f8f6f4`: codes with one e8m0 scale per 32 of them. The lowest byte of a lane's word
    of scales is that of its block. K is counted in bytes: codes of half a byte are pairs."""

    rhs_kind: str
    scale: str = "ue8m0"
    block: int = 32

    @property
    def lhs_kind(self) -> str:
        return self.element

    @property
    def code_bits(self) -> int:
        return self.k // 16

    @property
    def rate(self) -> str:
        return "f8E4M3FN"  # the rate of bytes, even with two codes per byte

    @property
    def table_name(self) -> str:
        """The name that `qmlir inspect --layout` takes."""
        return f"{self.name}.{self.lhs_kind}.{self.rhs_kind}"

    @property
    def iree_name(self) -> str:
        return self.table_name

    def scaled(
        self, left: list[ir.Value], right: list[ir.Value], scales: tuple[ir.Value, ir.Value], total: ir.Value
    ) -> ir.Value:
        """The instruction with scales. The weight is the left operand; its codes are of `rhs_kind`."""
        i32, four = e.integer(32), e.vector_of(4, ir.Type.parse("f8E8M0FNU"))
        sides = []
        for words, kind in ((left, self.rhs_kind), (right, self.lhs_kind)):
            element = ir.Type.parse(_ELEMENTS[kind])
            sides.append(vector.bitcast(e.vector_of(32, element), e.gathered(words)))
        factors = [vector.bitcast(four, e.gathered([word])) for word in scales]
        numbers = {"m": 16, "n": 16, "k": 128, "scalesIdxA": 0, "scalesIdxB": 0}
        attributes = {name: ir.IntegerAttr.get(i32, value) for name, value in numbers.items()}
        return e.operation("amdgpu.scaled_mfma", total.type, [*sides, total, *factors], **attributes)


_ELEMENTS = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "e2m1": "f4E2M1FN"}
# A lane holds one-byte codes in two runs of 16 along K, half-byte codes in one run (Composable Kernel's mx pipeline;
# Triton's chooseScaledMfmaScaleLayout). Either way the scales are those of blocks of 32 in the order of K.
_SCALES = dict(zip(("a_scale", "b_scale"), alike("x0 x1 x2 x3 s0 s1", ""), strict=True))
_K128 = Fragments(*alike("x0 x1 x2 x3 k4 k5", "k0 k1 k2 k3 k6"), _MFMA, **_SCALES)
_PAIRS = Fragments(*alike("x0 x1 x2 x3 k4 k5", "k0 k1 k2 k3"), _MFMA, **_SCALES)
_SCALED_NAME = "v_mfma_scale_f32_16x16x128_f8f6f4"
SCALED = {
    "gfx950": (
        *(ScaledMfma(_SCALED_NAME, a, _K128, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
        ScaledMfma(_SCALED_NAME, "e2m1", _PAIRS, "e2m1"),
    )
}
