"""Shape algebra of scales, shared by the verifiers, the reference and the lowering.

A scale is read by broadcasting its shape, right-aligned, against its operand's: each axis of the scale
divides the operand's axis, and the quotient is the block that one scale covers. `[]` is per tensor,
`[M, 1]` per token, `[1, N]` (for a `[K, N]` operand) per channel, `[K/g, N]` groups along K, and
`[K/128, N/128]` blocks. Sizes are `None` where dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int | None, ...]


class ShapeError(ValueError):
    """A shape that does not fit; the message names the operand."""


def show(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def blocks(scale: Sequence[int | None], operand: Sequence[int | None], name: str, of: str) -> tuple[int | None, ...]:
    """For each axis of `operand`: how many elements one scale covers; None means the whole axis.

    Raises:
        ShapeError: if `scale` does not broadcast in blocks; the message says which group sizes do.
    """
    if len(scale) > len(operand):
        raise ShapeError(f"'{name}' has shape {show(scale)}, which has more axes than '{of}' {show(operand)}")
    padded: list[int | None] = [*[1] * (len(operand) - len(scale)), *scale]
    result: list[int | None] = []
    for axis, (s, d) in enumerate(zip(padded, operand, strict=True)):
        if s == 1:
            result.append(None)
        elif s is None and d is None:
            result.append(1)
        elif s is None or d is None:
            raise ShapeError(
                f"'{name}' has shape {show(scale)}: axis {axis} of '{of}' {show(operand)} and of its scale must "
                "both be static or both be dynamic"
            )
        elif s == d:
            result.append(1)
        elif s > 0 and d > 0 and d % s == 0:
            result.append(d // s)
        else:
            near = [g for g in (16, 32, 64, 128) if d and d % g == 0]
            hint = f"; group sizes that divide {d}: {', '.join(map(str, near))}" if near else ""
            raise ShapeError(
                f"'{name}' has shape {show(scale)}, but axis {axis} of '{of}' {show(operand)} has {d} elements, "
                f"which {s} groups do not divide{hint}"
            )
    return tuple(result)


def group_along(operand: Sequence[int | None], axis: int, *scales: Sequence[int | None] | None) -> int | None:
    """The greatest common divisor of the blocks that `scales` have along an axis of `operand`; None if each scale
    covers the whole axis. `axis` is negative; a dynamic size counts as a block of one element."""
    groups = []
    for scale in scales:
        if scale is None or len(scale) < -axis or scale[axis] == 1:
            continue
        count, size = scale[axis], operand[axis]
        groups.append(size // count if count and size else 1)
    return math.gcd(*groups) if groups else None


def broadcast(a: Sequence[int | None], b: Sequence[int | None]) -> Shape | None:
    """numpy's broadcast of two shapes, None if they do not fit."""
    out: list[int | None] = []
    for i in range(max(len(a), len(b))):
        x = a[len(a) - 1 - i] if i < len(a) else 1
        y = b[len(b) - 1 - i] if i < len(b) else 1
        if x == 1:
            out.append(y)
        elif y == 1 or x == y:
            out.append(x)
        elif x is None or y is None:
            out.append(x if y is None else y)
        else:
            return None
    return tuple(reversed(out))


def conv_extent(size: int | None, kernel: int, stride: int, dilation: int, before: int, after: int) -> int | None:
    """Output size of one spatial axis of a convolution."""
    return None if size is None else (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


def transposed_extent(
    size: int | None, kernel: int, stride: int, dilation: int, before: int, after: int, output_padding: int
) -> int | None:
    """Output size of one spatial axis of a transposed convolution (torch's ConvTranspose2d formula)."""
    if size is None:
        return None
    return (size - 1) * stride - before - after + dilation * (kernel - 1) + output_padding + 1


def block_count(slots: int | None, experts: int, block_size: int) -> int | None:
    """The most blocks that `slots` rows can take if the rows of each expert are padded to whole blocks: an expert
    wastes less than one block, and every block holds a row."""
    return None if slots is None else min(slots, -(-slots // block_size) + experts - 1)
