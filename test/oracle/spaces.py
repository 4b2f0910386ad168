"""The parameters of every operation, from its definition, and the rules for which values may be combined.

A parameter is an attribute with its values (those of an `Enum` or a bool come from the op's fields, so that a new value
is covered without a change here) or a choice of how an optional operand is given. `rows` is a covering array: every
legal pair of values of two parameters is in one row.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qmlir.dialect import ops as _ops  # noqa: F401  (defines the dialect)
from qmlir.dialect.dtypes import DTYPES
from qmlir.dialect.enums import SYMMETRIC_RECIPES
from qmlir.dialect.ods import BOOL, OPS, Enum

from .values import is_integer

Row = Mapping[str, Any]
PLAIN = ("f32", "f16", "bf16")
FORMS = ("none", "tensor", "channel", "group", "k_group")

# How operands may be given, and values for attributes that are not enumerations.
PRODUCT: dict[str, Sequence[Any]] = {
    "lhs_scale": FORMS,
    "rhs_scale": FORMS,
    "lhs_zero_point": FORMS,
    "rhs_zero_point": FORMS,
    "zero_type": ("i32", "code"),
    "scale_type": ("f32", "f16", "bf16", "e8m0", "e4m3"),
    "bias": ("none", "row", "one", "full"),
    "bias_type": PLAIN,
    "c": ("none", "row", "full"),
    "act_scale": ("none", "tensor", "channel"),
    "requantise": ("none", "out_scale", "out_multiplier"),
    "requantise_form": ("tensor", "channel", "token"),
    "out_zero_point": ("none", "tensor", "channel"),
    "global_scale": ("none", "lhs", "rhs", "both"),
    "alpha": (1.0, 0.5, -1.3),
    "clamp": (None, (-100, 90), (3, 60)),
}
# Fields without a parameter of their own: operands that a parameter above gives, attributes that the fold pass writes.
IMPLIED = {"lhs", "rhs", "input", "weight", "values", "indices", "indptr", "codebook", "out_scale", "beta",
           "out_multiplier", "act_clamp", "lhs_global_scale", "rhs_global_scale", "zero_point", "scale", "logits",
           "expert_ids", "w1", "w2", "rhs_shape", "block", "group_size"}  # fmt: skip

_CONV = {"strides": ((1, 1), (2, 1)), "dilations": ((1, 1), (1, 2)), "padding": ((0, 0, 0, 0), (1, 0, 2, 1)),
         "groups": (1, 2), "output_padding": ((0, 0), (1, 0))}  # fmt: skip
EXTRA: dict[str, dict[str, Sequence[Any]]] = {
    "scaled_matmul": {**PRODUCT, "batch": ("none", "both", "lhs", "rhs")},
    "conv2d_q": {**PRODUCT, **_CONV, "lhs_scale": FORMS[:2], "rhs_scale": FORMS[:3], "lhs_zero_point": FORMS[:2],
                 "rhs_zero_point": FORMS[:3]},
    "grouped_matmul": {**PRODUCT, "group_sizes": ("sizes", "ids", "ids_rows"), "routing_weights": ("none", "given")},
    "sparse_matmul": {**PRODUCT, "rhs_zero_point": ("none",), "batch": ("none", "lhs")},
    "dequant": {"scale_form": FORMS[1:], "zero_form": FORMS, "scale_type": PRODUCT["scale_type"],
                "zero_type": ("i32", "code"), "out_dtype": PLAIN},
    "quantize": {"scale_form": FORMS[1:], "zero_form": FORMS, "scale_type": ("f32", "f16", "bf16"), "input_type": PLAIN,
                 "zero_range": ("inside", "outside"), "clamp": (None, "narrow"), "special": (False, True)},
    "dynamic_quantize": {"input_type": PLAIN, "clamp": (None, "narrow"), "eps": (0.0, 0.25),
                         "contents": ("normal", "positive", "negative", "zero", "tiny", "large")},
    "unpack": {"length": ("whole", "odd")},
    "route": {"topk": (1, 2, 5), "contents": ("normal", "ties", "nan"), "input_type": PLAIN},
    "moe_align_block_size": {"experts": (1, 3, 7), "block_size": (1, 4, 16), "tokens": (0, 1, 9),
                             "ids": ("valid", "invalid")},
    "moe": {"input_scale": ("none", "tensor", "token"), "input_zero_point": ("none", "tensor"),
            "w1_scale": ("none", "tensor", "channel"), "w2_scale": ("none", "tensor", "channel"),
            "w1_zero_point": ("none", "tensor", "channel"), "w2_zero_point": ("none", "tensor", "channel"),
            "w1_bias": ("none", "row", "group"), "w2_bias": ("none", "row", "group"),
            "intermediate_scale": ("none", "given"), "intermediate_zero_point": ("none", "given"),
            "rows": ("token", "slot"), "routing_weights": ("given",)},
}  # fmt: skip


def fields(op: str) -> dict[str, Any]:
    """An op's fields by role, or by name if they have none: a convolution's then have the names of a product's."""
    return {f.role or f.name: f for f in OPS[f"qmlir.{op}"].FIELDS}


def parameters(op: str) -> dict[str, list[Any]]:
    """Every parameter with its values. Those with the most values come first: the covering array is smallest then."""
    every: dict[str, list[Any]] = {k: list(v) for k, v in EXTRA[op].items()}
    for name, field in fields(op).items():
        if field.kind != "attr" or name in every or name in IMPLIED:
            continue
        if isinstance(field.attribute, Enum):
            optional = field.optional and field.default is None and name == "compute_dtype"
            every[name] = [None, *field.attribute.values] if optional else list(field.attribute.values)
        elif field.attribute is BOOL:
            every[name] = [False, True]
    first = ["lhs_dtype", "rhs_dtype", "weight_dtype", "input_dtype", "dtype", "out_dtype", "recipe"]
    # Parameters that many rules name come first, so that a row that cannot be completed is noticed early.
    return {n: every[n] for n in sorted(every, key=lambda n: (n not in first, -len(every[n])))}


def uncovered(op: str) -> list[str]:
    """The fields that no parameter covers."""
    covered = {*parameters(op), *IMPLIED}
    return [name for name, f in fields(op).items() if f.kind != "result" and name not in covered]


# ---------------------------------------------------------------------------------------------------- rules


@dataclass(frozen=True)
class Rule:
    """A condition, `holds`, that the values of the named parameters must satisfy."""

    names: tuple[str, ...]
    holds: Callable[..., bool]


def rule(names: str, holds: Callable[..., bool]) -> Rule:
    return Rule(tuple(names.split()), holds)


def _bits(dtype: str) -> int:
    return DTYPES[dtype].bits


def _unsigned(dtype: str) -> bool:
    return is_integer(dtype) and dtype[0] == "u"


def _zero(mode: str, form: str) -> bool:
    """Whether there is a zero point if the mode needs one, and none if the mode has none."""
    return form == "none" if mode == "none" else form != "none" or mode.startswith("offset")


def _plain(dtype: str, scale: str) -> bool:
    return dtype in PLAIN and scale == "none"


def _along_k(form: str) -> bool:
    return form in ("group", "k_group")


def _value_rules(side: str, dtype: str, mode: str, scale: str, zero: str) -> list[Rule]:
    return [
        rule(f"{dtype} {mode}", lambda d, m: m == "none" or (is_integer(d) and (m[:6] != "offset" or _unsigned(d)))),
        rule(f"{mode} {zero}", _zero),
        rule(f"{mode} {zero} zero_type", lambda m, z, t: t == "i32" or m in ("int", "offset_int")),
        rule(f"{zero} zero_type", lambda z, t: t == "i32" or z != "none" or side == "lhs"),
    ]


_INTEGER = "lhs_dtype rhs_dtype"
_GROUPS = "lhs_scale rhs_scale lhs_zero_point rhs_zero_point"


def _both(a: str, b: str) -> bool:
    return is_integer(a) and is_integer(b)


PRODUCT_RULES = [
    rule("lhs_dtype", lambda d: d != "codebook"),
    rule("rhs_dtype rhs_packing", lambda d, p: p == "none" or _bits(d) < 8),
    *_value_rules("lhs", "lhs_dtype", "lhs_zero_mode", "lhs_scale", "lhs_zero_point"),
    *_value_rules("rhs", "rhs_dtype", "rhs_zero_mode", "rhs_scale", "rhs_zero_point"),
    rule("rhs_zero_mode rhs_packing", lambda m, p: m != "packed_int" or p != "none"),
    rule("rhs_zero_mode rhs_scale", lambda m, s: m != "packed_int" or s not in ("none", "tensor")),
    rule("rhs_zero_mode rhs_zero_point rhs_scale", lambda m, z, s: m != "packed_int" or z == s),
    rule("rhs_zero_mode rhs_packing rhs_zero_point rhs_transposed",
         lambda m, p, z, t: m != "packed_int" or p != "interleaved"
         or (z in ("channel", "group") and not t)),  # whole words
    rule("compute_dtype lhs_dtype lhs_scale rhs_dtype rhs_scale",
         lambda c, a, sa, b, sb: c is None or _plain(a, sa) or _plain(b, sb)),
    rule("out_dtype lhs_dtype rhs_dtype", lambda o, a, b: o != "i32" or _both(a, b)),
    *[rule(f"out_dtype {n}", lambda o, v: o != "i32" or v in ("none", 1.0))
      for n in ("lhs_scale", "rhs_scale", "c", "act_scale", "activation", "alpha", "global_scale")],
    *[rule(f"out_dtype {n}", lambda o, form: o != "i32" or not _along_k(form))
      for n in ("lhs_zero_point", "rhs_zero_point")],
    rule("out_dtype rhs_zero_mode", lambda o, m: o != "i32" or m not in ("offset_float", "rescale")),
    rule("out_dtype requantise", lambda o, r: r == "none" or o in ("i8", "u8")),
    rule("out_dtype out_zero_point", lambda o, r: r == "none" or o in ("i8", "u8")),
    rule("out_dtype clamp", lambda o, c: c is None or o == "i8" or (o == "u8" and c[0] >= 0)),
    rule("bias bias_stage", lambda b, s: b != "none" or s == "scaled"),
    rule("bias bias_stage out_dtype", lambda b, s, o: b == "none" or s != "scaled" or o != "i32"),
    rule("bias bias_stage out_dtype ", lambda b, s, o: b == "none" or s != "out" or o not in ("i8", "u8")),
    rule(f"bias_stage {_INTEGER}", lambda s, a, b: s != "acc" or _both(a, b)),
    *[rule(f"bias_stage {n}", lambda s, form: s != "acc" or not _along_k(form)) for n in _GROUPS.split()],
]  # fmt: skip

RULES: dict[str, list[Rule]] = {
    "scaled_matmul": PRODUCT_RULES,
    "conv2d_q": [
        *(r for r in PRODUCT_RULES if "rhs_transposed" not in r.names),
        rule("rhs_zero_mode", lambda m: m not in ("offset_float", "rescale", "packed_int")),
        rule("rhs_packing weight_layout", lambda p, layout: p == "none" or layout == "FHWC"),
        rule("output_padding transposed", lambda p, t: t or p == (0, 0)),
        rule("output_padding strides dilations",
             lambda p, s, d: all(x < max(y, z) for x, y, z in zip(p, s, d, strict=True))),
        rule("lhs_dtype rhs_dtype", lambda a, b: True),
    ],
    "grouped_matmul": [
        *PRODUCT_RULES,
        rule("group_sizes routing_weights", lambda g, w: w == "none" or g != "sizes"),
        rule("group_sizes skip_invalid", lambda g, s: not s or g != "sizes"),
        rule("routing_weights out_dtype", lambda w, o: w == "none" or o in PLAIN),
        rule("group_sizes bias", lambda g, b: b != "full" or g == "sizes" or True),
    ],
    "sparse_matmul": [
        *PRODUCT_RULES,
        rule("rhs_zero_mode", lambda m: m == "none"),
        rule("rhs_dtype", lambda d: d not in ("nf4", "codebook")),
        rule("format rhs_transposed", lambda f, t: f != "2:4" or t),
        rule("format rhs_packing", lambda f, p: p != "interleaved" or f not in ("bsr", "2:4")),  # whole words
    ],
    "dequant": [
        rule("dtype packing", lambda d, p: p == "none" or _bits(d) < 8),
        *_value_rules("", "dtype", "zero_mode", "scale_form", "zero_form"),
        rule("zero_mode packing", lambda m, p: m != "packed_int" or p != "none"),
        rule("zero_mode zero_form scale_form", lambda m, z, s: m != "packed_int" or (z == s and s != "tensor")),
        rule("zero_mode packing", lambda m, p: m != "packed_int" or p != "interleaved"),  # whole words
    ],
    "quantize": [rule("zero_form zero_range", lambda z, r: z != "none" or r == "inside")],
    "dynamic_quantize": [
        rule("recipe symmetric",
             lambda r, s: s if r in SYMMETRIC_RECIPES else not s if r in ("onnx", "fbgemm") else True),
        rule("recipe eps", lambda r, e: e == 0 or r == "torchao"),
        rule("out_dtype symmetric", lambda o, s: s or is_integer(o)),
        rule("out_dtype clamp", lambda o, c: c is None or is_integer(o)),
        rule("out_dtype rounding", lambda o, r: r == "half_even" or is_integer(o)),
    ],
    "unpack": [rule("packing length", lambda p, n: p != "interleaved" or n == "whole")],
    "route": [],
    "moe_align_block_size": [rule("ids skip_invalid", lambda i, s: i == "valid" or s)],
    "moe": [
        rule("weight_dtype weight_packing", lambda d, p: p == "none" or _bits(d) < 8),
        rule("weight_dtype weight_zero_mode",
             lambda d, m: m == "none" or (is_integer(d) and (m[:6] != "offset" or _unsigned(d)))),
        rule("weight_zero_mode w1_zero_point w2_zero_point",
             lambda m, a, b: (a == b == "none") if m == "none" else m[:6] == "offset" or a != "none" or b != "none"),
        rule("weight_zero_mode weight_packing", lambda m, p: m != "packed_int"),
        *[rule(f"input_dtype {n}", lambda d, v: v in (None, "none") or is_integer(d))
          for n in ("input_zero_mode", "input_zero_point")],
        rule("input_zero_mode input_zero_point", _zero),
        rule("compute_dtype input_dtype input_scale intermediate_dtype",
             lambda c, d, s, i: c is None or (_plain(d, s) and i in PLAIN)),
        *[rule(f"intermediate_dtype {n}", lambda d, v: v == "none" or d in ("i8", "u8"))
          for n in ("intermediate_scale", "intermediate_zero_point")],
        rule("intermediate_scale intermediate_zero_point", lambda s, z: z == "none" or s != "none"),
        rule("recipe intermediate_dtype intermediate_scale",
             lambda r, d, s: r not in SYMMETRIC_RECIPES or d != "u8" or s != "none"),
    ],
}  # fmt: skip


class _Search:
    """A search for rows that satisfy the rules. Deterministic for a seed."""

    def __init__(self, op: str, seed: int) -> None:
        self.space = parameters(op)
        self.names = list(self.space)
        self.rng = random.Random(seed)
        self.rules: dict[str, list[Rule]] = {name: [] for name in self.names}
        for r in RULES[op]:
            for name in r.names:
                self.rules[name].append(r)
        self.covered: set[tuple[str, str]] = set()

    def legal(self, row: Row, name: str) -> bool:
        """Whether the rules that name a parameter hold, except those that name parameters not yet in the row."""
        return all(r.holds(*(row[n] for n in r.names)) for r in self.rules[name] if all(n in row for n in r.names))

    def key(self, name: str, value: Any) -> str:
        return f"{name}={value}"

    def complete(self, start: Row, greedy: bool) -> dict[str, Any] | None:
        """Complete the row `start` with values that add most new pairs (random ones if not `greedy`); None if stuck."""
        row = dict(start)
        if not all(self.legal(row, name) for name in start):
            return None
        for name in self.names:
            if name in row:
                continue
            choices = [v for v in self.space[name] if self.legal({**row, name: v}, name)]
            if not choices:
                return None
            self.rng.shuffle(choices)
            row[name] = max(choices, key=lambda v: self.gain(row, name, v)) if greedy else choices[0]
        return row

    def gain(self, row: Row, name: str, value: Any) -> int:
        mine = self.key(name, value)
        return sum((mine, self.key(n, v)) not in self.covered for n, v in row.items())

    def add(self, row: Row) -> None:
        keys = [self.key(n, row[n]) for n in self.names]
        self.covered.update((a, b) for a in keys for b in keys if a != b)


def rows(op: str) -> Iterator[dict[str, Any]]:
    """The covering array: for each legal pair that no row has yet, a row that has it and as many other new pairs as a
    greedy choice finds (Cohen et al. 1997, "The AETG system"). The existing package, allpairspy, stops at the first row
    without a new pair, which rules make likely, and takes minutes until then."""
    search = _Search(op, 0)
    for first, second in itertools.combinations(search.names, 2):
        for x, y in itertools.product(search.space[first], search.space[second]):
            if (search.key(first, x), search.key(second, y)) in search.covered:
                continue
            for attempt in range(8):
                row = search.complete({first: x, second: y}, greedy=attempt < 2)
                if row is not None:
                    search.add(row)
                    yield row
                    break


def more(op: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Random legal rows."""
    search, made = _Search(op, seed), 0
    while made < count:
        row = search.complete({}, greedy=False)
        if row is not None:
            made += 1
            yield row
