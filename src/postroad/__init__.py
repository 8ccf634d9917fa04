"""Postroad: plan, simulate and run content-based publish/subscribe broker networks."""

__version__ = "0.1.0"
