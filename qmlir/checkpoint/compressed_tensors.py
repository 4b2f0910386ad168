"""The schemes of compressed-tensors, in its own terms: formats, strategies, and the fields of a quantisation.

| format | tensors of a layer | real weight |
|---|---|---|
| int-quantized, float-quantized, naive-quantized | weight [N, K], weight_scale, weight_zero_point | `(q - z) * s` |
| pack-quantized | weight_packed (i32 [N, ceil(K * bits / 32)]), weight_scale, weight_shape, weight_zero_point, weight_g_idx | `(q - 2^(bits-1) - z) * s` |
| nvfp4-pack-quantized | weight_packed (u8 [N, K/2]), weight_scale (e4m3 [N, K/16]), weight_global_scale | `q * s / g` |
| mxfp4-pack-quantized | weight_packed, weight_scale (u8 [N, K/32], exponents) | `q * 2^(s - 127)` |

Source: the package compressed-tensors 0.20, `quantization/quant_args.py` and `compressors/`.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..dialect.dtypes import DTYPES, Array
from ..dialect.packing import pack
from ..errors import CheckpointError
from .config import check_fields, choice, group_size_of
from .parts import FLOATS, nibbles, part
from .scheme import TensorMap
from .value import Activations, QuantizedWeight, even_groups, group_order

FORMATS = ("dense", "int-quantized", "float-quantized", "naive-quantized", "pack-quantized", "nvfp4-pack-quantized",
           "mxfp4-pack-quantized", "mixed-precision")  # fmt: skip
STRATEGIES = ("tensor", "channel", "group", "block", "token", "tensor_group")
_CONFIG = ("quant_method", "config_groups", "format", "ignore", "quantization_status", "global_compression_ratio",
           "kv_cache_scheme", "version", "sparsity_config", "transform_config", "moe_sparsity_config")  # fmt: skip
_GROUP = ("targets", "weights", "input_activations", "output_activations", "format")
_ARGS = ("num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic", "actorder",
         "scale_dtype", "zp_dtype", "observer", "observer_kwargs")  # fmt: skip


def scheme(config: Mapping[str, object], where: str) -> CompressedTensors:
    """The scheme of a configuration. Raises CheckpointError for unknown fields and values."""
    check_fields(config, _CONFIG, where)
    shared = choice(config, "format", FORMATS, where, "dense")
    for name in ("transform_config", "moe_sparsity_config"):
        if config.get(name):
            raise CheckpointError(f"{where}: {name}, which changes what a layer computes, is not known")
    sparsity = config.get("sparsity_config") or {}
    if not isinstance(sparsity, dict) or sparsity.get("format", "dense") != "dense":
        raise CheckpointError(f"{where}: sparsity_config is {sparsity!r}; known: none, or format 'dense'")
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise CheckpointError(f"{where}: config_groups is {groups!r}; it must name at least one group of layers")
    made = tuple(_group(said, shared, f"{where}, {name}") for name, said in groups.items())
    return CompressedTensors(made, where)


@dataclass(frozen=True)
class Args:
    """How one tensor is quantised: a `QuantizationArgs` of compressed-tensors."""

    num_bits: int
    type: str
    symmetric: bool
    strategy: str
    group_size: int | None
    block: tuple[int, int] | None
    dynamic: bool


@dataclass(frozen=True)
class Group:
    """Layers that are quantised in the same way."""

    targets: tuple[str, ...]
    weights: Args
    inputs: Args | None
    format: str


def _group(said: object, shared: str, where: str) -> Group:
    if not isinstance(said, dict):
        raise CheckpointError(f"{where} is {said!r}; presets by name are not known, write the scheme out")
    check_fields(said, _GROUP, where)
    targets = said.get("targets")
    if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
        raise CheckpointError(f"{where}: targets is {targets!r}, which must be a list of names")
    if said.get("output_activations") is not None:
        raise CheckpointError(f"{where}: output_activations is not known")
    weights = _args(said.get("weights"), f"{where}, weights")
    if weights is None:
        raise CheckpointError(f"{where} has no weights")
    inputs = _args(said.get("input_activations"), f"{where}, input_activations")
    return Group(
        tuple(targets), weights, inputs, choice({"format": said.get("format") or shared}, "format", FORMATS, where)
    )


def _args(said: object, where: str) -> Args | None:
    if said is None:
        return None
    if not isinstance(said, dict):
        raise CheckpointError(f"{where} is not a JSON object")
    check_fields(said, _ARGS, where)
    kind = choice(said, "type", ("int", "float"), where, "int")
    bits = choice(said, "num_bits", (2, 4, 8) if kind == "int" else (4, 8), where, 8)
    size, block = said.get("group_size"), said.get("block_structure")
    if size is not None:
        size = group_size_of(said, "group_size", where)
    guess = "tensor" if size is None else "channel" if size == -1 else "group"
    strategy = choice({"strategy": said.get("strategy") or guess}, "strategy", STRATEGIES, where)
    if (strategy == "block") != (block is not None):
        raise CheckpointError(f"{where}: strategy 'block' and block_structure go together")
    if block is not None and not (isinstance(block, list) and len(block) == 2
                                  and all(type(b) is int and b > 0 for b in block)):  # fmt: skip
        raise CheckpointError(f"{where}: block_structure is {block!r}, which must be two positive integers")
    if strategy in ("group", "tensor_group") and (size is None or size == -1):
        raise CheckpointError(f"{where}: strategy {strategy!r} needs a group_size")
    dynamic = choice(said, "dynamic", (True, False, "local"), where, False)
    symmetric = choice(said, "symmetric", (True, False), where, True)
    return Args(bits, kind, symmetric, strategy, size, None if block is None else tuple(block), bool(dynamic))


@dataclass(frozen=True)
class CompressedTensors:
    groups: tuple[Group, ...]
    where: str

    def layers(self, tensors: TensorMap) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name in tensors:
            layer, dot, last = name.rpartition(".")
            if dot and last == "weight_scale":
                found[f"{layer}.weight"] = tuple(n for n in _names(layer) if n in tensors)
        if not found and any(g.format != "dense" for g in self.groups):
            raise CheckpointError("the configuration says compressed-tensors, but no tensor is called *.weight_scale")
        return found

    def weight(self, name: str, tensors: TensorMap) -> QuantizedWeight:
        layer = name.removesuffix(".weight")
        group = self._group_of(layer)
        read = _READERS.get(group.format)
        if read is None:
            raise CheckpointError(
                f"tensor {layer + '.weight_scale'!r} belongs to a quantised layer, but the configuration gives it the "
                f"format {group.format!r}"
            )
        return read(name, layer, group, tensors, _activations(group.inputs, layer, tensors))

    def _group_of(self, layer: str) -> Group:
        """The group whose targets match a layer: by its name, else by a pattern, else by its class (always Linear)."""

        def pattern(target: str) -> bool:
            return target.startswith("re:") and _matches(target[3:], layer, self.where)

        ways: tuple[Callable[[str], bool], ...] = (lambda t: t == layer, pattern, lambda t: t == "Linear")
        for fits in ways:
            for group in self.groups:
                if any(fits(t) for t in group.targets):
                    return group
        raise CheckpointError(f"{self.where}: no group has {layer!r} among its targets, but its weight is quantised")


def _matches(pattern: str, layer: str, where: str) -> bool:
    try:
        return re.match(pattern, layer) is not None
    except re.error:
        raise CheckpointError(f"{where}: the target {pattern!r} is not a pattern") from None


def _names(layer: str) -> tuple[str, ...]:
    ends = ("weight", "weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx",
            "weight_global_scale", "input_scale", "input_zero_point", "input_global_scale")  # fmt: skip
    return tuple(f"{layer}.{end}" for end in ends)


def _activations(args: Args | None, layer: str, tensors: TensorMap) -> Activations | None:
    if args is None:
        return None
    dtype = {("int", 8): "i8", ("int", 4): "i4", ("int", 2): "i2", ("float", 8): "e4m3",
             ("float", 4): "e2m1"}[args.type, args.num_bits]  # fmt: skip
    granularity = {"tensor": "tensor", "token": "token", "group": "group", "tensor_group": "group"}.get(args.strategy)
    if granularity is None:
        raise CheckpointError(f"layer {layer!r}: strategy {args.strategy!r} is for weights, not for its input")
    scale = zero = None
    if not args.dynamic:
        scale = _one(tensors, f"{layer}.input_scale", FLOATS).astype(np.float32)
        if not args.symmetric:
            zero = _one(tensors, f"{layer}.input_zero_point", ("i8", "i32", "i64")).astype(np.int32)
    return Activations(dtype, granularity, args.dynamic, args.symmetric, args.group_size, scale, zero)


def _one(tensors: TensorMap, name: str, dtypes: tuple[str, ...]) -> Array:
    found = part(tensors, name, dtypes)
    if found.size != 1:
        raise CheckpointError(f"tensor {name!r} has shape {list(found.shape)}, but must be one number")
    return found.reshape(())


def _scale_shape(args: Args, n: int, k: int, name: str) -> tuple[int, int]:
    """Rows and columns of the scales."""
    if args.strategy == "block" and args.block is not None:
        return -(-n // args.block[0]), -(-k // args.block[1])
    size = args.group_size
    if args.strategy in ("group", "tensor_group") and size is not None:
        return n, -(-k // size)
    if args.strategy == "channel":
        return n, 1
    if args.strategy == "tensor":
        return 1, 1
    raise CheckpointError(f"tensor {name!r}: strategy {args.strategy!r} is for activations, not for weights")


def _spread(array: Array, args: Args, n: int, k: int) -> Array:
    """Expand the scales of blocks whose last one is cut off to those of smaller blocks that divide the weight."""
    if args.strategy == "block" and args.block is not None:
        return even_groups(even_groups(array, n, args.block[0], axis=0), k, args.block[1])
    return even_groups(array, k, args.group_size) if args.group_size not in (None, -1) else array


def _scale(layer: str, args: Args, tensors: TensorMap, n: int, k: int) -> Array:
    name = f"{layer}.weight_scale"
    shape = _scale_shape(args, n, k, name)
    found = part(tensors, name, FLOATS)
    if found.size == 1 and shape == (1, 1):
        return found.reshape(1, 1)
    return part(tensors, name, FLOATS, shape)


def _naive(name: str, layer: str, group: Group, tensors: TensorMap, activations: Activations | None) -> QuantizedWeight:
    args = group.weights
    stored = "i8" if args.type == "int" else "e4m3"
    if args.type == "float" and args.num_bits != 8:
        raise CheckpointError(f"tensor {name!r}: format {group.format!r} of {args.num_bits}-bit floats is not known")
    codes = part(tensors, name, (stored,), (None, None))
    n, k = codes.shape
    scale, zero = _scale(layer, args, tensors, n, k), None
    if not args.symmetric:
        zero = part(tensors, f"{layer}.weight_zero_point", ("i8", "i32", "i64"))
        if zero.size != scale.size:
            shape = list(zero.shape)
            raise CheckpointError(
                f"tensor {layer + '.weight_zero_point'!r} has shape {shape}, but its scale has {list(scale.shape)}"
            )
        zero = _spread(zero.reshape(scale.shape).astype(np.int32), args, n, k)
    dtype = f"i{args.num_bits}" if args.type == "int" else "e4m3"
    if args.type == "int" and args.num_bits < 8 and codes.size:
        lo, hi = DTYPES[dtype].lo, DTYPES[dtype].hi
        if codes.min() < lo or codes.max() > hi:
            raise CheckpointError(f"tensor {name!r} has codes outside [{lo}, {hi}], but the configuration says "
                                  f"{args.num_bits} bits")  # fmt: skip
    return QuantizedWeight(name, (n, k), codes, _spread(scale, args, n, k), dtype, zero,
                           "none" if zero is None else "int", activations=activations)  # fmt: skip


def _pack_quantized(
    name: str, layer: str, group: Group, tensors: TensorMap, activations: Activations | None
) -> QuantizedWeight:
    args, bits = group.weights, group.weights.num_bits
    if args.type != "int":
        raise CheckpointError(
            f"tensor {name!r}: format 'pack-quantized' holds integers, but the configuration says float"
        )
    said = part(tensors, f"{layer}.weight_shape", ("i64", "i32"), (2,))
    n, k = int(said[0]), int(said[1])
    if not (0 < n < 2**40 and 0 < k < 2**40):
        raise CheckpointError(f"tensor {layer + '.weight_shape'!r} says [{n}, {k}], which is not a shape")
    words = part(tensors, f"{layer}.weight_packed", ("i32",), (n, -(-k * bits // 32)))
    scale = _scale(layer, args, tensors, n, k)
    middle = 1 << (bits - 1)
    order = None
    if f"{layer}.weight_g_idx" in tensors and args.group_size not in (None, -1):
        index = part(tensors, f"{layer}.weight_g_idx", ("i32", "i64"), (k,))
        try:
            order = group_order(index, scale.shape[1], args.group_size)
        except ValueError as e:
            raise CheckpointError(f"tensor {layer + '.weight_g_idx'!r} {e}") from None
    raw = np.ascontiguousarray(words).view(np.uint8)[:, : -(-k * bits // 8)]
    if order is not None:
        raw = pack(nibbles(words, bits)[:, order], f"u{bits}", "low_first")
    # The two's complement code of q - 2^(bits-1) is q with its top bit flipped.
    codes = raw ^ np.uint8(sum(middle << shift for shift in range(0, 8, bits)))
    zero = _packed_zero(layer, args, tensors, scale)
    return QuantizedWeight(
        name, (n, k), codes.view(np.int8) if bits == 8 else codes, _spread(scale, args, n, k), f"i{bits}",
        None if zero is None else _spread(zero, args, n, k), "none" if zero is None else "int",
        "none" if bits == 8 else "low_first", order=order, activations=activations,
    )  # fmt: skip


def _packed_zero(layer: str, args: Args, tensors: TensorMap, scale: Array) -> Array | None:
    """Zero points, packed along N, or one per byte, as older versions wrote them."""
    if args.symmetric:
        return None
    name, (n, groups) = f"{layer}.weight_zero_point", scale.shape
    found = part(tensors, name, ("i32", "i8"))
    if found.dtype == np.int8:
        return part(tensors, name, ("i8",), (n, groups)).astype(np.int32)
    words = part(tensors, name, ("i32",), (-(-n * args.num_bits // 32), groups))
    return (nibbles(words.T, args.num_bits)[:, :n].T.astype(np.int32)) - (1 << (args.num_bits - 1))


def _fp4(name: str, layer: str, group: Group, tensors: TensorMap, activations: Activations | None) -> QuantizedWeight:
    args, mx = group.weights, group.format == "mxfp4-pack-quantized"
    size = 32 if mx else 16
    if (args.type, args.num_bits, args.group_size) != ("float", 4, size):
        raise CheckpointError(f"tensor {name!r}: format {group.format!r} is 4-bit floats in groups of {size}")
    codes = part(tensors, f"{layer}.weight_packed", ("u8",), (None, None))
    n, k = codes.shape[0], codes.shape[1] * 2
    shape = (n, -(-k // size))
    if mx:
        exponents = part(tensors, f"{layer}.weight_scale", ("u8", "e8m0"), shape)
        scale = np.ascontiguousarray(exponents).view(DTYPES["e8m0"].numpy)
        overall = None
    else:
        scale = part(tensors, f"{layer}.weight_scale", ("e4m3",), shape)
        stored = part(tensors, f"{layer}.weight_global_scale", ("f32",)).reshape(-1)
        if stored.size != 1 or not np.isfinite(stored[0]) or stored[0] == 0:
            raise CheckpointError(f"tensor {layer + '.weight_global_scale'!r} must be one finite number other than 0")
        overall = (np.float32(1) / stored[0]).astype(np.float32).reshape(())
    scale = even_groups(scale, k, size)
    return QuantizedWeight(name, (n, k), codes, scale, "e2m1", packing="low_first", global_scale=overall,
                           activations=activations)  # fmt: skip


_READERS = {
    "int-quantized": _naive, "float-quantized": _naive, "naive-quantized": _naive, "pack-quantized": _pack_quantized,
    "nvfp4-pack-quantized": _fp4, "mxfp4-pack-quantized": _fp4,
}  # fmt: skip
