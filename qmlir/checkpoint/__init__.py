"""Quantised checkpoints as named values, without torch.

`open(path)` reads `.safetensors` files and folders (compressed-tensors, AWQ, GPTQ, bitsandbytes) and `.gguf` files.
Files are memory-mapped and a weight is decoded when it is asked for.

    model = qmlir.checkpoint.open("model.gguf")
    weight = model["blk.0.attn_q.weight"]  # a QuantizedWeight [N, K], or an array
    y = qmlir.ops.scaled_matmul(x, **weight)  # x [M, K] -> [M, N]
    w = weight.dequantize()  # f32 [N, K]

One file per container (`safetensors_file`, `gguf_file`) and one per scheme (`compressed_tensors`, `awq`, `gptq`,
`bitsandbytes`, `gguf_types`); `registry` lists them. Nothing here imports the compiler.
"""

from __future__ import annotations

from .contents import Checkpoint
from .opening import open
from .value import Activations, QuantizedWeight

__all__ = ["Activations", "Checkpoint", "QuantizedWeight", "open"]
