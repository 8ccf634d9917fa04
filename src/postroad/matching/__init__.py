"""Which of many filters match a publication: `Index`, and its oracle `LinearScan`."""

from postroad.matching.index import Index
from postroad.matching.linear import LinearScan

__all__ = ["Index", "LinearScan"]
