"""Postroad: plan, simulate and run content-based publish/subscribe broker networks.

The names below are for everyone's use (`postroad/api.py`); other modules are Postroad's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroad.api import (
        SCHEMES,
        Client,
        Compared,
        Estimate,
        Filter,
        Index,
        InputError,
        PostroadError,
        Result,
        Scenario,
        compare,
        covers,
        estimate,
        intersects,
        matches,
        network,
        parse,
        plan,
        simulate,
    )

__version__ = "0.1.0"
__all__ = [
    "SCHEMES",
    "Client",
    "Compared",
    "Estimate",
    "Filter",
    "Index",
    "InputError",
    "PostroadError",
    "Result",
    "Scenario",
    "compare",
    "covers",
    "estimate",
    "intersects",
    "matches",
    "network",
    "parse",
    "plan",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Imported when first used: `import postroad` alone takes no time."""
    if name in __all__:
        from postroad import api

        return getattr(api, name)
    raise AttributeError(f"module 'postroad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
