"""Trains the digits network, quantises it, and writes `digits.safetensors`.

    pip install -e ".[train]"
    python samples/01_digits/train.py

Needed only to change the model: the weights are in the repository. The seed, the split and the number
of threads are fixed, so that the same torch on the same kind of processor gives the same file.
"""

from __future__ import annotations

import json
from pathlib import Path

import dataset
import numpy as np
import torch
from quantize import FloatLayer, Layer, forward, forward_float, quantize, tensors
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
EPOCHS = 80
BATCH = 64


class Net(nn.Module):
    """8x8x1 -> conv 16 -> conv 32, stride 2 -> conv 64 -> 10 classes; the product's input is 4x4x64."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(4 * 4 * 64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in (self.conv1, self.conv2, self.conv3):
            x = functional.relu(conv(x))
        # Flattened as NHWC, so that the weight's columns are in the order in which the int8 model flattens.
        out: torch.Tensor = self.fc(self.drop(x.permute(0, 2, 3, 1).flatten(1)))
        return out

    def layers(self) -> list[FloatLayer]:
        """The network in numpy, weights `[F, KH, KW, C]` and `[N, K]`."""

        def numpy(parameter: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
            values: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = parameter.detach().numpy()
            return np.ascontiguousarray(values)

        found = [
            FloatLayer(name, numpy(conv.weight.permute(0, 2, 3, 1)), numpy(conv.bias), conv.stride[0], True)
            for name, conv in (("conv1", self.conv1), ("conv2", self.conv2), ("conv3", self.conv3))
            if conv.bias is not None
        ]
        return [*found, FloatLayer("fc", numpy(self.fc.weight), numpy(self.fc.bias), 1, False)]


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image moved by up to one pixel in both directions: the only augmentation."""
    count = len(images)
    padded = functional.pad(images, (1, 1, 1, 1))
    dy, dx = torch.randint(0, 3, (2, count), generator=generator)
    rows = dy[:, None, None] + torch.arange(8)[None, :, None]
    columns = dx[:, None, None] + torch.arange(8)[None, None, :]
    return padded[torch.arange(count)[:, None, None], 0, rows, columns][:, None]


def train(images: torch.Tensor, labels: torch.Tensor) -> Net:
    """Fits the network to `images: [N, 1, 8, 8]`; the held-out digits are not used, not even for stopping."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    net = Net()
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = EPOCHS * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(images), generator=generator).split(BATCH):
            loss = functional.cross_entropy(net(shifted(images[batch], generator)), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(batch)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3}: loss {total / len(images):.4f}")
    net.eval()
    return net


def main() -> None:
    """Trains, quantises, reports both accuracies on the held-out digits, writes the file."""
    train_set, held_out = dataset.load()
    real = (train_set.images / 16).astype(np.float32)
    net = train(torch.from_numpy(real).permute(0, 3, 1, 2), torch.from_numpy(train_set.labels))

    float_layers = net.layers()
    layers: list[Layer] = quantize(float_layers, real, dataset.INPUT_SCALE, dataset.INPUT_ZERO_POINT)
    float_logits = forward_float(float_layers, (held_out.images / 16).astype(np.float32))[-1]
    int8_logits = forward(layers, dataset.encode(held_out.images))[-1]
    float_accuracy = float(np.mean(float_logits.argmax(1) == held_out.labels))
    int8_accuracy = float(np.mean(int8_logits.argmax(1) == held_out.labels))
    print(f"held-out accuracy: float {float_accuracy:.4f}, int8 {int8_accuracy:.4f}")

    evaluation = {
        "float_accuracy": float_accuracy,
        "int8_accuracy": int8_accuracy,
        "held_out": len(held_out.labels),
        "split": dataset.SPLIT,
    }
    # One entry: the order of several entries, and with it the file, would change from run to run.
    save_file(tensors(layers), HERE / "digits.safetensors", {"evaluation": json.dumps(evaluation)})


if __name__ == "__main__":
    main()
