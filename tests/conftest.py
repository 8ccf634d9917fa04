"""What tests of several rooms share: one Spark session, and the optional real data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# No deadlines: a first example may compile a kernel, and machines differ.
settings.register_profile("postroad", deadline=None)
settings.load_profile("postroad")

ROOT = Path(__file__).resolve().parents[1]


SHARING = {"test_kyra_evaluation.py", "test_security.py"}
ON_SPARK = ("pipeline/", "test_reproduce", "test_subscription_forwarding_model")


class Groups(LoadScopeScheduling):
    """On several processes: all that needs Spark in one of them, all that compiles PopSub's
    kernel, and the tests of a file that share what takes long to make; others wherever they fit."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if any(part in file for part in ON_SPARK):
            return "spark"
        if "test_popsub" in file:
            return "popsub"
        return file if Path(file).name in SHARING else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


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
