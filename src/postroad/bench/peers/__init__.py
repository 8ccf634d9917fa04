"""Postroad beside its peers: the same work, the same machine, the same run (docs/peers.md)."""
