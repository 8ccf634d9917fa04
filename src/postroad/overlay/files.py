"""Overlays and latencies from files: links, matrices and graphs, gzipped or not.

Inside Postroad latencies are one way, in whole microseconds. Files hold other units, and often
round trips. What a number means comes from the caller, from a header that names it (`rtt_ms`), or
from the format where that leaves no choice; otherwise reading fails with a question.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
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
"""What a measured latency may be; `rtt` also stands for the second."""
UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
DOUBTFUL_MS = 10_000  # a median above this is more likely in microseconds
_UNITS = {
    "us": "us", "µs": "us", "usec": "us", "microseconds": "us",
    "ms": "ms", "msec": "ms", "milliseconds": "ms",
    "s": "s", "sec": "s", "seconds": "s",
}  # fmt: skip
_TRIPS = {
    "rtt": "round-trip", "ping": "round-trip", "round": "round-trip", "roundtrip": "round-trip",
    "oneway": "one-way", "owd": "one-way", "one": "one-way",
}  # fmt: skip
_ENDS = ("from", "to", "a", "b", "source", "target", "src", "dst", "host", "other", "destination")
_MISSING = ("", "-", "na", "n/a", "nan", "null", "none")
Cells = list[tuple[int, list[str]]]
"""The lines of a file, numbered, each cut into its cells."""
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


def cells(path: Path) -> Cells:
    """The lines of a file, cut at commas, semicolons or tabs, otherwise at blanks."""
    cut: Cells = []
    for number, line in lines(path):
        separator = next((each for each in ",;\t" if each in line), None)
        if separator is None:
            words = line.split()
        else:
            words = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
        cut.append((number, [word.strip() for word in words]))
    return cut


def _separated(path: Path) -> bool:
    """Whether the first line is cut at more than blanks."""
    with readable(path) as file:
        text = next((line for line in file if line.partition("#")[0].strip()), "")
    return any(each in text.strip() for each in ",;\t")


def scale_us(path: Path, header: str, times: str | None, unit: str | None, default: str) -> float:
    """One-way microseconds for each unit of a file's numbers, from what the caller says, what the
    header says, and the format's own unit (empty if it has none)."""
    words = re.split(r"[^a-zµ]+", header.lower())
    choices = (
        ("times", times, _TRIPS, "", "one-way, or round-trip as ping measures"),
        ("unit", unit, _UNITS, default, "us, ms or s"),
    )
    meant = []
    for key, value, known, usual, remedy in choices:
        named = next((known[word] for word in words if word in known), None)
        if value is not None and named is not None and value != named:
            raise InputError(
                f"{key} is {value!r} and the header says {header!r}",
                where=str(path),
                remedy=f"leave {key} out, or change the header",
            )
        chosen = value or named or usual
        if not chosen:
            what = "one way or round trips" if key == "times" else "in which unit"
            raise InputError(
                f"nothing says whether its latencies are {what}"
                if key == "times"
                else f"nothing says {what} its latencies are",
                where=str(path),
                remedy=f"set {key}: {remedy}",
            )
        meant.append(chosen)
    return UNITS_US[meant[1]] / (2 if meant[0] == "round-trip" else 1)


def links(
    path: Path, latency_us: TimeUs | None = None, times: str | None = None, unit: str | None = None
) -> list[tuple[str, str, TimeUs]]:
    """Lines `a b latency_us`, split by blanks, tabs or commas; a default may stand for the last.

    Without a header and with neither `times` nor `unit`, latencies are whole microseconds one way.
    """
    rows = cells(path)
    header = ""
    if rows and _is_header(rows[0][1]):
        header = " ".join(rows[0][1][2:])
        rows = rows[1:]
    own = not header and times is None and unit is None
    scale = 1.0
    if not own and any(len(words) == 3 for _, words in rows):
        scale = scale_us(path, header, times, unit, "")
    links: list[tuple[str, str, TimeUs]] = []
    for number, words in rows:
        if len(words) == 2 and latency_us is not None:
            links.append((words[0], words[1], latency_us))
            continue
        if len(words) == 3 and own and _latency(words[2]) and not words[2].isdecimal():
            raise InputError(
                f"{words[2]} is no whole number of µs",
                where=f"{path}:{number}",
                remedy="set unit (us, ms or s) and times (one-way or round-trip)",
            )
        if len(words) != 3 or not _latency(words[2]):
            rest = "the latency in µs" if latency_us is None else "if it differs, the latency in µs"
            remedy = f"write two brokers and {rest}"
            if len(words) > 3:
                remedy += '; a matrix is for kind = "latencies"'
            raise InputError(
                f"{' '.join(words)[:60]!r} is not a link", where=f"{path}:{number}", remedy=remedy
            )
        links.append((words[0], words[1], round(float(words[2]) * scale)))
    return links


def _is_header(words: Sequence[str]) -> bool:
    """Whether the first line of a file of links names its columns."""
    ends = len(words) in (2, 3) and all(word.lower() in _ENDS[:2] for word in words[:2])
    return ends or (len(words) == 3 and not _latency(words[2]) and not _is_missing(words[2]))


def tree(
    path: Path, latency_us: TimeUs, times: str | None = None, unit: str | None = None
) -> Overlay:
    """A tree from the lines of a file."""
    return from_links(
        links(path, latency_us, times, unit),
        str(path),
        'give the links of a tree, or set kind = "latencies", which takes any graph and links its '
        "brokers by a minimum spanning tree",
    )


def read(path: Path, times: str | None = None, unit: str | None = None) -> Overlay:
    """Brokers that can all reach each other: a matrix (.csv, .csv.gz), or a graph of links.

    In a graph they are as far apart as the shortest path between them takes.
    """
    if ".csv" in path.suffixes:
        return as_overlay(*matrix(path, times, unit))
    rows = cells(path)
    if not rows:
        raise InputError("nothing in it", where=str(path), remedy="give latencies")
    header = _is_header(rows[0][1])
    if len(rows[0][1]) > 3 or (not header and unit is None and _is_square(rows)):
        return as_overlay(*matrix(path, times, unit))
    default = "" if header else "us"
    said = " ".join(rows[0][1][2:]) if header else ""
    scale = scale_us(path, said, times, unit, default)
    number: dict[str, int] = {}
    ends: list[list[int]] = []
    latency: list[float] = []
    for line, words in rows[header:]:
        if len(words) != 3 or not _latency(words[2]):
            raise InputError(
                f"{' '.join(words)[:60]!r} is not a link",
                where=f"{path}:{line}",
                remedy="write two brokers and the latency between them",
            )
        ends.append([number.setdefault(name, len(number)) for name in words[:2]])
        latency.append(float(words[2]) * scale)
    direct_us = shortest_paths(len(number), np.array(ends), np.rint(latency).astype(np.int64))
    if direct_us is None:
        raise InputError(
            "some brokers have no path to others", where=str(path), remedy="add links between them"
        )
    return as_overlay(list(number), direct_us)


def matrix(
    path: Path, times: str | None = None, unit: str | None = None
) -> tuple[list[str], IntArray]:
    """The names of the hosts and the latencies between any two.

    A square matrix, in milliseconds unless `unit` says otherwise, alone, below a line of names, or
    with names above and on the left; a cell may be empty. Or lines `from,to,value`, with a header
    or without, for which somebody has to say the unit; or lines `host host microseconds` with
    blanks between, as the King data set has them. Of a pair that a matrix has in both directions
    the mean counts, of lines the least. A pair that is missing, or negative in lines, is as far
    apart as the shortest way through others.
    """
    rows = cells(path)
    if not rows:
        raise InputError("nothing in it", where=str(path), remedy="give latencies")
    first = rows[0][1]
    if len(first) == 3 and not _is_square(rows):
        header = " ".join(first[2:]) if _is_header(first) else ""
        body = rows[1:] if header else rows
        separated = _separated(path)
        if separated and _is_three_by_three(body) and not header:
            raise InputError(
                "three lines of three numbers: a matrix, or lines from,to,value?",
                where=str(path),
                remedy="add a first line: from,to,ms for lines, names of hosts for a matrix",
            )
        scale = scale_us(path, header, times, unit, "" if header or separated else "us")
        names, measured = _triples(body, path)
    else:
        scale = scale_us(path, "", times, unit, "ms")
        names, measured = _square(rows, path)
        if unit is None and (median := float(np.median(measured))) > DOUBTFUL_MS:
            raise InputError(
                f"the median latency would be {median:,.0f} ms",
                where=str(path),
                remedy="set unit: us, ms or s",
            )
    direct_us = np.rint((measured + measured.T) * scale / 2).astype(np.int64)
    np.fill_diagonal(direct_us, 0)
    return names, direct_us


def _is_square(rows: Cells) -> bool:
    """Whether a file with three cells in its first line is a matrix rather than `from,to,value`."""
    first = rows[0][1]
    if len(first) != 3:
        return True
    if not all(map(_number, first)):  # names, labels, or the header of lines
        body = [words for _, words in rows[1:]]
        ends = all(word.lower() in _ENDS for word in first[:2])
        labels = not first[0] or {words[0] for words in body} in ({*first}, {*first[1:]})
        names = len(body) == 3 and all(_number(word) for words in body for word in words[:3])
        return labels or (names and not ends)
    if len(rows) != 3 or not all(len(words) == 3 for _, words in rows):
        return False
    return all(_latency(words[place]) for place, (_, words) in enumerate(rows)) and (
        all(float(words[place]) == 0 for place, (_, words) in enumerate(rows))
    )


def _is_three_by_three(rows: Cells) -> bool:
    return len(rows) == 3 and all(_number(word) for _, words in rows for word in words)


def _square(rows: Cells, path: Path) -> tuple[list[str], FloatArray]:
    first = rows[0][1]
    names = [str(place) for place in range(len(first))]
    labelled = False
    if not all(_number(word) or _is_missing(word) for word in first) or first[0] == "":
        names, rows = first, rows[1:]
        labelled = bool(rows) and len(rows[0][1]) == len(rows) + 1
        if labelled:
            names = first[-len(rows) :]
    count = len(names)
    if len(set(names)) != count:
        raise InputError("a name stands twice", where=str(path), remedy="name each broker once")
    if len(rows) != count:
        raise InputError(
            f"{len(rows)} rows for {count} columns",
            where=str(path),
            remedy="give a square matrix, with or without names, or lines from,to,value",
        )
    place = {name: number for number, name in enumerate(names)}
    values = np.full((count, count), np.nan)
    for position, (number, words) in enumerate(rows):
        if labelled:
            label = words[0]
            if label not in place:
                raise InputError(
                    f"{label!r} is not among the names above",
                    where=f"{path}:{number}",
                    remedy="give rows and columns the same names",
                )
            position = place[label]
            words = words[1:]
        if len(words) != count or not all(_latency(word) or _is_missing(word) for word in words):
            raise InputError(
                f"not {count} latencies", where=f"{path}:{number}", remedy="give 0 or more"
            )
        values[position] = [np.nan if _is_missing(word) else float(word) for word in words]
    np.fill_diagonal(values, 0)
    values = np.where(np.isnan(values), values.T, values)
    return names, _filled(np.where(np.isnan(values), np.inf, values), path)


def _number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _latency(word: str) -> bool:
    return _number(word) and 0 <= float(word) < float("inf")


def _is_missing(word: str) -> bool:
    return word.lower() in _MISSING


def _triples(rows: Cells, path: Path) -> tuple[list[str], FloatArray]:
    """The matrix of lines `host host value`: hosts that are numbers in their order, others in that
    of their first line."""
    hosts: list[tuple[str, str]] = []
    values: list[float] = []
    for number, words in rows:
        if len(words) != 3 or not (_number(words[2]) or _is_missing(words[2])):
            raise InputError(
                f"{' '.join(words)[:60]!r} is not a latency",
                where=f"{path}:{number}",
                remedy="give two hosts and the latency between them",
            )
        hosts.append((words[0], words[1]))
        values.append(-1.0 if _is_missing(words[2]) else float(words[2]))
    names = list(dict.fromkeys(host for pair in hosts for host in pair))
    if all(name.lstrip("-").isdecimal() for name in names):
        names.sort(key=int)
    place = {name: number for number, name in enumerate(names)}
    ends = np.array([(place[a], place[b]) for a, b in hosts], np.int64).reshape(-1, 2)
    measured = np.array(values)
    known = measured >= 0
    trips = np.full((len(names), len(names)), np.inf)
    for a, b in ((0, 1), (1, 0)):
        np.minimum.at(trips, (ends[known, a], ends[known, b]), measured[known])
    np.fill_diagonal(trips, 0)
    return names, _filled(trips, path)


def _filled(trips: FloatArray, path: Path) -> FloatArray:
    """The matrix with the shortest way through others where a pair is infinite."""
    if not np.isinf(trips).any():
        return trips
    from scipy.sparse.csgraph import shortest_path

    ways = shortest_path(np.where(np.isinf(trips), 0, trips), directed=False)
    if np.isinf(ways).any():
        raise InputError("some hosts are not connected", where=str(path), remedy="leave them out")
    return np.where(np.isinf(trips), ways, trips)
