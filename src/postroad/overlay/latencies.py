"""Overlays where any two brokers can talk: a matrix of latencies and its spanning trees.

A matrix is read from CSV: one row of latencies in ms per broker, with a first line of names if
the brokers have any. A graph is read from lines `a b latency_us`; its brokers are then as far
apart as the shortest path between them takes.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import InputError
from postroad.model import BrokerId
from postroad.overlay import IntArray, Overlay

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# scipy takes a quarter of a second to import: only those who need it wait for it.


def between_all(overlay: Overlay) -> IntArray:
    """The latency between any two brokers: as the overlay knows it, otherwise along its tree."""
    if overlay.direct_us is not None:
        return overlay.direct_us
    return np.array([overlay.path_us(broker) for broker in range(overlay.brokers_count)], np.int64)


def spanning_tree(direct_us: IntArray, members: Sequence[BrokerId] | IntArray) -> IntArray:
    """The links of a minimum spanning tree over some brokers, as pairs in ascending order."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    picked = np.asarray(members, np.int64)
    if len(picked) < 2:
        return np.zeros((0, 2), np.int64)
    # A sparse matrix has no entry where it is 0, so brokers at one place are 1 µs apart here.
    between = np.triu(direct_us[np.ix_(picked, picked)] + 1, 1)
    tree = minimum_spanning_tree(csr_array(between)).tocoo()
    ends = np.sort(np.stack([picked[tree.row], picked[tree.col]], axis=1), axis=1)
    return ends[np.lexsort((ends[:, 1], ends[:, 0]))]


def as_overlay(names: Sequence[str], direct_us: IntArray) -> Overlay:
    """Brokers that can all reach each other, linked by a minimum spanning tree."""
    ends = spanning_tree(direct_us, np.arange(len(names)))
    return Overlay(tuple(names), ends, direct_us[ends[:, 0], ends[:, 1]], direct_us)


def read(path: Path) -> Overlay:
    """A matrix (.csv, .csv.gz) or a graph (any other name) from a file."""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as stream:
            lines = [line.partition("#")[0].strip() for line in stream]
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror or error}", remedy="check the file's name"
        ) from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8", where=str(path), remedy="save it as UTF-8") from None
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line]
    if not numbered:
        raise InputError("nothing in it", where=str(path), remedy="give latencies")
    matrix = ".csv" in path.suffixes
    return (_matrix if matrix else _graph)(numbered, path)


def _matrix(lines: list[tuple[int, str]], path: Path) -> Overlay:
    first = [word.strip() for word in lines[0][1].split(",")]
    names = [str(place) for place in range(len(first))]
    if not all(_number(word) for word in first):
        names, lines = first, lines[1:]
    count = len(names)
    if len(set(names)) != count:
        raise InputError("a name stands twice", where=str(path), remedy="name each broker once")
    if len(lines) != count:
        raise InputError(
            f"{len(lines)} rows for {count} columns",
            where=str(path),
            remedy="give a square matrix, with or without a line of names",
        )
    rows = []
    for number, line in lines:
        words = line.split(",")
        if len(words) != count or not all(_number(word) for word in words):
            raise InputError(
                f"not {count} latencies", where=f"{path}:{number}", remedy="give ms, 0 or more"
            )
        rows.append([float(word) for word in words])
    one_way = np.array(rows)
    mean = np.rint((one_way + one_way.T) * 500).astype(np.int64)
    np.fill_diagonal(mean, 0)
    return as_overlay(names, mean)


def _number(word: str) -> bool:
    try:
        return 0 <= float(word) < float("inf")
    except ValueError:
        return False


def _graph(lines: list[tuple[int, str]], path: Path) -> Overlay:
    from scipy.sparse.csgraph import connected_components, dijkstra

    number: dict[str, BrokerId] = {}
    links = []
    for place, line in lines:
        words = line.replace(",", " ").split()
        if len(words) != 3 or not words[2].isdecimal():
            raise InputError(
                f"{line[:60]!r} is not a link",
                where=f"{path}:{place}",
                remedy="write two brokers and the latency in µs",
            )
        a, b = (number.setdefault(name, len(number)) for name in words[:2])
        links.append((a, b, int(words[2])))
    ends = np.array([link[:2] for link in links], np.int64)
    latency = np.array([link[2] for link in links], np.int64)
    network = graph(len(number), ends, latency)
    if connected_components(network, directed=False)[0] > 1:
        raise InputError(
            "some brokers have no path to others", where=str(path), remedy="add links between them"
        )
    return as_overlay(list(number), np.rint(dijkstra(network)).astype(np.int64))


def graph(nodes: int, ends: IntArray, latency_us: IntArray) -> csr_array:
    """An undirected graph for scipy, where 0 means no link: a link takes at least 1 µs."""
    from scipy.sparse import coo_array

    both = np.concatenate([ends, ends[:, ::-1]])
    keys, place = np.unique(both[:, 0] * nodes + both[:, 1], return_inverse=True)
    least = np.full(len(keys), np.inf)
    np.minimum.at(least, place, np.maximum(1, np.tile(latency_us, 2)))
    return coo_array((least, (keys // nodes, keys % nodes)), shape=(nodes, nodes)).tocsr()
