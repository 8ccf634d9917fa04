"""Latencies as others write them: every form gives the same overlay, and doubt is asked about."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from postroad.errors import InputError
from postroad.overlay import files
from postroad.settings import overlays
from postroad.settings.sections import Section

# The same three hosts, 10 ms, 30 ms and 5 ms apart and back, in every form.
FORMS = {
    "alone.csv": "0,10,30\n10,0,5\n30,5,0\n",
    "names.csv": "ams,lon,nyc\n0,10,30\n10,0,5\n30,5,0\n",
    "labelled.csv": ",ams,lon,nyc\nams,0,10,30\nlon,10,0,5\nnyc,30,5,0\n",
    "corner.csv": "host,ams,lon,nyc\nams,0,10,30\nlon,10,0,5\nnyc,30,5,0\n",
    "turned.csv": "x;ams;lon;nyc\nnyc;30;5;0\nlon;10;0;5\nams;0;10;30\n",
    "tabs.csv": "\tams\tlon\tnyc\nams\t0\t10\t30\nlon\t10\t0\t5\nnyc\t30\t5\t0\n",
    "half.csv": ",ams,lon,nyc\nams,,10,30\nlon,,,5\nnyc,,,\n",
    "lines.csv": "ams,lon,10\nams,nyc,30\nlon,nyc,5\n",
    "both.csv": "ams,lon,10\nlon,ams,10\nams,nyc,30\nlon,nyc,5\n",
    "header.csv": "from,to,value\nams,lon,10\nams,nyc,30\nlon,nyc,5\n",
    "numbers.csv": "from,to,value\n1,2,10\n1,3,30\n2,3,5\n",
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_form_is_read_alike(tmp_path: Path, name: str, packed: bool) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(FORMS[name].encode()) if packed else FORMS[name].encode())
    names, direct_us = files.matrix(path, "round-trip", "ms")
    assert direct_us.tolist() == [[0, 5000, 15_000], [5000, 0, 2500], [15_000, 2500, 0]]
    numbered = {"alone.csv": ["0", "1", "2"], "numbers.csv": ["1", "2", "3"]}
    assert names == numbered.get(name, ["ams", "lon", "nyc"])


@pytest.mark.parametrize(
    ("header", "us"),
    [("rtt_ms", 5000), ("Latency (one way, us)", 10), ("owd_s", 10_000_000), ("ping ms", 5000)],
)
def test_a_header_says_what_numbers_are(tmp_path: Path, header: str, us: int) -> None:
    path = tmp_path / "lines.csv"
    path.write_text(f'from,to,"{header}"\na,b,10\nb,c,20\n')
    assert files.matrix(path)[1][0, 1] == us
    tree = Section({"kind": "edges", "file": "lines.csv"}, "x")
    assert overlays.read(tree, tmp_path, 0).latency_us.tolist() == [us, 2 * us]


@pytest.mark.parametrize(
    ("text", "settings", "question"),
    [
        ("0,10\n10,0\n", {}, "one way or round trips"),
        ("a,b,10\nb,c,5\n", {"times": "rtt"}, "in which unit"),
        ("from,to,latency_ms\na,b,10\n", {}, "one way or round trips"),
        ("from,to,rtt_ms\na,b,10\n", {"times": "one-way"}, "the header says 'rtt_ms'"),
        ("from,to,rtt_ms\na,b,10\n", {"unit": "us"}, "the header says 'rtt_ms'"),
        ("0,81000\n81000,0\n", {"times": "rtt"}, "the median latency would be 40,500 ms"),
        ("1,2,10\n2,3,5\n1,3,9\n", {"times": "rtt", "unit": "ms"}, "a matrix, or lines"),
        (",a,b\na,0,1\nc,1,0\n", {"times": "rtt"}, "'c' is not among the names above"),
        ("0,10\n10,0\n", {"times": "both"}, "times is 'both'"),
        ("0,10\n10,0\n", {"times": "rtt", "unit": "min"}, "unit is 'min'"),
    ],
)
def test_doubt_is_a_question(
    tmp_path: Path, text: str, settings: dict[str, str], question: str
) -> None:
    (tmp_path / "l.csv").write_text(text)
    for kind in ({"kind": "latencies"}, {"kind": "wide_area", "brokers": 2}):
        with pytest.raises(InputError, match=question):
            overlays.read(Section({**kind, "file": "l.csv", **settings}, "x"), tmp_path, 0)


def test_a_mesh_says_which_kind_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "mesh"
    path.write_text("a b 10\nb c 5\na c 30\n")
    with pytest.raises(InputError, match=r'closes a cycle; .* kind = "latencies"'):
        overlays.read(Section({"kind": "edges", "file": "mesh"}, "x"), tmp_path, 0)
    mesh = {"kind": "latencies", "file": "mesh", "times": "one-way"}
    assert overlays.read(Section(mesh, "x"), tmp_path, 0).ends.tolist() == [[0, 1], [1, 2]]
    path.write_text("0,1,2,3\n1,0,2,3\n2,2,0,3\n3,3,3,0\n")
    with pytest.raises(InputError, match=r'a matrix is for kind = "latencies"'):
        overlays.read(Section({"kind": "edges", "file": "mesh"}, "x"), tmp_path, 0)


def test_a_tree_with_fractions_asks_for_the_unit(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("a b 12.5\nb c 3\n")
    with pytest.raises(InputError, match=r"12\.5 is no whole number of µs; set unit"):
        overlays.read(Section({"kind": "edges", "file": "e"}, "x"), tmp_path, 0)
    settings = {"kind": "edges", "file": "e", "unit": "ms", "times": "rtt"}
    assert overlays.read(Section(settings, "x"), tmp_path, 0).latency_us.tolist() == [6250, 1500]
