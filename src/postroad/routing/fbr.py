"""Filter-based routing as Kyra's paper compares with (Cao and Singh 2004, section II.A).

Idea: subscription forwarding on a minimum spanning tree over all servers, without covering or
advertisements. Where any two brokers can reach each other the tree is planned from their
latencies; a tree that is given is its own minimum spanning tree.

State and messages are those of `subscription_forwarding`.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroad.overlay import Overlay
from postroad.overlay.latencies import as_overlay


@dataclass(frozen=True, slots=True)
class Config:
    """Filter-based routing has nothing to set."""


def tree(overlay: Overlay) -> Overlay:
    return overlay if overlay.direct_us is None else as_overlay(overlay.names, overlay.direct_us)
