"""What is known of a weight's codes at compile time: all codes of a constant, the range of the codes of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.mlir import ir
from ..dialect.dtypes import Array
from ..ir.walk import VIEWS, behind, made_by, producer
from .at_load import decided_at_load, of_parameters
from .bodies import scalar_constant
from .description import Kernel
from .factors import NUMBERS
from .weights import constant_codes, known

_Span = tuple[int, int]
_BYTE = (-128, 127)


@dataclass(frozen=True)
class Codes:
    """The codes of a kernel's weight, i8.

    Attributes:
        array: the codes of a constant, `[N, K]` (`[matrices, N, K]` of a batch); None of other weights.
        low, high: the smallest and the largest possible code.
        parameters: whether they are known when the program is loaded, because they depend on parameters alone.
    """

    array: Array | None
    low: int
    high: int
    parameters: bool = False

    @property
    def is_argument(self) -> bool:
        """Whether the codes may differ from call to call."""
        return self.array is None and not self.parameters


def codes_of(kernel: Kernel) -> Codes:
    """What is known of the weight of `kernel`."""
    value = kernel.rhs.value
    if str(value.type.element_type) in NUMBERS:  # float weights have no codes, and are too large to copy here
        return Codes(None, *_BYTE, numbers_known(value))
    array = constant_codes(kernel)
    if array is not None:
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        return Codes(array, low, high)
    low, high = _BYTE if kernel.rhs.flipped else code_range(value)
    return Codes(None, low, high, of_parameters(value))


def numbers_known(value: ir.Value) -> bool:
    """Whether a float weight is the same in every call and takes no more memory than the values it is computed from:
    an f32 weight must be stored as f32."""
    if not isinstance(value.type.element_type, ir.F32Type):
        return decided_at_load(value)
    stored = behind(value, *VIEWS, "linalg.transpose")
    constant = made_by(stored, "arith.constant", "flow.tensor.constant") is not None
    return constant or (made_by(stored, "util.global.load") is not None and of_parameters(value))


def code_range(value: ir.Value) -> _Span:
    """The smallest and the largest element that an i8 tensor may have, derived from its producers."""
    return _tensor_range(value) or _BYTE


def _tensor_range(value: ir.Value) -> _Span | None:
    array = known(value)
    if array is not None:
        return (int(array.min()), int(array.max())) if array.size and array.dtype.kind in "iu" else None
    op = producer(value)
    if op is None:
        return None
    if op.name in ("tensor.expand_shape", "tensor.collapse_shape", "linalg.transpose"):
        return _tensor_range(op.operands[0])
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    block = op.regions[0].blocks[0]
    *_, end = block.operations
    return _scalar_range(end.operation.operands[0], dict(zip(block.arguments, op.operands, strict=True)))


def _scalar_range(value: ir.Value, tensors: dict[ir.Value, ir.Value]) -> _Span | None:
    if value in tensors:
        return _tensor_range(tensors[value])
    constant = scalar_constant(value)
    if constant is not None:
        return (int(constant.value), int(constant.value)) if isinstance(constant, ir.IntegerAttr) else None
    op = producer(value)
    if op is None:
        return None
    if op.name == "tensor.extract":
        return _tensor_range(op.operands[0])
    rule = _RULES.get(op.name)
    found = None if rule is None else rule(*(_scalar_range(operand, tensors) for operand in op.operands))
    if found is None or not isinstance(value.type, ir.IntegerType):
        return None
    half = 1 << (value.type.width - 1)
    return found if -half <= found[0] and found[1] < half else None


def _and(a: _Span | None, b: _Span | None) -> _Span | None:
    highs = [span[1] for span in (a, b) if span is not None and span[0] >= 0]
    return (0, min(highs)) if highs else None


def _xor(a: _Span | None, b: _Span | None) -> _Span | None:
    if a is None or b is None or min(a[0], b[0]) < 0:
        return None
    return 0, (1 << max(a[1], b[1]).bit_length()) - 1


def _add(a: _Span | None, b: _Span | None) -> _Span | None:
    return None if a is None or b is None else (a[0] + b[0], a[1] + b[1])


def _subtract(a: _Span | None, b: _Span | None) -> _Span | None:
    return None if a is None or b is None else (a[0] - b[1], a[1] - b[0])


def _same(a: _Span | None) -> _Span | None:
    return a


def _unsigned(a: _Span | None) -> _Span | None:
    return a if a is not None and a[0] >= 0 else None


_RULES: dict[str, Callable[..., _Span | None]] = {
    "arith.addi": _add, "arith.andi": _and, "arith.extsi": _same, "arith.extui": _unsigned, "arith.subi": _subtract,
    "arith.trunci": _same, "arith.xori": _xor,
}  # fmt: skip
