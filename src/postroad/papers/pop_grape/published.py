"""What the paper's text states; its figures are pictures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stated:
    """A number in the text: for which figure, which method, and what it says."""

    figure: str
    what: str
    method: str
    metric: str
    value: float  # percent


# "Up to": the largest reduction over the number of brokers with subscribers, on PlanetLab.
REDUCTIONS = [
    Stated("5a", "broker message rate", "pop", "message_rate", -85),
    Stated("5a", "broker message rate", "load 100", "message_rate", -85),
    Stated("5b", "input utilisation", "pop", "input_utilisation", -64),
    Stated("5b", "input utilisation", "load 100", "input_utilisation", -68),
    Stated("5c", "delivery delay", "pop", "delay_ms", -63),
    Stated("5c", "delivery delay", "delay 100", "delay_ms", -68),
]
# The most over the number of brokers with subscribers, and over the sampling thresholds.
OVERHEADS = [
    Stated("6b", "message overhead, defaults", "pop", "overhead", 32),
    Stated("6b", "message overhead, defaults", "load 100", "overhead", 16),
    Stated("7f-7i", "message overhead, any threshold", "pop", "overhead", 57),
    Stated("7b-7e", "message overhead, any threshold", "load 100", "overhead", 46),
]
