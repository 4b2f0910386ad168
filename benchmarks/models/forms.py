"""The formats that users have of a model: the source to compile, its arguments, and the peer that runs it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .architectures import Architecture

Array = Any


@dataclass(frozen=True)
class Case:
    """One model in one format. qmlir compiles `source`; `peer` computes the results to compare with, and its time is
    compared with qmlir's. If `module` is set it is called instead of a compiled program, for torch.compile."""

    source: Any
    arguments: Sequence[Array]
    peer: Callable[[], Sequence[Array]]
    peer_name: str
    module: Any = None


@dataclass(frozen=True)
class Form:
    """`make` converts a module and its arguments into this format. `near` is the tolerance of the results, as a share
    of the peer's largest value."""

    name: str
    make: Callable[[Any, tuple[Any, ...], Architecture, bool], Case]
    near: float
    quantised: bool = False


FORMS: dict[str, Form] = {}
F32, CODES = 1e-5, 0.1  # f32 in another order of summation; one code that differs changes all later values
BF16 = 0.05


def _form(name: str, near: float, quantised: bool = False) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        FORMS[name] = Form(name, make, near, quantised)
        return make

    return add


def arrays(found: Any) -> list[Array]:
    """The tensors of a result as arrays, bf16 as f32."""
    return [np.asarray(t.detach().float() if isinstance(t, torch.Tensor) and t.is_floating_point() else t)
            for t in (found if isinstance(found, (tuple, list)) else (found,))]  # fmt: skip


def _eager(model: Any, args: tuple[Any, ...]) -> Callable[[], Sequence[Array]]:
    def run() -> Sequence[Array]:
        with torch.no_grad():
            return arrays(model(*args))

    return run


def exported(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Any:
    """The program that `torch.export` makes."""
    with torch.no_grad():
        return torch.export.export(model, args, dynamic_shapes=_dynamic(args, architecture) if dynamic else None)


def _dynamic(args: tuple[Any, ...], architecture: Architecture) -> Any:
    auto = torch.export.Dim.AUTO
    sizes = tuple(dict.fromkeys(architecture.dynamic.get(i, {}), auto) for i in range(len(args)))
    # `Outputs.forward` takes its arguments as one `*args`.
    return (sizes,) if type(args) is tuple and architecture.library == "transformers" else sizes


def _torch(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
    return Case(exported(model, args, architecture, dynamic), args, _eager(model, args), "eager torch")


_form("torch", F32)(_torch)


@_form("torch bf16", BF16, quantised=True)
def _bf16(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
    model = model.to(torch.bfloat16)
    args = tuple(a.to(torch.bfloat16) if a.is_floating_point() else a for a in args)
    return _torch(model, args, architecture, dynamic)


@_form("torch.compile", F32)
def _compiled(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
    module = torch.compile(model, backend="qmlir", options={"strict": True}, dynamic=dynamic)
    return Case(None, args, _eager(model, args), "eager torch", module)


def _torchao(name: str, config: Callable[[], Any], near: float = CODES) -> None:
    def make(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
        from torchao.quantization import quantize_

        made = config()
        group = getattr(made, "group_size", None) or getattr(getattr(made, "granularity", None), "group_size", None)
        # torchao refuses a width that is not a multiple of the group.
        quantize_(model, made, filter_fn=lambda m, _: isinstance(m, torch.nn.Linear)
                  and (not group or m.in_features % group == 0))  # fmt: skip
        return _torch(model, args, architecture, dynamic)

    FORMS[name] = Form(name, make, near, quantised=True)


def _config(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from torchao import quantization
        from torchao.quantization.granularity import PerGroup

        found = {k: PerGroup(v) if k == "granularity" else v for k, v in options.items()}
        return getattr(quantization, name)(**found)

    return make


_torchao("int8 dynamic", _config("Int8DynamicActivationInt8WeightConfig"))
_torchao("int8 weight only", _config("Int8WeightOnlyConfig"), 1e-4)
_torchao("int4 weight only g32", lambda: _config("IntxWeightOnlyConfig", weight_dtype=torch.int4, granularity=32)(),
         1e-4)  # fmt: skip
_torchao("8da4w", lambda: _8da4w())
_torchao("float8 weight only", _config("Float8WeightOnlyConfig"), 1e-4)
_torchao("float8 dynamic", _config("Float8DynamicActivationFloat8WeightConfig"))


def _8da4w() -> Any:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from torchao.quantization.granularity import PerGroup

    return Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))


def _pt2e(name: str, dynamic_codes: bool) -> None:
    def make(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic_codes))
        prepared = prepare_pt2e(exported(model, args, architecture, dynamic).module(), quantizer)
        prepared(*args)
        converted = convert_pt2e(prepared)
        return _torch(converted, args, architecture, dynamic)

    FORMS[name] = Form(name, make, CODES, quantised=True)


_pt2e("PT2E static", dynamic_codes=False)
_pt2e("PT2E dynamic", dynamic_codes=True)


# ---- ONNX


def onnx_model(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Any:
    """The ONNX model that torch's exporter writes."""
    shapes = _dynamic(args, architecture) if dynamic else None
    with torch.no_grad():
        program = torch.onnx.export(model, args, dynamo=True, dynamic_shapes=shapes, verbose=False)
    assert program is not None
    return program.model_proto


def _onnx_case(proto: Any, args: tuple[Any, ...]) -> Case:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = [a.detach().numpy() for a in args]
    feed = dict(zip((i.name for i in session.get_inputs()), given, strict=True))
    return Case(proto, given, lambda: list(session.run(None, feed)), "onnxruntime")


@_form("onnx", F32)
def _onnx(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
    return _onnx_case(onnx_model(model, args, architecture, dynamic), args)


@_form("onnx optimised", F32)
def _onnx_optimised(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
    """The model that onnxruntime saves after its extended optimisations, whose fusions do not depend on the machine."""
    import tempfile
    from pathlib import Path

    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        plain, made = Path(folder, "plain.onnx"), Path(folder, "made.onnx")
        onnx.save(onnx_model(model, args, architecture, dynamic), plain)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(made)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
        return _onnx_case(onnx.load(made), args)


class _Calibration:
    def __init__(self, names: Sequence[str], args: tuple[Any, ...]) -> None:
        self._left = [dict(zip(names, (a.detach().numpy() for a in args), strict=True))]

    def get_next(self) -> Any:
        return self._left.pop() if self._left else None

    def set_range(self, start_index: int, end_index: int) -> None:
        """Does nothing: all data is in one batch."""


def _qdq(name: str, unsigned: bool) -> None:
    def make(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
        import tempfile
        from pathlib import Path

        import onnx
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        proto = onnx_model(model, args, architecture, dynamic)
        names = [i.name for i in proto.graph.input]
        kind = QuantType.QUInt8 if unsigned else QuantType.QInt8
        with tempfile.TemporaryDirectory() as folder:
            plain, made = Path(folder, "plain.onnx"), Path(folder, "made.onnx")
            onnx.save(proto, plain)
            quant_pre_process(plain, plain, skip_symbolic_shape=True)
            quantize_static(plain, made, _Calibration(names, args), quant_format=QuantFormat.QDQ, per_channel=True,
                            activation_type=kind, weight_type=QuantType.QInt8)  # fmt: skip
            return _onnx_case(onnx.load(made), args)

    FORMS[name] = Form(name, make, CODES, quantised=True)


_qdq("onnx QDQ s8", unsigned=False)
_qdq("onnx QDQ u8", unsigned=True)


@_form("onnx dynamic int8", CODES, quantised=True)
def _onnx_dynamic(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
    import tempfile
    from pathlib import Path

    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        plain, made = Path(folder, "plain.onnx"), Path(folder, "made.onnx")
        onnx.save(onnx_model(model, args, architecture, dynamic), plain)
        quantize_dynamic(plain, made, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm", "LSTM"])
        return _onnx_case(onnx.load(made), args)


@_form("onnx 4-bit", 1e-4, quantised=True)
def _onnx_4bit(model: Any, args: tuple[Any, ...], architecture: Architecture, dynamic: bool) -> Case:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx_model(model, args, architecture, dynamic), block_size=32, is_symmetric=False,
                                accuracy_level=1)  # fmt: skip
    made.process()
    return _onnx_case(made.model.model, args)


def float64(model: Any, args: tuple[Any, ...]) -> list[Array]:
    """The unquantised model evaluated in float64, or unconverted if its code requires f32."""
    precise = copy.deepcopy(model).double()
    try:
        with torch.no_grad():
            return _results(precise(*(a.double() if a.is_floating_point() else a for a in args)))
    except RuntimeError:
        with torch.no_grad():
            return _results(model(*args))


def _results(found: Any) -> list[Array]:
    return [t.numpy() for t in (found if isinstance(found, (tuple, list)) else (found,))]
