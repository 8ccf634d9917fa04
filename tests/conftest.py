"""What tests of several rooms share: one Spark session, and the optional real data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# No deadlines: a first example may compile a kernel, and machines differ.
settings.register_profile("postroad", deadline=None)
settings.load_profile("postroad")

ROOT = Path(__file__).resolve().parents[1]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On several processes: all that needs Spark in one of them, other files wherever they fit."""
    for item in items:
        group = "spark" if item.get_closest_marker("spark") else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all tests: two cores, two shuffle partitions, loopback only, UTC, no UI."""
    from postroad.pipeline.session import session

    conf = [
        "spark.sql.shuffle.partitions=2",
        "spark.driver.memory=2g",
        f"spark.executorEnv.PYTHONPATH={ROOT / 'src'}:{ROOT / 'tests' / 'pipeline'}",
    ]
    with session("local[2]", conf) as made:
        yield made


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data beside the repository; without it these tests are skipped."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real data beside the repository")
    return folder
