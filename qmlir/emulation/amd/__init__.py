"""Emulated AMD GPUs: the instructions of code objects, executed in numpy for all lanes of many waves at once."""

from ..kernarg import layout
from ..launch import Executor
from .executor import AmdExecutor

__all__ = ["AmdExecutor", "executor", "layout"]


def executor() -> Executor:
    return AmdExecutor()
