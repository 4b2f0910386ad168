"""The version of the package, which artifacts, caches and the tuning database name."""

__version__ = "0.1.0"
