"""Runs for sweeps under test: named as `pipeline.points:function` by their experiments."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numba

from postroad import draws


@numba.njit(cache=True)
def triangle(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


def kernel(row: dict[str, Any]) -> dict[str, Any]:
    """Call a compiled kernel; say which process it was and how often that one has compiled."""
    value = triangle(row["parameters"]["n"])
    compiled = sum(triangle.stats.cache_misses.values())
    return {"value": value, "process": os.getpid(), "compiled": compiled}


def point(row: dict[str, Any]) -> dict[str, Any]:
    """A number that depends on the parameters and the seed alone."""
    parameters = row["parameters"]
    if parameters.get("fail") and parameters["x"] == 2:
        raise ValueError("x is two")
    if parameters.get("die") and parameters["x"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if parameters.get("mistyped") and parameters["x"] == 2:
        return {"traces": [{"time_us": "soon"}]}  # which the worker cannot write
    time.sleep(parameters.get("sleep_s", 0))
    noise = draws.uniform(row["seed"], "point", 0, 0)
    return {"value": parameters["x"] + noise, "nested": {"noise": noise}, "text": "left out"}


def place(row: dict[str, Any]) -> dict[str, Any]:
    """Check that this is the Python that was asked for, away from the driver, with our package."""
    import postroad

    assert sys.executable == row["parameters"]["python"], sys.executable
    assert os.getcwd() != row["parameters"]["driver"]
    assert "postroad_shipped" in Path(postroad.__file__).parts, postroad.__file__
    return {}


def case(row: dict[str, Any]) -> dict[str, Any]:
    """A number near the case's own."""
    case = row["parameters"]["case"]
    return {"value": case["x"] + case["seed"] / 10}
