"""Emulated AMD GPUs: the instructions of code objects, executed in numpy for all lanes of many waves at once."""

from .executor import AmdExecutor

__all__ = ["AmdExecutor"]
