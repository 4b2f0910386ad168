"""How contractions are compiled for this backend."""

from __future__ import annotations

from ...strategy import Strategy
from ..base import Target
from ..stock import StockStrategy


def strategies(target: Target) -> tuple[Strategy, ...]:
    """Best first."""
    return (StockStrategy(target),)
