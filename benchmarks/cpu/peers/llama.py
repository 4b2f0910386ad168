"""llama.cpp's products on the CPU: ggml graphs of one `mul_mat` through ctypes, the weight Q4_0 or Q8_0.

Activations are f32; the product quantises them to int8 in blocks of 32, as llama.cpp does. The weight in its stored
layout and the weight repacked for this CPU (ggml's extra buffer types) are separate candidates. The library is that of
llama-cpp-python, built from source without AMX, since some of its versions crash with it:

    CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_AMX_INT8=OFF -DGGML_AMX_TILE=OFF" pip install --no-binary :all: llama-cpp-python
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import cache, singledispatch
from itertools import takewhile
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from ..problems import Array, Product
from ..works import EIGHT_BITS, FOUR_BITS, LOSSY
from . import Absent, Candidate, LeftOut

PACKAGES = ("llama-cpp-python",)

BLOCK = 32
_F32, _TYPES = 0, {4: 2, 8: 8}  # enum ggml_type: bits -> Q4_0, Q8_0
_CONTEXT_BYTES = 1 << 20  # metadata of the tensors and the graph, without data


class _InitParams(ctypes.Structure):
    """`struct ggml_init_params`."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "ggml_init": (_InitParams,), "ggml_new_tensor_2d": (ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64),
    "ggml_mul_mat": (ctypes.c_void_p,) * 3, "ggml_new_graph": (ctypes.c_void_p,),
    "ggml_backend_alloc_ctx_tensors_from_buft": (ctypes.c_void_p,) * 2, "ggml_backend_cpu_init": (),
    "ggml_backend_cpu_buffer_type": (), "ggml_backend_cpu_reg": (),
    "ggml_backend_reg_dev_get": (ctypes.c_void_p, ctypes.c_size_t),
    "ggml_backend_reg_get_proc_address": (ctypes.c_void_p, ctypes.c_char_p),
    "ggml_backend_buft_name": (ctypes.c_void_p,), "ggml_build_forward_expand": (ctypes.c_void_p,) * 2,
    "ggml_backend_tensor_set": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t),
    "ggml_backend_tensor_get": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t),
    "ggml_backend_graph_compute": (ctypes.c_void_p,) * 2, "ggml_backend_dev_supports_op": (ctypes.c_void_p,) * 2,
    "ggml_backend_cpu_set_n_threads": (ctypes.c_void_p, ctypes.c_int),
}  # fmt: skip
_RESULTS = {"ggml_backend_graph_compute": ctypes.c_int, "ggml_backend_buft_name": ctypes.c_char_p,
            "ggml_backend_dev_supports_op": ctypes.c_bool}  # fmt: skip


@cache
def _library() -> dict[str, Any]:
    """ggml's functions by name."""
    folder = Path(llama_cpp.__file__).parent / "lib"
    libraries = [ctypes.CDLL(str(folder / f"libggml{part}.so")) for part in ("-base", "-cpu", "")]
    found = {}
    for name, arguments in _ARGUMENTS.items():
        function = next((getattr(one, name) for one in libraries if hasattr(one, name)), None)
        if function is None:
            raise Absent(f"llama-cpp-python's ggml has no {name}")
        function.argtypes, function.restype = arguments, _RESULTS.get(name, ctypes.c_void_p)
        found[name] = function
    return found


def _device() -> Any:
    g = _library()
    return g["ggml_backend_reg_dev_get"](g["ggml_backend_cpu_reg"](), 0)


def _buffer_types() -> dict[str, Any]:
    """The buffer types for a weight, by name: plain memory, and those that repack the weight when it is stored."""
    g = _library()
    registry = g["ggml_backend_cpu_reg"]()
    found = {"as stored": g["ggml_backend_cpu_buffer_type"]()}
    address = g["ggml_backend_reg_get_proc_address"](registry, b"ggml_backend_dev_get_extra_bufts")
    if address:
        each = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)
        for kind in takewhile(bool, each(_device())):
            found[g["ggml_backend_buft_name"](kind).decode()] = kind
    return found


def quantised(codes: Array, scale: Array, bits: int) -> Array:
    """Bytes of Q4_0 or Q8_0 from codes `[N, K]` i8 and scales `[N, K / 32]`: each block's scale as f16, then its codes.

    Source: ggml's block_q4_0 (code + 8; the first half of a block in the low nibbles) and block_q8_0.
    """
    n, k = codes.shape
    blocks = codes.reshape(n, k // BLOCK, BLOCK)
    if bits == 4:
        u = (blocks + 8).astype(np.uint8)
        stored = u[..., : BLOCK // 2] | (u[..., BLOCK // 2 :] << 4)
    else:
        stored = blocks.view(np.uint8)
    heads = scale.astype(np.float16)[..., None].view(np.uint8)
    return np.ascontiguousarray(np.concatenate([heads, stored], axis=-1)).reshape(-1)


def _run(m: int, n: int, k: int, bits: int, weight: Array, x: Array, where: Any, threads: int) -> Callable[[], Any]:
    """A function that computes the graph and returns its result. Raises Absent if ggml cannot repack such weights."""
    g = _library()

    def context() -> Any:
        return g["ggml_init"](_InitParams(_CONTEXT_BYTES, None, True))

    def allocate(ctx: Any, kind: Any) -> None:
        if not g["ggml_backend_alloc_ctx_tensors_from_buft"](ctx, kind):
            raise Absent("ggml could not allocate its tensors")

    held = context()
    w = g["ggml_new_tensor_2d"](held, _TYPES[bits], k, n)
    allocate(held, where)
    ctx = context()
    lhs = g["ggml_new_tensor_2d"](ctx, _F32, k, m)
    y = g["ggml_mul_mat"](ctx, w, lhs)
    if not g["ggml_backend_dev_supports_op"](_device(), y):
        raise Absent("ggml has no product of such a weight there")
    g["ggml_backend_tensor_set"](w, weight.ctypes.data, 0, weight.nbytes)
    graph = g["ggml_new_graph"](ctx)
    g["ggml_build_forward_expand"](graph, y)
    allocate(ctx, g["ggml_backend_cpu_buffer_type"]())
    g["ggml_backend_tensor_set"](lhs, x.ctypes.data, 0, x.nbytes)
    backend = g["ggml_backend_cpu_init"]()
    g["ggml_backend_cpu_set_n_threads"](backend, threads)
    compute = g["ggml_backend_graph_compute"]

    def run() -> Any:
        if compute(backend, graph):
            raise RuntimeError("ggml_backend_graph_compute failed")
        return y

    return run


def _result(m: int, n: int) -> Callable[[Any], Array]:
    """A function that copies a result tensor into an array `[M, N]`."""

    def real(y: Any) -> Array:
        out = np.empty((m, n), np.float32)
        _library()["ggml_backend_tensor_get"](y, out.ctypes.data, 0, out.nbytes)
        return out

    return real


def candidates(problem: Any, threads: int) -> list[Candidate | LeftOut]:
    return _candidates(problem, threads)


@singledispatch
def _candidates(problem: Any, threads: int) -> list[Candidate | LeftOut]:
    raise Absent(f"llama.cpp is not asked for a {type(problem).__name__}: it has no product of that form")


@_candidates.register
def _product(p: Product, threads: int) -> list[Candidate | LeftOut]:
    if p.scheme == "w8a8":
        codes, scale, bits = p.weight.T, np.repeat(p.weight_scale.T, p.k // BLOCK, axis=1), 8
    else:
        codes, scale, bits = p.weight, np.repeat(p.weight_scale, p.group // BLOCK, axis=1), 4
    stored = quantised(np.ascontiguousarray(codes), scale, bits)
    x = np.ascontiguousarray(p.lhs_real, np.float32)
    kind = {"w8a8": EIGHT_BITS, "w4a8": FOUR_BITS, "w4a16": LOSSY}[p.scheme]
    found: list[Candidate | LeftOut] = []
    for place, where in _buffer_types().items():
        name = f"llama.cpp mul_mat Q{bits}_0 ({place})"
        try:
            run = _run(p.m, p.n, p.k, bits, stored, x, where, threads)
        except Absent as e:
            found.append(LeftOut(name, str(e)))
        else:
            # Its scales are f16, and it quantises activations.
            found.append(Candidate(name, kind, run, _result(p.m, p.n), 0.02))
    if p.scheme == "w4a8":
        wide = Product(p.m, p.n, p.k)
        found += [replace(c, problem=wide) for c in _product(wide, threads) if isinstance(c, Candidate)]
    return found
