"""Tuning: compiles programs with several choices, measures them, and keeps the best choices in a database.

`compiler.tuning_database` stores results, `search.py` makes and compiles candidates, `measure.py` times them and needs
the runtime only: `qmlir tune --emit DIR` on one machine, `qmlir tune --measure DIR` on another.
"""

from ..compiler.tuning_database import Database, Record
from .search import TuneReport, tune

__all__ = ["Database", "Record", "TuneReport", "tune"]
