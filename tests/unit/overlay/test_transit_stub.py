"""Transit-stub networks and latencies from files."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from postroad.errors import InputError
from postroad.overlay.files import read
from postroad.overlay.latencies import plain_links, spanning_tree
from postroad.overlay.transit_stub import transit_stub
from postroad.settings import overlays
from postroad.settings.sections import Section


def test_the_papers_network_has_its_routers_and_links() -> None:
    sizes = [transit_stub(seed) for seed in range(3)]
    assert {made.routers_count for made in sizes} == {2500}
    links = np.mean([2 * len(made.ends) for made in sizes])
    assert abs(links / 8938 - 1) < 0.03


def test_paths_add_up_and_charge_links_that_exist() -> None:
    made = transit_stub(1, servers=40, domains=3)
    direct = made.direct_us
    assert (direct == direct.T).all()
    assert (np.diag(direct) == 0).all()
    both = np.concatenate([made.ends, made.ends[:, ::-1]])
    for source, target in ((0, 1), (7, 31), (39, 2)):
        router, took = int(made.home[target]), 2 * made.lan_us
        while made.before[source, router] >= 0:
            link = int(made.link_into[source, router])
            assert both[link].tolist() == [made.before[source, router], router]
            took += int(made.latency_us[link % len(made.ends)])
            router = int(made.before[source, router])
        assert router == made.home[source]
        assert took == direct[source, target]


def test_multi_homed_domains_have_a_second_link() -> None:
    one, many = transit_stub(3), transit_stub(3, multi_homed=0.1)
    assert 15 <= len(many.ends) - len(one.ends) <= 45


def test_a_matrix_and_a_graph_are_read(tmp_path: Path) -> None:
    matrix = tmp_path / "m.csv"
    matrix.write_text("x,y,z\n0,10,30\n12,0,5\n30,5,0\n")
    made = read(matrix, "one-way")
    assert made.names == ("x", "y", "z")
    assert made.direct_us is not None
    assert made.direct_us.tolist() == [[0, 11_000, 30_000], [11_000, 0, 5_000], [30_000, 5_000, 0]]
    assert made.ends.tolist() == [[0, 1], [1, 2]]
    lines = tmp_path / "g.links"
    lines.write_text("a b 3\nb c 4\na c 9 # longer\n")
    made = read(lines, "one-way")
    assert made.direct_us is not None
    assert made.direct_us.tolist() == [[0, 3, 7], [3, 0, 4], [7, 4, 0]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.csv", "0,1\n1,0\n2,2\n"),
        ("m.csv", "0,1\n1,-4\n"),
        ("m.csv", ""),
        ("m.csv", "a,a\n0,1\n1,0\n"),
        ("g.links", "a b\n"),
        ("g.links", "a b 3\nc d 4\n"),
    ],
)
def test_wrong_files_are_told(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError):
        read(path, "one-way")


def test_a_file_of_round_trips_is_half_as_far_by_every_reader(tmp_path: Path) -> None:
    """The table of the pipeline is held to the same numbers in tests/pipeline/test_ingest.py."""
    path = tmp_path / "m.csv"
    path.write_text("0,10,30\n12,0,5\n30,5,0\n")
    by_reader = [
        {
            times: overlays.read(Section(settings | {"times": times}, "x"), tmp_path, 0).direct_us
            for times in ("one-way", "round-trip")
        }
        for settings in (
            {"kind": "latencies", "file": "m.csv"},
            {"kind": "wide_area", "file": "m.csv", "brokers": 3},
        )
    ]
    for direct_us in by_reader:
        one_way, round_trip = direct_us["one-way"], direct_us["round-trip"]
        assert one_way is not None
        assert round_trip is not None
        assert sorted(one_way.ravel().tolist()) == sorted([0] * 3 + [5000, 11_000, 30_000] * 2)
        assert sorted(round_trip.ravel().tolist()) == sorted([0] * 3 + [2500, 5500, 15_000] * 2)
    for kind in ("latencies", "wide_area"):
        settings = {"kind": kind, "file": "m.csv"} | ({"brokers": 3} if kind == "wide_area" else {})
        with pytest.raises(InputError, match="times"):
            overlays.read(Section(settings, "x"), tmp_path, 0)


def test_a_spanning_tree_takes_the_shortest_links_and_of_equal_ones_the_first() -> None:
    random = np.random.default_rng(3)
    for count in (2, 3, 7, 12):
        for most in (1, 3, 1000):
            direct = random.integers(0, most + 1, (15, 15))
            members = sorted(random.permutation(15)[:count].tolist())
            part = {each: each for each in members}
            kruskal = []
            for _, a, b in sorted((direct[a, b], a, b) for a, b in combinations(members, 2)):
                if part[a] != part[b]:
                    kruskal.append([a, b])
                    part = {k: part[a] if p == part[b] else p for k, p in part.items()}
            assert spanning_tree(direct, members).tolist() == sorted(kruskal)
            assert sorted(plain_links(direct, np.array(members)).tolist()) == sorted(kruskal)


def test_servers_at_one_place_are_spanned() -> None:
    assert len(spanning_tree(np.zeros((4, 4), np.int64), [0, 2, 3])) == 2
