"""Runs for sweeps under test: named as `pipeline.points:function` by their experiments."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from postroad import draws


def point(row: dict[str, Any]) -> dict[str, Any]:
    """A number that depends on the parameters and the seed alone."""
    parameters = row["parameters"]
    if parameters.get("fail") and parameters["x"] == 2:
        raise ValueError("x is two")
    if parameters.get("die") and parameters["x"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(parameters.get("sleep_s", 0))
    noise = draws.uniform(row["seed"], "point", 0, 0)
    return {"value": parameters["x"] + noise, "nested": {"noise": noise}, "text": "left out"}
