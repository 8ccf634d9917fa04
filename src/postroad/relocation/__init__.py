"""Relocation: publishers move to the broker that suits their subscribers (POP and GRAPE)."""
