"""Containers as arguments and results: each of their tensors is one argument or result. Compared with torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.errors import FrontEndError

torch = pytest.importorskip("torch")


class Grown:
    """Like transformers' DynamicCache: rebuilding it from its tensors concatenates them."""

    def __init__(self) -> None:
        self.keys: Any = torch.tensor([])
        self.values: Any = torch.tensor([])

    def add(self, key: Any, value: Any) -> tuple[Any, Any]:
        self.keys = torch.cat([self.keys, key], -2)
        self.values = torch.cat([self.values, value], -2)
        return self.keys, self.values


def taken_apart(cache: Grown) -> tuple[list[Any], None]:
    return [cache.keys, cache.values], None


def put_together(tensors: Any, _: None) -> Grown:
    made = Grown()
    made.add(*tensors)
    return made


def with_names(cache: Grown) -> tuple[list[Any], None]:
    name = torch.utils._pytree.MappingKey
    return [(name("keys"), cache.keys), (name("values"), cache.values)], None


torch.utils._pytree.register_pytree_node(
    Grown, taken_apart, put_together, serialized_type_name="test.Grown", flatten_with_keys_fn=with_names
)


@dataclass
class Pair:
    first: Any
    second: Any


torch.export.register_dataclass(Pair, serialized_type_name="test.Pair")


class Attends(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.key, self.value = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any, *, cache: Grown, scale: Pair) -> Any:
        keys, values = cache.add(self.key(x), self.value(x))
        weights = torch.softmax(x @ keys.transpose(-1, -2) * scale.first, -1)
        return {"y": weights @ values + scale.second, "cache": cache}


def exported(dynamic: bool) -> tuple[Any, Any]:
    size = torch.export.Dim.AUTO if dynamic else None
    model, cache = Attends().eval(), put_together([torch.randn(2, 3, 8), torch.randn(2, 3, 8)], None)
    arguments = {
        "x": torch.randn(2, 4 if dynamic else 1, 8),
        "cache": cache,
        "scale": Pair(torch.tensor(0.5), torch.ones(8)),
    }
    shapes = {"x": {1: size}, "cache": [{1: size}, {1: size}], "scale": [None, None]} if dynamic else None
    with torch.no_grad():
        return model, torch.export.export(model, (), arguments, dynamic_shapes=shapes, strict=False)


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_container_that_computes_as_it_is_made(dynamic: bool) -> None:
    model, program = exported(dynamic)
    main = qmlir.load(qmlir.compile(program)).main
    cache, scale = (
        put_together([torch.randn(2, 3, 8), torch.randn(2, 3, 8)], None),
        Pair(torch.tensor(0.5), torch.ones(8)),
    )
    given = [cache.keys, cache.values]
    for size in (1, 4, 2) if dynamic else (1,):
        x = torch.randn(2, size, 8)
        with torch.no_grad():
            expected = model(x, cache=cache, scale=scale)  # this changes the cache
        y, *given = main(x, *given, scale.first, scale.second)
        for found, wanted in zip((y, *given), (expected["y"], cache.keys, cache.values), strict=True):
            np.testing.assert_allclose(np.asarray(found), wanted.numpy(), rtol=0, atol=1e-6)


def test_a_file_of_a_container_that_is_not_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, program = exported(False)
    torch.export.save(program, str(tmp_path / "model.pt2"))
    monkeypatch.delitem(torch.utils._pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE, "test.Grown")
    with pytest.raises(FrontEndError, match=r"model.pt2: the program takes or gives test.Grown, which .* register it"):
        qmlir.compile(tmp_path / "model.pt2", cache=False)


def test_none_among_results_is_left_out() -> None:
    """torch's attention returns None in place of its weights."""

    class Some(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return None, (x + 1, None), {"a": None, "b": x * 2}

    x = torch.arange(4.0)
    y, z = qmlir.load(qmlir.compile(torch.export.export(Some(), (x,)))).main(x)
    assert torch.equal(y, x + 1)
    assert torch.equal(z, x * 2)
