"""How the pipeline's benchmarks turn processor times into figures."""

from __future__ import annotations

import os
import subprocess
import sys

from postroad.bench.pipeline import processor_s
from postroad.bench.stages import said


def test_the_law_has_the_fixed_cost_apart() -> None:
    sizes = (100_000, 400_000, 1_600_000)
    linear = said(sizes, [8 + 20 * size / 1e6 for size in sizes])
    assert linear == "fixed 8.0 CPU s, 20.0 per million rows, exponent 1.00"
    assert said(sizes, [8 + (size / 1e5) ** 1.5 for size in sizes]).endswith("exponent 1.50")
    assert said(sizes, [8.1, 8.0, 8.3]).startswith("no growth")


def test_processor_time_of_what_has_ended_is_kept() -> None:
    before = processor_s(os.getpid())
    spin = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert processor_s(os.getpid()) - before > 0.4  # it is counted in hundredths
