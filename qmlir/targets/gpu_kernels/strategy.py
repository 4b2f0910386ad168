"""The base class of strategies for products: it describes contractions as kernels, and lets tiles be requested."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from ...dialect.dtypes import Array
from ...kernels.bodies import unclonable
from ...kernels.convolution import describe_convolution, side_by_side
from ...kernels.description import Kernel, Unfit
from ...kernels.gather_operands import gather_operands
from ...kernels.group import describe
from ...kernels.routing import scattered
from ...kernels.row_sums import absorbed
from ...kernels.weights import constant_codes
from ..base import FLOAT8, Target
from ..strategy import Accept, Choice, Contraction, Decline, Knob
from .machine import Machine
from .route import with_routing
from .stream_k import on_request_only
from .weights import byte_codes

if TYPE_CHECKING:
    from typing_extensions import Self

# One-byte floats, which epilogues read as scales.
SMALL_FLOATS = (*FLOAT8, "f8E8M0FNU")
NOT_ONE_PRODUCT = Decline("workgroups share K of a single product only", "a tile of one workgroup")
NOT_CONSTANT = Decline("the weight is not a constant", "make the weight a constant, or a parameter that is baked in")


class NamedTile(Protocol):
    """A built-in tile."""

    @property
    def name(self) -> str: ...

    @property
    def stream_k(self) -> bool:
        """Whether workgroups share K (`stream_k.py`)."""


@dataclass(frozen=True)
class FixedTile:
    """A tile of a strategy that has only one size, with or without workgroups that share K."""

    rows: int
    columns: int
    stream_k: bool = False

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.columns}" + "-stream-k" * self.stream_k


class Sharable(Protocol):
    """A kernel whose K workgroups can share."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def shared_bytes(self) -> int: ...

    def shared_among(self, target: Target) -> Self:
        """The kernel with as many workgroups as run at the same time."""


_Sharable = TypeVar("_Sharable", bound=Sharable)


def with_tiles(made: Sequence[_Sharable], tiles: Sequence[FixedTile], target: Target) -> Iterator[_Sharable]:
    """The kernels with each of the tiles that they can have: K of a batch of products is not shared."""
    for tile in tiles:
        for kernel in made if not tile.stream_k else [k.shared_among(target) for k in made if k.kernel.batch is None]:
            if kernel.shared_bytes <= target.capabilities.shared_memory:
                yield kernel


_Tile = TypeVar("_Tile", bound=NamedTile, covariant=True)


@dataclass(frozen=True)
class ProductStrategy(ABC, Generic[_Tile]):
    """A strategy for products. Its tile can be requested (`strategy.Tunable`) by the knob `NAME-tile`; "" means the
    fastest.

    Attributes:
        tiles: the tiles that can be requested.
        tried: whether the strategy is one of `each`, so that its tile was not requested by the user.
        kinds: the kinds of contractions that it accepts.
        planes: whether NCHW images are read in that layout; else they are transposed to NHWC before the kernel.
        grouped_floats: whether it accepts float convolutions with groups of channels.
        doubles_e2m1: whether e2m1 codes on both sides are multiplied as integers.
    """

    target: Target
    machine: Machine
    name: str = ""
    tiles: tuple[_Tile, ...] = ()
    tried: bool = False
    kinds: tuple[str, ...] = ("matmul", "conv2d")

    planes: ClassVar[bool] = False
    grouped_floats: ClassVar[bool] = False
    doubles_e2m1: ClassVar[bool] = True

    @property
    def _knob(self) -> str:
        return f"{self.name.removesuffix('-conv')}-tile"

    def space(self) -> tuple[Knob, ...]:
        return (Knob(self._knob, ("", *(tile.name for tile in self.tiles))),) if self.tiles else ()

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        return ()

    def choosing(self, choice: Choice) -> Self:
        asked = choice.get(self._knob)
        return replace(self, tiles=tuple(t for t in self.tiles if t.name == asked)) if asked else self

    def each(self) -> Sequence[Self]:
        """A copy of the strategy for each of its tiles; the strategy itself if it has less than two."""
        return [replace(self, tiles=(tile,), tried=True) for tile in self.tiles] if len(self.tiles) > 1 else [self]

    def consider(self, contraction: Contraction) -> Accept | Decline:
        kernel = self.kernel_of(contraction)
        answer = kernel if isinstance(kernel, Decline) else self.plan_of(kernel, contraction)
        return with_routing(answer, self, contraction, self.described, self.machine)

    def kernel_of(self, c: Contraction) -> Kernel | Decline:
        """The kernel of the contraction and all ops that are fused with it."""
        if c.kind not in self.kinds:
            return Decline(f"a {c.kind}", "write it as a matmul" if "matmul" in self.kinds else "a convolution")
        kernel = self.unlike(c) or self.described(c)
        return kernel if isinstance(kernel, Decline) else self.adapted(kernel)

    def plan_of(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether the strategy accepts a kernel, which may have another number of rows than the contraction. The plan
        is a `GpuKernelPlan`, unless it is for a static number of rows only."""
        shared = self.tried and all(tile.stream_k for tile in self.tiles)
        if shared and (reason := on_request_only(kernel, self.target)):
            tile = f"{{'{self._knob}': '{self.tiles[0].name}'}}"
            return Decline(f"{reason}, so workgroups share K on request only", f"choice={tile}")
        return self.check(kernel, c)

    def described(self, c: Contraction) -> Kernel | Decline:
        """The kernel of a matmul, or of a convolution."""
        if c.op is None:
            return Decline("the ops that are fused with it are not known", "none needed")
        floats = c.acc == "f32"
        try:
            if c.kind == "matmul":
                bytes_ = small_floats(c)
                kernel = describe(c.op, bool(c.batch) or bytes_, bool(c.batch) and not bytes_, self.doubles_e2m1)
            else:
                grouped = self.grouped_floats or not floats
                kernel = describe_convolution(c.op, True, floats, grouped, (self.planes, True))
                if kernel.rhs.decode is not None and (reason := unclonable(kernel.rhs.decode.body)):
                    return Decline(
                        f"the dequantisation of the filter cannot be vectorised: {reason}", "codes and scales"
                    )
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        return scattered(gather_operands(absorbed(kernel.without_gate()), slots=True))

    def adapted(self, kernel: Kernel) -> Kernel:
        """The kernel in the form that generators need."""
        return side_by_side(kernel)

    @abstractmethod
    def unlike(self, c: Contraction) -> Decline | None:
        """A Decline if the strategy does not support the operands' element types."""

    @abstractmethod
    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether the kernel can be computed this way."""


def small_floats(c: Contraction) -> bool:
    """Whether it is a matmul of one-byte floats on both sides."""
    return c.kind == "matmul" and c.lhs in FLOAT8 and c.rhs in FLOAT8


def unreadable(kernel: Kernel, piece: int = 4) -> Decline | None:
    """A Decline if the activation's layout is not one that kernels read, with `piece` codes of a pixel at once."""
    if kernel.lhs.source_axes[-1] != "k" or set(kernel.lhs.source_axes) - {"b", "m", "g", "k"}:
        return Decline("K is not the last axis of the activation", "an activation [M, K]")
    window = kernel.lhs.window
    if window is not None and window.channels % piece:
        return Decline(f"{window.channels} channels are not a multiple of {piece}", f"a multiple of {piece} channels")
    return None


def unsupported(kernel: Kernel, handled: Iterable[str]) -> Decline | None:
    """A Decline if a body reads or makes element types that the kernels do not support."""
    handled = (*handled, *SMALL_FLOATS)
    for kind in [o.element_type for o in kernel.operands] + [kernel.result_type]:
        if str(kind) not in handled:
            return Decline(f"it reads or makes {kind}", f"one of {', '.join(handled)} beside the product")
    return None


def codes_for_matrices(kernel: Kernel, piece: int) -> Array | Decline:
    """The codes of a constant weight for matrix instructions, whose activations are read in pieces of `piece` codes; or
    a Decline if a kernel on such instructions does not accept the product."""
    if unfit := unreadable(kernel, piece) or unsupported(kernel, ("i8", "i32", "f32", "f16", "bf16")):
        return unfit
    if kernel.rhs.decode is not None:
        *_, code = kernel.rhs.decode.body.arguments  # the init, which has the type of the decoded weight
        if str(code.type) != str(kernel.lhs.value.type.element_type):
            return Decline("the weight is decoded to another type than the activation's", "the activation's type")
    codes = byte_codes(constant_codes(kernel))
    return NOT_CONSTANT if codes is None else codes
