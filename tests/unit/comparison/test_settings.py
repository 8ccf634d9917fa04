"""What is compared: parts of the workload, the topic, what is varied; and the demo's file."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from postroad.comparison import settings
from postroad.comparison.estimate import estimates
from postroad.comparison.rows import ROWS
from postroad.errors import InputError

TINY: dict[str, Any] = {
    "overlay": {"kind": "wide_area", "brokers": 10},
    "workload": {"followed": {"subscriptions": 50, "publications": 20, "publishers": 5}},
}


def part(replicate: int, training: bool) -> Any:
    return settings.part(TINY, ".", 1, replicate, 3, training)


def test_the_demo_is_a_valid_comparison() -> None:
    with as_file(files("postroad.comparison") / "demo.toml") as path:
        demo = settings.load(path)
    assert demo.baseline in demo.rows
    assert set(demo.rows) <= set(ROWS)
    assert demo.generated == "followed"
    assert set(settings.sensitivity_points(demo)) == {
        "subscriptions", "skew of popularity", "brokers"
    }  # fmt: skip


def test_training_and_judged_publications_are_apart() -> None:
    trained = {posting.id for posting in part(0, True).workload.postings}
    judged = {posting.id for posting in part(0, False).workload.postings}
    assert len(trained) == 4
    assert len(judged) == 16
    assert not trained & judged
    assert part(0, False).workload.postings[0].time_us == 0


def test_replicates_share_the_network_and_not_the_workload() -> None:
    first, second = part(0, False), part(1, False)
    assert np.array_equal(first.overlay.ends, second.overlay.ends)
    assert np.array_equal(first.overlay.latency_us, second.overlay.latency_us)
    assert first.workload.subscriptions != second.workload.subscriptions


def test_the_topic_is_the_most_telling_attribute() -> None:
    assert settings.topic_attribute(part(0, False)) == "symbol"


def test_files_are_dealt_out_to_the_replicates(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("broker,client,filter\n0,a,price > 1\n")
    rows = "".join(f'{n},0,p,"{{""price"": {n}}}"\n' for n in range(11))
    (tmp_path / "p.csv").write_text("time,broker,publisher,attributes\n" + rows)
    given = {
        "overlay": {"kind": "random_tree", "brokers": 3},
        "workload": {"subscriptions": "s.csv", "publications": "p.csv"},
    }
    found = [
        [
            posting.id
            for posting in settings.part(given, str(tmp_path), 1, n, 2, t).workload.postings
        ]
        for n in (0, 1)
        for t in (True, False)
    ]
    assert found == [["0"], ["1", "2", "3", "4"], ["5"], ["6", "7", "8", "9", "10"]]


@pytest.mark.parametrize(
    ("count", "replicates", "wrong"),
    [
        (1, 2, "too few publications for 2 replicates: 1; give at least 4"),
        (3, 2, "too few publications for 2 replicates: 3; give at least 4"),
        (5, 3, "too few publications for 3 replicates: 5; give at least 6, or fewer replicates"),
        (4, 2, None),
        (6, 3, None),
    ],
)
def test_each_replicate_needs_publications_to_train_on_and_to_judge(
    count: int, replicates: int, wrong: str | None, tmp_path: Path
) -> None:
    (tmp_path / "s.csv").write_text("broker,client,filter\n0,a,price > 1\n")
    rows = "".join(f'{n},0,p,"{{""price"": {n}}}"\n' for n in range(count))
    (tmp_path / "p.csv").write_text("time,broker,publisher,attributes\n" + rows)
    path = tmp_path / "few.toml"
    path.write_text(
        f'replicates = {replicates}\n[overlay]\nkind = "random_tree"\nbrokers = 3\n'
        '[workload]\nsubscriptions = "s.csv"\npublications = "p.csv"\n'
    )
    comparison = settings.load(path)
    if wrong is None:
        settings.first_look(comparison)
        for replicate in range(replicates):
            for training in (True, False):
                dealt = settings.part(
                    comparison.scenario, comparison.folder, 0, replicate, replicates, training
                )
                assert dealt.workload.postings
        return
    with pytest.raises(InputError) as error:
        settings.first_look(comparison)
    assert str(error.value) == f"{path}: {wrong}"


def test_one_generated_publication_is_too_few(tmp_path: Path) -> None:
    path = tmp_path / "few.toml"
    text = '[overlay]\nkind = "random_tree"\nbrokers = 3'
    text += "\n[workload.generate]\nsubscriptions = 3\npublications = "
    path.write_text(f"{text}1\n")
    with pytest.raises(InputError, match=r"too few publications: 1; give at least 2$"):
        settings.first_look(settings.load(path))
    path.write_text(f"{text}2\n")
    settings.first_look(settings.load(path))


def test_the_formula_knows_flooding_and_bounds_forwarding() -> None:
    told = estimates(part(0, False))
    assert told["flooding"]["messages"] == 9
    assert 0 < told["subscription forwarding"]["messages"] < 9
