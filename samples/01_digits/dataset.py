"""scikit-learn's digits, split once: every reported accuracy is on the same held-out quarter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SPLIT = "train_test_split(test_size=0.25, stratify=labels, random_state=0)"


class Digits(NamedTuple):
    """Images `[N, 8, 8, 1]` with grey values 0..16 as integers, and labels `[N]`."""

    images: NDArray[np.int64]
    labels: NDArray[np.int64]


def load() -> tuple[Digits, Digits]:
    """The digits to train on, and the held-out ones."""
    images, labels = load_digits(return_X_y=True)
    shaped = images.astype(np.int64).reshape(-1, 8, 8, 1)
    train_x, test_x, train_y, test_y = train_test_split(shaped, labels, test_size=0.25, stratify=labels, random_state=0)
    return Digits(train_x, train_y), Digits(test_x, test_y)


# A grey value g is the real number g/16. Its code 8*g - 64 has the scale 2^-7 and the zero point -64:
# exact for all 17 grey values, and centred in the range of int8.
INPUT_SCALE = np.float32(2.0**-7)
INPUT_ZERO_POINT = np.int8(-64)


def encode(images: NDArray[np.int64]) -> NDArray[np.int8]:
    """Grey values 0..16 to the model's int8 input, of the same shape."""
    return (images * 8 + int(INPUT_ZERO_POINT)).astype(np.int8)
