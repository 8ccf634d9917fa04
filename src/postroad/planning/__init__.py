"""Planners: from interests and latencies to an overlay."""
