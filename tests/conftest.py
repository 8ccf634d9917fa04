"""What tests of several rooms share: one Spark session, and the optional real data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# No deadlines: a first example may compile a kernel, and machines differ.
settings.register_profile("postroad", deadline=None)
settings.load_profile("postroad")

ROOT = Path(__file__).resolve().parents[1]


# Their tests share what takes long: a network, runs, or a kernel that two processes would compile.
SHARING = {"test_determinism.py", "test_ring_kernels.py", "test_security.py"}
# What needs Spark is two groups, each with a session of its own: one alone took longer than all the
# rest. PopSub's kernel takes longest to compile, so its own tests are with those that need it too.
PAPERS = ("papers/", "pipeline/test_compare.py", "test_plan.py", "test_popsub", "test_reproduce")
PIPELINE = ("pipeline/",)  # but for what the papers' has
# It takes longest of those that are alone: what begins last must be short.
LONG = {"test_install.py"}


class Groups(LoadScopeScheduling):
    """On several processes: all that needs Spark in two of them, and the tests of a file that share
    what takes long to make; others wherever they fit."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        for group in (PAPERS, PIPELINE):
            if any(part in file for part in group):
                return group[0]
        return file if Path(file).name in SHARING else nodeid


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session a process: two cores, two shuffle partitions, loopback only, UTC, no UI.

    Light: most of what Java runs here it runs for seconds."""
    from postroad.pipeline.session import session

    conf = [
        "spark.sql.shuffle.partitions=2",
        "spark.driver.memory=2g",
        f"spark.executorEnv.PYTHONPATH={ROOT / 'src'}:{ROOT / 'tests' / 'pipeline'}",
    ]
    with _archive_as_it_is(), session("local[2]", conf, light=True) as made:
        yield made


@contextmanager
def _archive_as_it_is() -> Iterator[None]:
    """Java's archive of Spark's classes is used if there is one, but not made: to write it when
    Java ends takes longer than the few sessions after this one would gain."""
    from postroad.pipeline import session

    options = session.shared_classes()
    claimed = [each for each in options if "ArchiveClassesAtExit" in each]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "shared_classes", lambda: [] if claimed else options)
        try:
            yield
        finally:
            for each in claimed:  # others have not made it either: it was to come from here
                Path(each.partition("=")[2].strip('"')).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data beside the repository; without it these tests are skipped."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real data beside the repository")
    return folder
