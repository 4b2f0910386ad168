"""A whole decoder as a program with two entry points and its caches as state.

`prefill(tokens: i32 [T]) -> f32 [V]` starts a sequence and `decode(token: i32 [1]) -> f32 [V]` continues it; both
return the logits of the last token. Each layer has a cache of keys and one of values, `[context, kv_heads, D]`. The
caches and the number of tokens that they hold are globals of the program.
"""

from __future__ import annotations

from ..checkpoint.contents import Checkpoint
from ..core.mlir import arith, context, func, ir, tensor
from ..errors import UsageError
from ..ir.build import Arg, Extent, as_index, collapse, dims, expand, index, static, tensor_type
from ..ir.checks import assert_that, outside, refuse
from ..ir.signature import NAME
from ..ir.util_globals import declare, declare_state, load_global, store_global
from .config import DecoderConfig, config_of
from .layers import attention, multiply, rms_norm, rotate
from .names import EMBEDDING, HEAD, NORM, DecoderTensors
from .program import Imported, ParameterGlobals
from .weights import Quantize, product, rows

_POSITION = "position"


def decoder(
    model: Checkpoint, *, context_length: int | None = None, quantize_activations: Quantize = False
) -> Imported:
    """The program of a checkpoint of the Llama family (`config.HF_MODELS`, `config.GGUF_ARCHITECTURES`).

    Args:
        context_length: positions that the caches hold; default: 2048, or what the model was trained on if that is
            less.
        quantize_activations: True quantises the inputs of layers as the checkpoint says
            (`QuantizedWeight.activations`), "token" those of all quantised weights to int8 with one scale per token;
            False leaves them f32.

    Raises:
        CheckpointError: another kind of model, or tensors that do not fit its configuration. UsageError: a context
            of no positions.
    """
    config = config_of(model)
    length = min(config.positions, 2048) if context_length is None else context_length
    if length < 1:
        raise UsageError(f"a context of {length} positions holds nothing")
    with context():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            builder = _Builder(
                DecoderTensors(model, config), config, length, ParameterGlobals(module), quantize_activations
            )
            builder.state()
            builder.function("prefill", None, fresh=True)
            builder.function("decode", 1, fresh=False)
        return Imported(str(module), builder.parameters.arrays)


class _Builder:
    """Emits the program at the current insertion point."""

    def __init__(
        self,
        tensors: DecoderTensors,
        config: DecoderConfig,
        length: int,
        parameters: ParameterGlobals,
        quantize: Quantize,
    ) -> None:
        self.tensors, self.config, self.length, self.parameters = tensors, config, length, parameters
        self._quantize = quantize
        self._cos, self._sin = config.rotation(length)

    # ---- state

    def _cache_type(self) -> ir.Type:
        return ir.RankedTensorType.get([self.length, self.config.kv_heads, self.config.head_size], ir.F32Type.get())

    def state(self) -> None:
        """Declare the globals that persist between calls."""
        i64 = ir.IntegerType.get_signless(64)
        declare(_POSITION, i64, ir.IntegerAttr.get(i64, 0), mutable=True)
        t = self._cache_type()
        zeros = ir.DenseElementsAttr.get_splat(t, ir.FloatAttr.get(t.element_type, 0.0))
        for layer in range(self.config.layers):
            for i, kind in enumerate("kv"):
                declare_state(f"{kind}_cache_{layer}", t, zeros, 2 * layer + i)

    def _cached(self, symbol: str, new: ir.Value, position: ir.Value, taken: Extent, end: ir.Value) -> ir.Value:
        """Write `new [T, G, D]` to a cache at `position` and return the cache up to `end`."""
        old = load_global(symbol, self._cache_type())
        sizes = [taken, *self._head_sizes()]
        dynamic, fixed = ir.ShapedType.get_dynamic_size(), static(sizes)
        written = tensor.InsertSliceOp(
            new, old, [position], [s for s in sizes if not isinstance(s, int)], [],
            [dynamic, 0, 0], fixed, [1, 1, 1],
        ).result  # fmt: skip
        store_global(symbol, written)
        kept: list[ir.Value | int] = [end, *self._head_sizes()]
        return tensor.ExtractSliceOp(
            tensor_type(kept, ir.F32Type.get()), written, [], [end], [], [0, 0, 0], static(kept), [1, 1, 1]
        ).result

    def _head_sizes(self) -> list[int]:
        return [self.config.kv_heads, self.config.head_size]

    # ---- functions

    def function(self, name: str, tokens: int | None, fresh: bool) -> None:
        """Emit `name(tokens)`; `fresh`: it starts a new sequence."""
        i32, f32 = ir.IntegerType.get_signless(32), ir.F32Type.get()
        dynamic = ir.ShapedType.get_dynamic_size()
        argument = ir.RankedTensorType.get([dynamic if tokens is None else tokens], i32)
        f = func.FuncOp(name, ir.FunctionType.get([argument], [ir.RankedTensorType.get([self.config.vocabulary], f32)]))
        said = "tokens" if tokens is None else "token"
        f.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({NAME: ir.StringAttr.get(said)})])
        with ir.InsertionPoint(f.add_entry_block()):
            i64 = ir.IntegerType.get_signless(64)
            position = index(0) if fresh else arith.index_cast(ir.IndexType.get(), load_global(_POSITION, i64))
            func.ReturnOp([self._forward(f.arguments[0], said, position, fresh)])

    def _forward(self, tokens: ir.Value, said: str, position: ir.Value, fresh: bool) -> ir.Value:
        c, p = self.config, self.parameters
        taken = dims(tokens)[0]
        end = arith.addi(position, as_index(taken))
        if not fresh:
            begun = arith.cmpi(arith.CmpIPredicate.sgt, position, index(0))
            assert_that(begun, "there is no sequence to go on with (prefill starts one)")
        self._check(tokens, said, taken, end)
        i64 = ir.IntegerType.get_signless(64)
        store_global(_POSITION, arith.index_cast(i64, end))
        cos, sin = (self._at(p.load(f"rotary.{n}", a)[0], position, taken)
                    for n, a in (("cos", self._cos), ("sin", self._sin)))  # fmt: skip
        x = rows(tokens, *self.tensors.matrix(EMBEDDING), p)
        for layer in range(c.layers):
            normed = self._norm(x, "attention_norm", layer)
            q, k, v = (self._heads(self._linear(normed, part, layer)) for part in "qkv")
            q, k = (rotate(h, cos, sin, c) for h in (q, k))
            keys, values = (self._cached(f"{kind}_cache_{layer}", new, position, taken, end)
                            for kind, new in (("k", k), ("v", v)))  # fmt: skip
            grouped = expand(q, [[taken], [c.kv_heads, c.heads // c.kv_heads], [c.head_size]])
            mixed = collapse(attention(grouped, keys, values, position), [[0], [1, 2, 3]])
            x = self._linear(mixed, "o", layer, residual=x)
            normed = self._norm(x, "mlp_norm", layer)
            x = self._linear(self._gated(normed, layer), "down", layer, residual=x)
        last = self._at(x, arith.subi(as_index(taken), index(1)), 1)
        name, weight = self.tensors.matrix(EMBEDDING if c.tied else HEAD)
        logits = product(self._norm(last, NORM), name, weight, p, quantize=self._quantize)
        return collapse(logits, [[0, 1]])

    def _check(self, tokens: ir.Value, said: str, taken: Extent, end: ir.Value) -> None:
        """Assert that the arguments are valid, before the state changes."""
        if not isinstance(taken, int):
            some = arith.cmpi(arith.CmpIPredicate.sgt, taken, index(0))
            assert_that(some, f"argument 0 ({said!r}) has no tokens")
        fits = arith.cmpi(arith.CmpIPredicate.sle, end, index(self.length))
        assert_that(fits, f"the sequence is longer than the {self.length} positions that the program's caches hold")
        refuse([Arg(tokens, (0,))], 1, lambda o: outside(o, 0, self.config.vocabulary - 1),
               f"an id of {said} (argument 0) is outside [0, {self.config.vocabulary})")  # fmt: skip

    # ---- pieces

    def _at(self, table: ir.Value, start: ir.Value, size: Extent) -> ir.Value:
        """Rows `start .. start + size` of a matrix."""
        sizes = [size, table.type.get_dim_size(1)]
        dynamic = ir.ShapedType.get_dynamic_size()
        return tensor.ExtractSliceOp(
            tensor_type(sizes, ir.F32Type.get()), table, [start], [s for s in sizes if not isinstance(s, int)], [],
            [dynamic, 0], static(sizes), [1, 1],
        ).result  # fmt: skip

    def _norm(self, x: ir.Value, part: str, layer: int = 0) -> ir.Value:
        name, weight = self.tensors.norm(part, layer)
        return rms_norm(x, self.parameters.load(name, weight)[0], self.config.epsilon)

    def _linear(
        self, x: ir.Value, part: str, layer: int, *, residual: ir.Value | None = None, activation: str = "none"
    ) -> ir.Value:
        name, weight = self.tensors.matrix(part, layer)
        bias = self.tensors.bias(part, layer)
        return product(x, name, weight, self.parameters, bias=bias, residual=residual, activation=activation,
                       quantize=self._quantize)  # fmt: skip

    def _gated(self, x: ir.Value, layer: int) -> ir.Value:
        """`silu(gate) * up`; one product if both weights can be joined."""
        both = self.tensors.gate_up(layer)
        if both is not None:
            return product(x, *both, self.parameters, activation="swiglu", quantize=self._quantize)
        return multiply(self._linear(x, "gate", layer, activation="silu"), self._linear(x, "up", layer))

    def _heads(self, x: ir.Value) -> ir.Value:
        """`[T, H * D]` -> `[T, H, D]`."""
        heads = x.type.get_dim_size(1) // self.config.head_size
        return expand(x, [[dims(x)[0]], [heads, self.config.head_size]])
