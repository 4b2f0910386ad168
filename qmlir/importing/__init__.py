"""Programs from checkpoints: one linear layer, or a whole decoder of the Llama family.

    model = qmlir.checkpoint.open("model.gguf")
    imported = qmlir.importing.decoder(model, context_length=2048)
    imported.save("model.mlir", "model.safetensors")
    artifact = qmlir.compile("model.mlir", parameters={"model": "model.safetensors"})
    program = qmlir.load(artifact)
    logits = program.prefill(tokens)  # i32 [T] -> f32 [V], of the last token; starts a new sequence
    logits = program.decode(token)  # i32 [1] -> f32 [V]

The program names its weights as parameters of the scope `model`; `keep_parameters=True` loads them with the program
instead of compiling them in. `qmlir.checkpoint` reads the file; nothing here depends on a target.
"""

from __future__ import annotations

from .config import DecoderConfig
from .decoder import decoder
from .linear import linear
from .program import Imported

__all__ = ["DecoderConfig", "Imported", "decoder", "linear"]
