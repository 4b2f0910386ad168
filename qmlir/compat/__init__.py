"""Functions of other systems under their names and with their arguments, built on `qmlir.ops`.

| module | system |
|---|---|
| `aiter` | `aiter.pertoken_quant` |
| `bitblas` | `bitblas.MatmulConfig` and `bitblas.Matmul` |
| `executorch` | the quantised operators of ExecuTorch's Vulkan backend, `torch.ops.et_vk.*` |
| `composable_kernel` | Composable Kernel's quantisation functors |

Argument names, defaults and conventions (rounding, zero points, nibble order, where the bias is added) are those of
the system; docs/compat.md lists them side by side. The functions only map arguments: every value is computed by
a compiled operation. Results are numpy arrays or torch tensors, as the arguments are. Modules load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import aiter as aiter, bitblas as bitblas, composable_kernel as composable_kernel, executorch as executorch

__all__ = ["aiter", "bitblas", "composable_kernel", "executorch"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'qmlir.compat' has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
