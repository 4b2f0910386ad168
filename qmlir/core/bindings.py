"""Modules of IREE's bindings that are imported when something of them is first asked for, and those of its runtime."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING


class LazyModule(ModuleType):
    """The module of its name, which is imported after `before` has been called."""

    def __init__(self, name: str, before: Callable[[], object] = lambda: None) -> None:
        super().__init__(name)
        self.__before = before

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # asked of every module by the import system and by inspect
            raise AttributeError(name)
        self.__before()
        found = importlib.import_module(self.__name__)
        self.__dict__.update(vars(found))  # from here on nothing is slower than in the module itself
        value: object = getattr(found, name)
        return value


# What mypy knows of it is in typings/iree/runtime.
if TYPE_CHECKING:
    from iree.runtime import _binding as binding
else:
    binding = LazyModule("iree.runtime._binding")

__all__ = ["LazyModule", "binding"]
