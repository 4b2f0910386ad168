"""Lazily imported modules of IREE's bindings, and the binding module of its runtime."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING


class LazyModule(ModuleType):
    """A proxy of the module `name`, which is imported when an attribute is first read, after a call of `before`."""

    def __init__(self, name: str, before: Callable[[], object] = lambda: None) -> None:
        super().__init__(name)
        self.__before = before

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system and inspect ask every module for these
            raise AttributeError(name)
        self.__before()
        found = importlib.import_module(self.__name__)
        self.__dict__.update(vars(found))  # later reads do not come here
        value: object = getattr(found, name)
        return value


# mypy reads its types from typings/iree/runtime.
if TYPE_CHECKING:
    from iree.runtime import _binding as binding
else:
    binding = LazyModule("iree.runtime._binding")

__all__ = ["LazyModule", "binding"]
