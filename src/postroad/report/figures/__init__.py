"""Figures: each a pure function from one small table of named columns to one picture."""
