"""Overlays and latencies from files: links, matrices and graphs, gzipped or not.

Latencies are one way, in whole microseconds. Measured ones are often round trips: whoever reads a
matrix says which it holds.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from postroad.errors import InputError
from postroad.model import TimeUs
from postroad.overlay import IntArray, Overlay, from_links
from postroad.overlay.latencies import as_overlay, shortest_paths

TIMES = ("one-way", "round-trip")
"""What a measured latency may be."""
FloatArray = npt.NDArray[np.float64]


@contextmanager
def readable(path: Path) -> Iterator[IO[str]]:
    """A text file, unpacked on the way if its name ends in .gz; a failure names the file."""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror or error}", remedy="check the file's name"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8", where=str(path), remedy="save the file as UTF-8"
        ) from None


def lines(path: Path) -> list[tuple[int, str]]:
    """The lines that hold anything, numbered, without comments."""
    with readable(path) as file:
        stripped = [line.partition("#")[0].strip() for line in file]
    return [(number, line) for number, line in enumerate(stripped, 1) if line]


def links(path: Path, latency_us: TimeUs | None = None) -> list[tuple[str, str, TimeUs]]:
    """Lines `a b latency_us`, split by blanks, tabs or commas; a default may stand for the last."""
    links: list[tuple[str, str, TimeUs]] = []
    for number, line in lines(path):
        words = line.replace(",", " ").split()
        if len(words) == 2 and latency_us is not None:
            words.append(str(latency_us))
        if len(words) != 3 or not words[2].isdecimal():
            rest = "the latency in µs" if latency_us is None else "if it differs, the latency in µs"
            raise InputError(
                f"{line[:60]!r} is not a link",
                where=f"{path}:{number}",
                remedy=f"write two brokers and {rest}",
            )
        links.append((words[0], words[1], int(words[2])))
    return links


def tree(path: Path, latency_us: TimeUs) -> Overlay:
    """A tree from the lines of a file."""
    return from_links(links(path, latency_us), str(path))


def read(path: Path, times: str) -> Overlay:
    """Brokers that can all reach each other: a matrix (.csv, .csv.gz), or a graph of links.

    In a graph they are as far apart as the shortest path between them takes.
    """
    if ".csv" in path.suffixes:
        return as_overlay(*matrix(path, times))
    joined = links(path)
    number: dict[str, int] = {}
    ends = [[number.setdefault(name, len(number)) for name in link[:2]] for link in joined]
    if not joined:
        raise InputError("nothing in it", where=str(path), remedy="give latencies")
    latency = np.rint(_one_way(np.array([float(link[2]) for link in joined]), times))
    direct_us = shortest_paths(len(number), np.array(ends), latency.astype(np.int64))
    if direct_us is None:
        raise InputError(
            "some brokers have no path to others", where=str(path), remedy="add links between them"
        )
    return as_overlay(list(number), direct_us)


def matrix(path: Path, times: str) -> tuple[list[str], IntArray]:
    """The names of the hosts and the latencies between any two.

    A square matrix of milliseconds, separated by commas, with a first line of names if the hosts
    have any; or lines `host host microseconds`, hosts numbered from any number on, as the King data
    set has them. A pair that the lines leave out, or give as negative, is as far apart as the
    shortest way through others. Where a pair was measured in both directions the mean counts.
    """
    rows = lines(path)
    if not rows:
        raise InputError("nothing in it", where=str(path), remedy="give latencies")
    if "," in rows[0][1]:
        names, measured_ms = _square(rows, path)
    else:
        names, measured_ms = _triples(rows, path)
    direct_us = np.rint(_one_way(measured_ms + measured_ms.T, times) * 500).astype(np.int64)
    np.fill_diagonal(direct_us, 0)
    return names, direct_us


def _one_way(measured: FloatArray, times: str) -> FloatArray:
    assert times in TIMES, times
    return measured / 2 if times == "round-trip" else measured


def _square(rows: list[tuple[int, str]], path: Path) -> tuple[list[str], FloatArray]:
    first = [word.strip() for word in rows[0][1].split(",")]
    names = [str(place) for place in range(len(first))]
    if not all(map(_latency, first)):
        names, rows = first, rows[1:]
    count = len(names)
    if len(set(names)) != count:
        raise InputError("a name stands twice", where=str(path), remedy="name each broker once")
    if len(rows) != count:
        raise InputError(
            f"{len(rows)} rows for {count} columns",
            where=str(path),
            remedy="give a square matrix, with or without a line of names",
        )
    values = []
    for number, line in rows:
        words = line.split(",")
        if len(words) != count or not all(map(_latency, words)):
            raise InputError(
                f"not {count} latencies", where=f"{path}:{number}", remedy="give ms, 0 or more"
            )
        values.append([float(word) for word in words])
    return names, np.array(values)


def _latency(word: str) -> bool:
    try:
        return 0 <= float(word) < float("inf")
    except ValueError:
        return False


def _triples(rows: list[tuple[int, str]], path: Path) -> tuple[list[str], FloatArray]:
    """The matrix of lines `host host µs`, in ms, gaps filled by the shortest ways."""
    values = []
    for number, line in rows:
        try:
            host, other, micros = line.split()
            values.append((int(host), int(other), float(micros)))
        except ValueError:
            raise InputError(
                f"{line[:60]!r} is not a latency",
                where=f"{path}:{number}",
                remedy="give two hosts' numbers and µs",
            ) from None
    table = np.array(values)
    hosts, places = np.unique(table[:, :2], return_inverse=True)
    ends = places.reshape(-1, 2)
    known = table[:, 2] >= 0
    trips = np.full((len(hosts), len(hosts)), np.inf)
    for a, b in ((0, 1), (1, 0)):
        np.minimum.at(trips, (ends[known, a], ends[known, b]), table[known, 2])
    np.fill_diagonal(trips, 0)
    if np.isinf(trips).any():
        from scipy.sparse.csgraph import shortest_path

        ways = shortest_path(np.where(np.isinf(trips), 0, trips), directed=False)
        if np.isinf(ways).any():
            raise InputError(
                "some hosts are not connected", where=str(path), remedy="leave them out"
            )
        trips = np.where(np.isinf(trips), ways, trips)
    return [f"{host:g}" for host in hosts], trips / 1000
