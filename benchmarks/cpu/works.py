"""The table of works: every work that is measured, its row of the table, and the goal of that row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .networks import digits, resnet18
from .problems import Convolution, GatedMlp, Moe, Problem, Product

# Kinds of peers. A work is compared with each of its kinds separately: int4 weights with the best peer that has 4-bit
# weights and with the best that has 8-bit weights; float activations with peers that keep them and with peers that
# quantise them.
FOUR_BITS, EIGHT_BITS, LOSSY = "4-bit", "8-bit", "4-bit, activations to int8"


@dataclass(frozen=True)
class Work:
    """One entry of the table. `goals` maps a kind of peer to the largest ratio aimed at, on one and on two threads."""

    name: str
    row: str
    make: Callable[[], Problem]
    tiny: Callable[[], Problem]  # the same kind at a small size, which the tests compare with the reference
    goals: dict[str, tuple[float, float]]
    quick: bool = False


# (size, channels, filters, kernel, stride) of the 20 distinct convolutions of ResNet-50 (version 1: the first 1x1 of a
# stage has the stride). Source: He et al., Deep Residual Learning, table 1.
RESNET50 = (
    (224, 3, 64, 7, 2),
    (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1),
    (56, 256, 128, 1, 2), (56, 256, 512, 1, 2), (28, 128, 128, 3, 1), (28, 128, 512, 1, 1), (28, 512, 128, 1, 1),
    (28, 512, 256, 1, 2), (28, 512, 1024, 1, 2), (14, 256, 256, 3, 1), (14, 256, 1024, 1, 1), (14, 1024, 256, 1, 1),
    (14, 1024, 512, 1, 2), (14, 1024, 2048, 1, 2), (7, 512, 512, 3, 1), (7, 512, 2048, 1, 1), (7, 2048, 512, 1, 1),
)  # fmt: skip

# (size, channels, stride) of MobileNetV2's depthwise 3x3 convolutions. Source: Sandler et al., table 2.
MOBILENETV2 = (
    (112, 32, 1), (112, 96, 2), (56, 144, 1), (56, 144, 2), (28, 192, 1), (28, 192, 2), (14, 384, 1), (14, 576, 1),
    (14, 576, 2), (7, 960, 1),
)  # fmt: skip

# (model, N, K) of products of language models. Sources: the configurations published by their authors.
CURRENT_PRODUCTS = (
    ("Llama 3.1 8B, gate and up", 28672, 4096), ("Llama 3.1 8B, down", 4096, 14336), ("Qwen 3 4B, up", 9728, 2560),
    ("Gemma 3 4B, up", 10240, 2560), ("DeepSeek-V3, an expert's up", 2048, 7168),
)  # fmt: skip
# (model, size, channels, filters, kernel, stride); filters is None for depthwise. Sources: Qin et al., MobileNetV4,
# table 11; Tan and Le, EfficientNet, table 1; Liu et al., ConvNeXt, figure 4; YOLOv8n's configuration at 640x640.
CURRENT_CONVOLUTIONS = (
    ("MobileNetV4-S", 112, 32, 32, 3, 2), ("MobileNetV4-S", 28, 96, None, 5, 1), ("MobileNetV4-S", 14, 96, 384, 1, 1),
    ("EfficientNet-B0", 28, 240, None, 5, 1), ("EfficientNet-B0", 14, 112, 672, 1, 1),
    ("ConvNeXt-T", 56, 96, None, 7, 1), ("ConvNeXt-T", 56, 96, 384, 1, 1),
    ("YOLOv8n", 160, 32, 64, 3, 2), ("YOLOv8n", 80, 64, 64, 3, 1),
)  # fmt: skip

# (experts, topk, hidden, inner): layers whose weights fit into the memory of a small machine several times over.
MOE = ((8, 2, 2048, 1408), (64, 6, 1024, 512))


def works() -> tuple[Work, ...]:
    """Every work, in the order of the table."""
    found: list[Work] = []

    def add(name: str, row: str, make: Callable[[], Problem], tiny: Callable[[], Problem],
            goals: dict[str, tuple[float, float]], quick: bool = False) -> None:  # fmt: skip
        found.append(Work(name, row, make, tiny, goals, quick))

    for m, n, k in ((16, 4096, 4096), (128, 4096, 4096), (512, 4096, 4096), (2048, 4096, 4096), (512, 11008, 4096)):
        goal = (0.75, 0.80) if m >= 128 else (0.95, 0.95)
        add(f"w8a8 {m}x{n}x{k}", "w8a8, M >= 128" if m >= 128 else "w8a8, M = 16", partial(Product, m, n, k),
            partial(Product, min(m, 18), 96, 128), {EIGHT_BITS: goal}, quick=m <= 512 and n == 4096)  # fmt: skip
    add("w8a8 1x4096x4096", "w8a8, M = 1", partial(Product, 1, 4096, 4096), partial(Product, 1, 96, 128),
        {EIGHT_BITS: (0.97, 0.95)}, quick=True)  # fmt: skip
    for m in (1, 512):
        add(f"w8a8 {m}x4096x4096 from f32", "w8a8, quantised dynamically",
            partial(Product, m, 4096, 4096, dynamic=True), partial(Product, min(m, 17), 96, 128, dynamic=True),
            {EIGHT_BITS: (0.97, 0.95)})  # fmt: skip
    add("w4a8 1x4096x4096", "w4a8 g128, M = 1", partial(Product, 1, 4096, 4096, "w4a8"),
        partial(Product, 1, 96, 256, "w4a8"), {FOUR_BITS: (0.90, 0.90)}, quick=True)  # fmt: skip
    for m in (16, 128, 512):
        add(f"w4a8 {m}x4096x4096", "w4a8 g128, M >= 16", partial(Product, m, 4096, 4096, "w4a8"),
            partial(Product, min(m, 17), 96, 256, "w4a8"),
            {FOUR_BITS: (0.2, 0.2), EIGHT_BITS: (0.95, 0.95)})  # fmt: skip
    for m in (1, 16):
        add(f"w4a16 {m}x4096x4096", "w4a16 g128", partial(Product, m, 4096, 4096, "w4a16"),
            partial(Product, m, 96, 256, "w4a16"), {FOUR_BITS: (0.90, 0.90), LOSSY: (0.90, 0.90)})  # fmt: skip
    for batch in (1, 8):
        for size, c, f, kernel, stride in RESNET50:
            name = f"conv b{batch} {kernel}x{kernel}/{stride} {size}x{size}x{c}->{f}"
            add(name, f"ResNet-50 convolutions, batch {batch}",
                partial(Convolution, batch, size, c, f, kernel, stride),
                partial(Convolution, batch, 8, min(c, 16), 32, kernel, stride),
                {EIGHT_BITS: (0.65, 0.60) if batch == 1 else (0.80, 0.80)})  # fmt: skip
    for size, c, stride in MOBILENETV2:
        add(f"depthwise 3x3/{stride} {size}x{size}x{c}", "MobileNetV2 depthwise",
            partial(Convolution, 1, size, c, c, 3, stride, depthwise=True),
            partial(Convolution, 1, 8, 32, 32, 3, stride, depthwise=True), {EIGHT_BITS: (0.80, 0.90)})  # fmt: skip
    for model, n, k in CURRENT_PRODUCTS:
        for m, goal in ((1, 0.97), (64, 0.80), (256, 0.92)):
            add(f"w8a8 {m}x{n}x{k} ({model})", "products of current models", partial(Product, m, n, k),
                partial(Product, min(m, 18), 96, 128), {EIGHT_BITS: (goal, goal)})  # fmt: skip
    for model, size, c, filters, kernel, stride in CURRENT_CONVOLUTIONS:
        depthwise = filters is None
        goal = 0.7 if depthwise else 0.9 if kernel == 1 else 0.85
        kind = "depthwise" if depthwise else "conv b1"
        kind += f" {kernel}x{kernel}/{stride} {size}x{size}x{c}{'' if depthwise else f'->{filters}'}"
        add(f"{kind} ({model})", "convolutions of current models",
            partial(Convolution, 1, size, c, filters or c, kernel, stride, depthwise),
            partial(Convolution, 1, 9, 32, 32, kernel, stride, depthwise), {EIGHT_BITS: (goal, goal)})  # fmt: skip
    for experts, topk, hidden, inner in MOE:
        for tokens in (1, 16, 128, 512):
            add(f"moe {experts}x{hidden}x{inner} top {topk}, {tokens} tokens", "MoE layer",
                partial(Moe, tokens, experts, topk, hidden, inner),
                partial(Moe, min(tokens, 5), 4, min(topk, 3), 64, 32),
                {EIGHT_BITS: (0.6, 0.7)})  # fmt: skip
    for m in (1, 128):
        add(f"mlp {m} x 4096->11008->4096", "gated MLP block", partial(GatedMlp, m, 4096, 11008),
            partial(GatedMlp, min(m, 9), 64, 96), {EIGHT_BITS: (0.8, 0.9)})  # fmt: skip
    for batch in (1, 64):
        add(f"digits batch {batch}", "networks", partial(digits, batch), partial(digits, 3),
            {EIGHT_BITS: (0.8, 0.9)})  # fmt: skip
    add("resnet18 batch 1", "networks", partial(resnet18, 1), partial(resnet18, 1, 64, (8, 16, 16, 32), 10),
        {EIGHT_BITS: (0.8, 0.9)})  # fmt: skip
    return tuple(found)
