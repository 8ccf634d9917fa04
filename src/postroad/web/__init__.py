"""The dashboard: one page for a whole network, live and back in time."""
