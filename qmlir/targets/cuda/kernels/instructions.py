"""The instructions of NVIDIA GPUs that kernels use, as functions. Names and limits: PTX ISA."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....core.mlir import arith, gpu, ir, llvm, memref, vector
from ....kernels.tile.instruction import Fragments
from ....kernels.tile.layout import Layout
from ...gpu_kernels import emit as e

COPY_SIZES = (16, 8, 4)  # bytes of one cp.async


def _do(name: str, **attributes: ir.Attribute) -> None:
    """Create an operation without operands and results."""
    ir.Operation.create(name, results=[], operands=[], attributes=attributes)


def thread_id(threads: int) -> ir.Value:
    """The thread's number in its workgroup of `threads`."""
    return gpu.ThreadIdOp(gpu.Dimension.x, upper_bound=threads).result


def hidden(number: e.Index) -> ir.Value:
    """An index below 2^32, behind assembly that hides any tighter bound from the compiler."""
    i32 = e.integer(32)
    return e.as_index(llvm.InlineAsmOp(i32, [arith.index_cast(i32, e.index(number))], "mov.u32 $0, $1;", "=r,r").res)


# ------------------------------------------------------------------------------------------ asynchronous copies


def async_copy(
    target: ir.Value,
    where: Sequence[e.Index],
    source: ir.Value,
    place: Sequence[e.Index],
    size: int,
    unit: int,
    wanted: e.Condition,
) -> None:
    """`cp.async` of `size` elements of `unit` bytes. If `wanted` is false, it reads nothing and writes zeros."""
    count = [] if wanted is True else [e.index(e.choose(wanted, size, 0))]
    more = {"bypassL1": ir.UnitAttr.get()} if size * unit == 16 else {}
    to, from_ = [e.index(i) for i in where], [e.index(i) for i in place]
    segments = ir.DenseI32ArrayAttr.get([1, len(to), 1, len(from_), len(count)])
    e.operation(
        "nvgpu.device_async_copy", ir.Type.parse("!nvgpu.device.async.token"), [target, *to, source, *from_, *count],
        dstElements=ir.IntegerAttr.get(ir.IndexType.get(), size), operandSegmentSizes=segments, **more,
    )  # fmt: skip


def commit() -> None:
    """Commit the copies since the last commit as one group."""
    _do("nvvm.cp.async.commit.group")


def wait(pending: int) -> None:
    """Wait until at most `pending` groups of copies are in flight."""
    _do("nvvm.cp.async.wait.group", n=ir.IntegerAttr.get(e.integer(32), pending))


# ------------------------------------------------------------------------------------------------ matrix tiles


def ldmatrix(source: ir.Value, row: e.Index, column: e.Index, count: int) -> list[ir.Value]:
    """`count` tiles of 8 rows by 16 bytes: each lane gets one 32-bit word of each, lane `8 i + j` addresses row j of
    tile i."""
    element = ir.MemRefType(source.type).element_type
    kind = e.vector_of([count, 32 // e.bits(element)], element)
    loaded = e.operation(
        "nvgpu.ldmatrix", kind, [source, e.index(row), e.index(column)],
        numTiles=ir.IntegerAttr.get(e.integer(32), count), transpose=ir.BoolAttr.get(False),
    )  # fmt: skip
    one = e.vector_of(1, e.integer(32))
    return [e.lane(vector.bitcast(one, e.lane(loaded, i)), 0) for i in range(count)]


RESULT = Layout.of(lane="n1 n2 m0 m1 m2", value="n0 m3")
# Fragments of `mma.sync`, by depth and bits of an operand (PTX ISA, "Matrix fragments for mma.m16n8k16", "... k32").
FRAGMENTS = {
    (16, 8): Fragments(Layout.of(lane="k2 k3 m0 m1 m2", value="k0 k1 m3"),
                       Layout.of(lane="k2 k3 n0 n1 n2", value="k0 k1"), RESULT),
    (32, 8): Fragments(Layout.of(lane="k2 k3 m0 m1 m2", value="k0 k1 m3 k4"),
                       Layout.of(lane="k2 k3 n0 n1 n2", value="k0 k1 k4"), RESULT),
    (16, 16): Fragments(Layout.of(lane="k1 k2 m0 m1 m2", value="k0 m3 k3"),
                        Layout.of(lane="k1 k2 n0 n1 n2", value="k0 k3"), RESULT),
}  # fmt: skip


@dataclass(frozen=True)
class Multiply(ABC):
    """`mma.sync.m16n8k{depth}` as a kernel uses it: 32-bit words from shared memory become operands, operands sums.

    Attributes:
        lhs_kind, rhs_kind: PTX's names of the types in shared memory.
        fragments: where lanes hold operands and sums.
        acc: the type of the sums: i32 or f32.
    """

    lhs_kind: str
    rhs_kind: str
    fragments: Fragments
    acc: str = field(default="f32", kw_only=True)

    @property
    def depth(self) -> int:
        """Codes along K."""
        return self.fragments.shape[2]

    @property
    def operand(self) -> str:
        """PTX's name of the operands' types."""
        return self.lhs_kind if self.lhs_kind == self.rhs_kind else f"{self.lhs_kind}.{self.rhs_kind}"

    @property
    def step_bytes(self) -> int:
        """Bytes along K of a row of a fragment in shared memory."""
        return self.depth * (2 if self.lhs_kind.endswith("f16") else 1)

    @property
    def rate(self) -> str:
        """The operand type whose rate applies to it (see `Figures.rate`)."""
        return {"s8": "i8", "f16": "f16", "bf16": "f16"}.get(self.lhs_kind, "f8E4M3FN")

    @property
    def name(self) -> str:
        """The name that `qmlir inspect --layout` takes."""
        return f"mma.sync.m16n8k{self.fragments.shape[2]}.{self.operand}"

    def lhs(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        """Convert words of the activation from shared memory to operands."""
        return list(words)

    def rhs(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        return list(words)

    @abstractmethod
    def __call__(self, lhs: Sequence[ir.Value], rhs: Sequence[ir.Value], acc: Sequence[ir.Value]) -> list[ir.Value]:
        """`acc[m, n] += lhs[m, k] * rhs[n, k]`."""


@dataclass(frozen=True)
class Mma(Multiply):
    """An instruction whose operands are the words themselves. A lane holds 4 and 2 registers of the operands and 4 of
    the sums (2, 1 and 4 at half depth)."""

    def __call__(self, lhs: Sequence[ir.Value], rhs: Sequence[ir.Value], acc: Sequence[ir.Value]) -> list[ir.Value]:
        if self.lhs_kind.startswith("e"):  # sm_89 and newer
            kinds = f"f32.{self.lhs_kind}.{self.rhs_kind}.f32"
            places = ["{$0, $1, $2, $3}", "{$4, $5, $6, $7}", "{$8, $9}", "{$10, $11, $12, $13}"]
            return of_sums(f"mma.sync.aligned.m16n8k32.row.col.{kinds} {', '.join(places)};", [*lhs, *rhs], acc)
        kind = f"#nvvm.mma_type<{self.operand}>"
        more: dict[str, str] = {"multiplicandAPtxType": kind, "multiplicandBPtxType": kind}
        if self.acc == "i32":
            more["intOverflowBehavior"] = "#nvvm.mma_int_overflow<wrapped>"
        if self.operand == "f16":
            pair = e.vector_of(2, ir.F16Type.get())
            lhs, rhs = ([e.as_pair(w, pair) for w in words] for words in (lhs, rhs))
        made = e.operation(
            "nvvm.mma.sync", ir.Type.parse(f"!llvm.struct<({', '.join([self.acc] * 4)})>"), [*lhs, *rhs, *acc],
            shape=ir.Attribute.parse(f"#nvvm.shape<m = 16, n = 8, k = {self.depth}>"),
            layoutA=ir.Attribute.parse("#nvvm.mma_layout<row>"), layoutB=ir.Attribute.parse("#nvvm.mma_layout<col>"),
            operandSegmentSizes=ir.DenseI32ArrayAttr.get([len(lhs), len(rhs), 4]),
            **{name: ir.Attribute.parse(text) for name, text in more.items()},
        )  # fmt: skip
        return [field_of(made, i, acc[0].type) for i in range(4)]


def alike(kind: str, depth: int) -> Mma:
    """The instruction whose operands are both of type `kind`."""
    return Mma(kind, kind, FRAGMENTS[depth, 16 if kind.endswith("f16") else 8], acc="i32" if kind == "s8" else "f32")


MMA = (
    alike("s8", 32), alike("s8", 16), alike("f16", 16), alike("bf16", 16), alike("e4m3", 32), alike("e5m2", 32),
)  # fmt: skip


def of_sums(text: str, words: Sequence[ir.Value], acc: Sequence[ir.Value]) -> list[ir.Value]:
    """The four f32 sums of an instruction that takes words and four f32 sums."""
    kind = ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")
    constraints = ",".join(["=f"] * 4 + ["r"] * len(words) + ["f"] * 4)
    made = llvm.InlineAsmOp(kind, [*words, *acc], text, constraints).res
    return [field_of(made, i, ir.F32Type.get()) for i in range(4)]


def field_of(struct: ir.Value, position: int, t: ir.Type) -> ir.Value:
    """A field of an LLVM structure."""
    return e.operation("llvm.extractvalue", t, [struct], position=ir.DenseI64ArrayAttr.get([position]))


# ------------------------------------------------------------------------------------------------------- warps


# The type that a conversion saturates to, by its smallest and largest code.
CODES = {(-128.0, 127.0): "s8", (0.0, 255.0): "u8"}


def converted(numbers: ir.Value, kind: str) -> ir.Value:
    """Convert a vector of f32 to integers of `kind`, held as i32: rounded to even, saturated, 0 for NaN."""
    i32, text = e.integer(32), f"cvt.rni.{kind}.f32 $0, $1;"
    return e.gathered([llvm.InlineAsmOp(i32, [x], text, "=r,f").res for x in e.elements(numbers)])


def dp4a(a: ir.Value, b: ir.Value, acc: ir.Value) -> ir.Value:
    """`acc` plus the products of four signed bytes each."""
    return e.intrinsic("llvm.nvvm.idp4a.s.s", [a, b, acc], e.integer(32))


def count(counters: ir.Value, number: e.Index, size: int) -> ir.Value:
    """Add one to the i32 counter `number` in global memory, one every `size` bytes; return its previous value. This
    workgroup's stores before its last barrier are visible to workgroups that count later; those of workgroups that
    counted earlier are visible to this one (PTX ISA, memory consistency model: release and acquire patterns)."""
    i64 = e.integer(64)
    base = arith.index_castui(i64, memref.ExtractAlignedPointerAsIndexOp(counters).result)
    place = arith.addi(base, arith.index_castui(i64, e.index(e.multiply(number, size))))
    text = "atom.acq_rel.gpu.global.add.u32 $0, [$1], 1;"
    return llvm.InlineAsmOp(e.integer(32), [place], text, "=r,l,~{memory}", has_side_effects=True).res


# ------------------------------------------------------------------------------------------- warpgroups (sm_90a)


def fence_shared() -> None:
    """Make this thread's writes to shared memory visible to the asynchronous proxy, through which `wgmma` reads."""
    kind, space = ir.Attribute.parse("#nvvm.proxy_kind<async.shared>"), ir.Attribute.parse("#nvvm.shared_space<cta>")
    _do("nvvm.fence.proxy", kind=kind, space=space)


def address(memory: ir.Value) -> ir.Value:
    """The address of a buffer in shared memory, i64."""
    return arith.index_castui(e.integer(64), memref.ExtractAlignedPointerAsIndexOp(memory).result)


def descriptor(base: ir.Value, offset: e.Index) -> ir.Value:
    """The descriptor of a K-major matrix in shared memory, with rows of 128 bytes in the 128-byte swizzle (PTX ISA,
    "Matrix-descriptor format"): its address, eight rows every 1024 bytes, swizzle mode 1. Fields other than the mode
    are in units of 16 bytes."""
    i64 = e.integer(64)
    start = arith.shrui(arith.addi(base, arith.index_castui(i64, e.index(offset))), e.constant(4, i64))
    fixed = 1 << 62 | (1024 >> 4) << 32 | 1 << 16
    return arith.ori(arith.andi(start, e.constant(0x3FFF, i64)), e.constant(fixed, i64))


@dataclass(frozen=True)
class Wgmma:
    """`wgmma.mma_async.m64n{columns}k32` on one-byte codes, both sides in shared memory. A lane's accumulators are one
    LLVM structure, which may not be read or written between the product that writes it and a wait.

    Attributes:
        kinds: PTX's names of both operands' types.
    """

    columns: int
    kinds: tuple[str, str] = ("s8", "s8")

    @property
    def name(self) -> str:
        kinds = "s8" if self.integers else f"f32.{self.kinds[0]}.{self.kinds[1]}"
        return f"wgmma.m64n{self.columns}k32.{kinds}"

    @property
    def integers(self) -> bool:
        return self.kinds[0] == "s8"

    def zero(self) -> ir.Value:
        """Accumulators, all zero."""
        return e.operation("llvm.mlir.zero", self._accumulators, [])

    def new(self) -> ir.Value:
        """Accumulators with undefined values, for products that do not add to them."""
        return e.operation("llvm.mlir.undef", self._accumulators, [])

    def fence(self, acc: ir.Value) -> ir.Value:
        """The accumulators behind a fence, so that the products that follow see earlier writes to them."""
        return self._through("wgmma.fence.sync.aligned;", acc)

    def multiply(self, acc: ir.Value, lhs: ir.Value, rhs: ir.Value, adds: bool = True) -> ir.Value:
        """Multiply the matrices of both descriptors. The products are added to `acc`, or replace it; `acc` is being
        written until a wait."""
        fixed = {
            "shape": f"#nvvm.shape<m = 64, n = {self.columns}, k = 32>",
            **{f"type{side}": f"#nvvm.wgmma_type<{kind}>" for side, kind in zip("AB", self.kinds, strict=True)},
            "typeD": f"#nvvm.wgmma_type<{'s32' if self.integers else 'f32'}>",
            "scaleD": f"#nvvm.wgmma_scale_out<{'one' if adds else 'zero'}>",
            **{f"scale{side}": "#nvvm.wgmma_scale_in<one>" for side in "AB"},
            "layoutA": "#nvvm.mma_layout<row>",
            "layoutB": "#nvvm.mma_layout<col>",
        }
        if self.integers:
            fixed["satfinite"] = "#nvvm.mma_int_overflow<wrapped>"
        attributes = {name: ir.Attribute.parse(text) for name, text in fixed.items()}
        return e.operation("nvvm.wgmma.mma_async", acc.type, [acc, lhs, rhs], **attributes)

    def done(self, acc: ir.Value, pending: int = 0) -> ir.Value:
        """Wait until all but the last `pending` groups of products are done; return the accumulators."""
        return self._through(f"wgmma.wait_group.sync.aligned {pending};", acc)

    def results(self, acc: ir.Value) -> list[ir.Value]:
        """The sums in accumulators whose products are done."""
        return [field_of(acc, i, self._sum) for i in range(self.columns // 2)]

    @property
    def _sum(self) -> ir.Type:
        return e.integer(32) if self.integers else ir.F32Type.get()

    @property
    def _accumulators(self) -> ir.Type:
        return ir.Type.parse(f"!llvm.struct<({', '.join([str(self._sum)] * (self.columns // 2))})>")

    def _through(self, instruction: str, acc: ir.Value) -> ir.Value:
        """Pass all accumulators through an instruction, so that no read or write of them is moved across it."""
        registers = self.results(acc)
        kind = "=r" if self.integers else "=f"
        constraints = ",".join([kind] * len(registers) + [str(i) for i in range(len(registers))])
        return llvm.InlineAsmOp(acc.type, registers, instruction, constraints, has_side_effects=True).res


def wgmma_commit() -> None:
    _do("nvvm.wgmma.commit.group.sync.aligned")


def wgmma_wait(pending: int) -> None:
    """Wait until at most `pending` groups of products are in flight."""
    _do("nvvm.wgmma.wait.group.sync.aligned", group=ir.IntegerAttr.get(e.integer(64), pending))
