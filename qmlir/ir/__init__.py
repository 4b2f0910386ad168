"""Builders and matchers over MLIR's Python bindings: used by every layer above to write and read IR."""
