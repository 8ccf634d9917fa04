"""Compiled message-level simulations: arrays in, counters out, equal to the reference cores."""
