"""Built-in decompositions, for operators for which torch has none, or whose torch decomposition torch-mlir does not
convert.

A rule takes an operator's arguments and computes its result with other operators; it returns NotImplemented if it does
not apply.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch

from .dtypes import FROM_TORCH
from .graph import aten

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx.node import Argument, Target

TorchResult: TypeAlias = "torch.Tensor | Sequence[torch.Tensor]"
TorchRule: TypeAlias = "Callable[..., TorchResult]"
R = TypeVar("R", bound="TorchRule")
RULES: dict[OpOverload | str, TorchRule] = {}  # by operator, or by name if its library may not be imported


def rule_of(target: Target) -> TorchRule | None:
    """The rule of an operator; None without one."""
    return RULES.get(target) or RULES.get(str(target))


# Rules of operators that torch-mlir converts except for some arguments: tried after an import has failed.
IF_REFUSED: dict[OpOverload | str, TorchRule] = {}


def rule(*targets: OpOverload | str) -> Callable[[R], R]:
    return _register_in(RULES, targets)


def if_refused(*targets: OpOverload) -> Callable[[R], R]:
    return _register_in(IF_REFUSED, targets)


def _register_in(rules: dict[OpOverload | str, TorchRule], targets: Sequence[OpOverload | str]) -> Callable[[R], R]:
    def decorate(rule: R) -> R:
        rules.update(dict.fromkeys(targets, rule))
        return rule

    return decorate


SHORT = (torch.float16, torch.bfloat16)
# torch sums f16 and bf16 in f32 and rounds the result; torch-mlir rounds every step.
SUMS = frozenset((
    aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default, aten.prod.default,
    aten.prod.dim_int, aten.cumprod.default, aten.logcumsumexp.default, aten.var.correction, aten.var_mean.correction,
    aten.std.correction, aten.linalg_vector_norm.default, aten.layer_norm.default, aten.native_layer_norm.default,
    aten.group_norm.default, aten.native_group_norm.default, aten.instance_norm.default, aten.avg_pool1d.default,
    aten.avg_pool2d.default, aten.avg_pool3d.default, aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default, aten._log_softmax.default,
    aten.log_softmax.int, aten.logsumexp.default, aten.std.dim, aten.var.dim, aten.dist.default,
    aten.cosine_similarity.default, aten.l1_loss.default, aten.kl_div.default, aten.logit.default,
    aten._weight_norm.default, aten._weight_norm_interface.default,
))  # fmt: skip


# torch's products of bytes wrap around to bytes; they crash torch-mlir.
BYTES = (torch.int8, torch.uint8)
PRODUCTS_OF_BYTES = frozenset((
    aten.mm.default, aten.bmm.default, aten.matmul.default, aten.mv.default, aten.dot.default, aten.vdot.default,
    aten.inner.default, aten.addmm.default, aten.addmv.default, aten.addr.default, aten.baddbmm.default,
    aten.addbmm.default, aten.chain_matmul.default, aten.linear.default, aten.tensordot.default,
    aten.linalg_multi_dot.default, aten.linalg_vecdot.default,
))  # fmt: skip


def wider(target: Target, value: object) -> torch.dtype | None:
    """The dtype in which an operator on a short dtype is computed; None if it is computed in its own."""
    if not isinstance(value, torch.Tensor):
        return None
    if target in SUMS and value.dtype in SHORT:
        return torch.float32
    return torch.int32 if target in PRODUCTS_OF_BYTES and value.dtype in BYTES else None


def in_wider(target: OpOverload) -> TorchRule:
    """A rule that computes an operator on a short dtype in a wider one."""
    names = [a.name for a in target._schema.arguments]

    def rule(*args: Argument, **kwargs: Argument) -> TorchResult:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        wide_type = wider(target, given[names[0]])
        if wide_type is None:
            return NotImplemented
        short, wanted = given[names[0]].dtype, given.get("dtype")
        if wanted == short:
            given["dtype"] = wide_type
        alike = SHORT if short in SHORT else BYTES
        wide = {n: a.to(wide_type) if isinstance(a, torch.Tensor) and a.dtype in alike else a for n, a in given.items()}
        positional = [wide.pop(n) for n in names[: len(args)]]
        found = target(*positional, **wide)
        if wanted not in (None, short):
            return found
        several = isinstance(found, (tuple, list))
        made = tuple(f if f is None else f.to(short) for f in (found if several else [found]))
        return made if several else made[0]

    return rule


@rule(aten.histc.default)
def histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Counts of `trunc((x - min) * bins / (max - min))`, the last bin closed. Source: ATen, HistogramKernel.cpp."""
    x = x.reshape(-1)
    lo, hi = (x.amin(), x.amax()) if min == max == 0 else (torch.tensor(float(min)), torch.tensor(float(max)))
    lo, hi = lo.to(x.dtype), hi.to(x.dtype)
    if min == max:
        equal = lo == hi
        lo, hi = torch.where(equal, lo - 1, lo), torch.where(equal, hi + 1, hi)
    place = ((x - lo) * bins / (hi - lo)).to(torch.int64).clamp(max=bins - 1)
    inside = (x >= lo) & (x <= hi)
    hit = (place[:, None] == torch.arange(bins)[None, :]) & inside[:, None]
    return hit.to(x.dtype).sum(0)


@rule(aten.prelu.default, aten._prelu_kernel.default)
def prelu(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """With one slope per channel (axis 1): torch-mlir aligns the slopes with the last axis."""
    if weight.dim() == 1 and weight.shape[0] != 1 and x.dim() > 1:
        weight = weight.reshape([-1 if i == 1 else 1 for i in range(x.dim())])
    return torch.where(x > 0, x, x * weight)


@rule(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    """With shapes that torch-mlir does not broadcast: computed from the nearer end, as in torch."""
    t = torch.as_tensor(weight, dtype=x.dtype)
    if torch.broadcast_shapes(x.shape, y.shape, t.shape) == x.shape:
        return NotImplemented
    return torch.where(t.abs() < 0.5, x + t * (y - x), y - (y - x) * (1 - t))


@rule(aten.erfc.default, aten.special_erfc.default)
def erfc(x: torch.Tensor) -> torch.Tensor:
    """The pass `qmlir-expand-functions` recognises this form, and computes it without the subtraction."""
    return 1 - torch.erf(x)


@rule(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(x: torch.Tensor, y: int) -> torch.Tensor:
    """From the remainder with the divisor's sign; torch-mlir's `x - trunc(x / y) y` is off by `y` if the quotient is
    large."""
    if not torch.result_type(x, y).is_floating_point:
        found = torch.remainder(x, y)
        return torch.where((found != 0) & ((x < 0) != (found < 0)), found - y, found)
    found = torch.remainder(x.abs(), y.abs() if isinstance(y, torch.Tensor) else abs(y))
    return torch.where(x < 0, -found, found)


@rule(aten.floor_divide.default, aten.floor_divide.Scalar, aten.div.Tensor_mode, aten.div.Scalar_mode)
def floor_divide(x: torch.Tensor, y: int, rounding_mode: str | None = "floor") -> torch.Tensor:
    """As torch (`div_floor_floating` in c10): `floor(x / y)` is 1 too large if `x / y` is rounded up to an integer."""
    if not x.is_floating_point() or rounding_mode != "floor":
        return NotImplemented
    rest = fmod(x, y)
    other_side = (rest != 0) & ((rest < 0) != (torch.as_tensor(y) < 0))
    quotient = (x - rest) / y - other_side.to(x.dtype)
    whole = torch.floor(quotient)
    whole = whole + (quotient - whole > 0.5).to(x.dtype)
    return torch.where(torch.as_tensor(y) == 0, x / y, whole)


@rule(aten.log_sigmoid.default)
def log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """Without the sigmoid itself, which underflows to 0 far below 0."""
    return x.clamp(max=0) - torch.log1p(torch.exp(-x.abs()))


@rule(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `log_sigmoid`; the second result is for the gradient, and on CPUs only."""
    return log_sigmoid(x), torch.exp(-x.abs())


@rule(aten._grouped_mm.default, "transformers.grouped_mm_fallback.default")
def grouped_mm(
    x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor | None = None, bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """Rows `offs[g - 1] .. offs[g]` of `x` [M, K] times `weight[g]` [K, N], as the dialect's `grouped_matmul`."""
    if x.dim() != 2 or weight.dim() != 3 or offs is None or bias is not None:
        return NotImplemented
    sizes = offs - torch.nn.functional.pad(offs, (1, 0))[:-1]
    out = FROM_TORCH[out_dtype or x.dtype]
    return torch.ops.qmlir.grouped_matmul(x, weight, group_sizes=sizes.to(torch.int32), out_dtype=out)


@rule(aten.as_strided.default, aten.as_strided_.default)
def as_strided(
    x: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> torch.Tensor:
    """Gather elements by their positions in memory, which for a dense tensor follow its axes by descending stride.
    torch's average over all pixels ends in this operator, to keep the channels-last layout."""
    if storage_offset in (None, x.storage_offset()) and list(size) == list(x.shape):
        moved = [n for n, new, old in zip(size, stride, x.stride(), strict=True) if new != old and n != 1]
        if not moved:
            return x.clone()  # only axes of one element have other strides
    if not all(isinstance(n, int) for n in (*x.shape, *size, *stride)) or 0 in (*x.shape, *size):
        return NotImplemented
    order = sorted(range(x.dim()), key=lambda i: (-x.stride(i), -x.shape[i]))
    dense = x.permute(order)
    if not dense.is_contiguous():
        return NotImplemented
    first = x.storage_offset() if storage_offset is None else storage_offset
    low = first - x.storage_offset()
    if low < 0 or low + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) >= x.numel():
        return NotImplemented  # outside of the tensor, in the one of which it is a view
    place = torch.full([1] * len(size), low)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        place = place + (torch.arange(n) * step).reshape([n if i == axis else 1 for i in range(len(size))])
    return dense.reshape(-1).index_select(0, place.reshape(-1)).reshape(list(size))


@rule(aten.exponential.default)
def exponential(x: torch.Tensor, rate: float = 1, generator: torch.Generator | None = None) -> torch.Tensor:
    """From uniform values in [0, 1): torch-mlir's own conversion crashes the process."""
    return torch.log1p(-torch.rand_like(x)) * (-1 / rate)


@rule(aten.embedding_bag.padding_idx)
def embedding_bag(
    table: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, by_frequency: bool, mode: int, sparse: bool,
    weights: torch.Tensor | None, last: bool, padding: int | None,
) -> TorchResult:  # fmt: skip
    """The sum (mode 0), mean (1) or maximum (2) of the rows of a table from `offsets[i]` to the next offset; torch-mlir
    itself converts only a plain sum."""
    bags = offsets.shape[0] - int(last)
    place = torch.arange(ids.shape[0])[:, None]
    ends = (offsets if last else torch.nn.functional.pad(offsets - ids.shape[0], (0, 1)) + ids.shape[0])[1:]
    inside = (place >= offsets[:bags]) & (place < ends)  # [ids, bags]
    if padding is not None:
        inside = inside & (ids != padding % table.shape[0])[:, None]
    rows = table.index_select(0, ids)
    if mode == 2:
        found = torch.where(inside[:, :, None], rows[:, None], torch.tensor(float("-inf"))).amax(0)
        found = torch.where(inside.any(0)[:, None], found, torch.zeros(()))
    else:
        rows = rows if weights is None else rows * weights[:, None]
        found = inside.to(rows.dtype).t() @ rows
        if mode == 1:
            found = found / inside.sum(0).clamp(min=1)[:, None]
    nothing = ids.new_empty(0)
    return found, nothing, nothing, nothing


@rule(aten._cdist_forward.default, aten.cdist.default)
def distances(x: torch.Tensor, y: torch.Tensor, p: float, mode: int | None = None) -> torch.Tensor:
    """The distance of each row of `x` to each row of `y`, from their differences."""
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


@rule(aten.split.Tensor)
def split(x: torch.Tensor, size: torch.SymInt | int, dim: int = 0) -> TorchResult:
    """As slices: torch's own decomposition gathers elements by their positions in memory."""
    whole = x.shape[dim]
    if isinstance(whole, int) and whole == 0:
        return [x.clone()]  # even if `size` is 0
    count = int((whole + size - 1) // size)  # torch's own expression, whose value the exporter knows
    starts = [i * size for i in range(count)]
    return [aten.slice.Tensor(x, dim, a, b) for a, b in zip(starts, [*starts[1:], whole], strict=True)]


@rule(aten.split_with_sizes.default, aten.split.sizes)
def split_with_sizes(x: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> TorchResult:
    """As slices: torch's own decomposition gathers elements by their positions in memory."""
    ends = list(itertools.accumulate(sizes))
    return [aten.slice.Tensor(x, dim, end - n, end) for n, end in zip(sizes, ends, strict=True)]


@rule(aten._weight_norm_interface.default)
def weight_norm_interface(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """`v` scaled to the norm `g` along all axes except `dim`, and its own norm; torch-mlir gives the norm another
    shape."""
    axes = [a for a in range(v.dim()) if dim == -1 or a != dim % v.dim()]
    norm = torch.sqrt((v * v).sum(axes, keepdim=True))
    return v * (g / norm), norm


@rule(aten._weight_norm.default)
def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """See `weight_norm_interface`."""
    return weight_norm_interface(v, g, dim)[0]


@rule(aten.nanmean.default)
def nanmean(
    x: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The sum of the elements other than NaN, divided by their number."""
    known = ~torch.isnan(x)
    dims = list(range(x.dim())) if dim is None else dim
    total = torch.where(known, x, torch.zeros((), dtype=x.dtype)).sum(dims, keepdim=keepdim, dtype=dtype)
    return total / known.sum(dims, keepdim=keepdim)


@rule(aten.hypot.default)
def hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The larger magnitude times the root of a value in 1..2, which does not overflow where the squares would."""
    a, b = torch.maximum(x, -x), torch.maximum(y, -y)
    a, b = torch.maximum(a, b), torch.minimum(a, b)
    whole = (a == 0) | torch.isinf(a)
    return a * torch.sqrt(1 + (b / torch.where(whole, torch.ones((), dtype=a.dtype), a)) ** 2)


@rule(aten.squeeze.dims)
def squeeze(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Squeeze one axis after the other, from the last."""
    for d in sorted((d % x.dim() for d in dims if x.dim()), reverse=True):
        x = aten.squeeze.dim(x, d)
    return x


@rule(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange(*bounds: float, **options: Argument) -> torch.Tensor:
    """With non-integer arguments: torch-mlir computes the elements at run time in f64, which IREE does not have."""
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    numbers = (start, end, step)
    if not all(isinstance(n, (int, float)) for n in numbers) or all(isinstance(n, int) for n in numbers):
        return NotImplemented
    count = math.ceil((end - start) / step)
    return torch.tensor([start + i * step for i in range(count)], dtype=options.get("dtype") or torch.float32)


@rule(aten.broadcast_tensors.default)
def broadcast_tensors(tensors: Sequence[torch.Tensor]) -> TorchResult:
    """Expand one tensor after the other."""
    sizes = torch.broadcast_shapes(*(x.shape for x in tensors))
    return [x.expand(sizes) for x in tensors]


@rule(aten.addcmul.default)
def add_product(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """If some operands have no axes, which torch-mlir does not convert."""
    return x + (a if value == 1 else a * value) * b if 0 in (x.dim(), a.dim(), b.dim()) else NotImplemented


@rule(aten.addcdiv.default)
def add_quotient(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """If some operands have no axes, which torch-mlir does not convert."""
    return x + (a if value == 1 else a * value) / b if 0 in (x.dim(), a.dim(), b.dim()) else NotImplemented


@rule(aten.fmax.default)
def fmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """For any two shapes; if one operand is NaN, the other."""
    return torch.where(torch.isnan(y) | (x >= y), x, y)


@rule(aten.fmin.default)
def fmin(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """For any two shapes; if one operand is NaN, the other."""
    return torch.where(torch.isnan(y) | (x <= y), x, y)


@rule(aten.heaviside.default)
def heaviside(x: torch.Tensor, at_zero: torch.Tensor) -> torch.Tensor:
    """For any two shapes."""
    return torch.where(x == 0, at_zero, (x > 0).to(x.dtype))


@rule(aten.signbit.default)
def signbit(x: torch.Tensor) -> torch.Tensor:
    """The sign of -0 is that of its reciprocal; a NaN counts as positive."""
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


@rule(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(x: torch.Tensor, sign: torch.Tensor | float) -> torch.Tensor:
    """See `signbit`."""
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return torch.where(signbit(torch.as_tensor(sign)), -x.abs(), x.abs())


@rule(aten.diff.default)
def difference(x: torch.Tensor, n: int = 1, *_: object, **__: object) -> torch.Tensor:
    """With `n = 0`: `x` itself."""
    return NotImplemented if n else x.clone()
