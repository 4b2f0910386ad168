"""Stock IREE: the same program in plain linalg, as qmlir's lowering emits it, compiled by IREE alone with its best
flags for this host (data tiling, O3), without any of qmlir's strategies or kernels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from iree import runtime as rt
from iree.compiler import tools

from qmlir.core.cache import Cache, key_of
from qmlir.core.hal import device

from ..problems import Array, Problem, Product
from ..works import EIGHT_BITS, FOUR_BITS
from . import Absent, Candidate

PACKAGES = ("iree-base-compiler", "iree-base-runtime")

FLAGS = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
         "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling",
         "--iree-llvmcpu-stack-allocation-limit=262144", "--iree-input-demote-f64-to-f32=false"]  # fmt: skip

# In bytes of weights. The text of a program is several times as large; compiling more than this takes minutes.
LARGEST = 32 << 20


def candidates(problem: Problem, threads: int) -> list[Candidate]:
    if problem.bytes > LARGEST:
        raise Absent("stock IREE is asked for programs of up to 32 MiB of weights")
    artifact, arguments = problem.program()

    def fresh() -> bytes:
        # Removes the attributes that qmlir's passes leave on contractions.
        text = re.sub(r"(, )?qmlir\.\w+ = (\"[^\"]*\"|[^,}\"]+)", "", artifact.source("linalg")).replace("{, ", "{")
        try:
            return bytes(tools.compile_str(text, input_type="none", extra_args=FLAGS))
        except tools.CompilerToolError as e:
            reason = next((line for line in str(e).splitlines() if "error:" in line), "no reason given")
            raise Absent(f"IREE does not compile it: {reason.partition('error:')[2].strip()[:160]}") from None

    vmfb = Cache().get_or_build(key_of(["stock IREE", problem.identity(), FLAGS]), fresh)
    main = Main(vmfb, threads, arguments, len(artifact.functions["main"].outputs))
    kind = FOUR_BITS if isinstance(problem, Product) and problem.scheme != "w8a8" else EIGHT_BITS
    return [Candidate("stock IREE", kind, main, lambda out: problem.real(main.array(out)), 0.02)]


class Main:
    """`@main` of a program, called on buffers that are allocated once."""

    def __init__(self, vmfb: bytes, threads: int, arguments: list[Array], results: int) -> None:
        # The device that qmlir's programs use: its workers are pinned, which gives steadier times.
        self.device = device("local-task" if threads > 1 else "local-sync")
        instance = rt.VmInstance()
        module = rt.VmModule.copy_buffer(instance, vmfb)
        self.context = rt.VmContext(instance, modules=[rt.create_hal_module(instance, self.device), module])
        self.function = module.lookup_function("main")
        self.results = results
        self.inputs = rt.VmVariantList(len(arguments))
        for a in arguments:
            kind = _KINDS[a.dtype.name]
            raw = a.view(np.uint16) if a.dtype.name == "bfloat16" else a
            self.inputs.push_ref(
                self.device.allocator.allocate_buffer_copy(
                    rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING, self.device, raw, kind
                )
            )

    def __call__(self) -> Any:
        outputs = rt.VmVariantList(self.results)
        self.context.invoke(self.function, self.inputs, outputs)
        return outputs

    @staticmethod
    def array(outputs: Any) -> Array:
        view = outputs.get_as_object(0, rt.HalBufferView)
        dtype = rt.HalElementType.map_to_dtype(view.element_type)
        return np.array(view.map().asarray(tuple(view.shape), dtype))


_KINDS = {"int8": rt.HalElementType.INT_8, "uint8": rt.HalElementType.INT_8, "int32": rt.HalElementType.INT_32,
          "float32": rt.HalElementType.FLOAT_32, "bfloat16": rt.HalElementType.BFLOAT_16}  # fmt: skip
