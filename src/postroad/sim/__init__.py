"""The deterministic simulator: one of the two drivers of the routing cores."""
