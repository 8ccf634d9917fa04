"""Who is interested in which topic, from files.

Interests are rows `node,topic`, as CSV with that header or as Parquet with those columns. A
social graph is an edge list, perhaps gzipped: `a b` on a line says that a is interested in
what b says, and b in what a says too if the graph has friends rather than followers.
"""

from __future__ import annotations

import gzip
from collections import deque
from pathlib import Path

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.errors import InputError
from postroad.overlay import IntArray
from postroad.planning.swico import TopicInterests, from_pairs

FloatArray = npt.NDArray[np.float64]
_MANY = 20_000  # topics, from which on drawing one after the other is quicker
_AT_ONCE = 20_000  # nodes


def read(path: Path) -> tuple[list[str], list[str], TopicInterests]:
    """The nodes and topics in the order they first appear, and the interests."""
    import pyarrow as arrow
    from pyarrow import compute, csv, parquet

    try:
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
        else:
            as_text = csv.ConvertOptions(
                column_types={"node": arrow.string(), "topic": arrow.string()},
                strings_can_be_null=False,
            )
            table = csv.read_csv(path, convert_options=as_text)
        columns = [
            table.column(name).cast(arrow.string()).combine_chunks() for name in ("node", "topic")
        ]
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror or error}", remedy="check the file's name"
        ) from None
    except KeyError:
        raise InputError(
            f"columns {', '.join(table.column_names)}",
            where=str(path),
            remedy="name two of them node and topic",
        ) from None
    except arrow.ArrowInvalid as error:
        first = str(error).splitlines()[0]
        raise InputError(first, where=str(path), remedy="give rows node,topic") from None
    for name, column in zip(("node", "topic"), columns, strict=True):
        named = compute.not_equal(column.fill_null(""), "")
        if (row := compute.index(named, False).as_py()) >= 0:
            raise InputError(
                f"row {row + 1} has no {name}",
                where=str(path),
                remedy="name a node and a topic in each row",
            )
    if not len(columns[0]):
        raise InputError("no interests", where=str(path), remedy="give rows node,topic")
    # A dictionary holds its values in the order they first appear.
    node, topic = (column.dictionary_encode() for column in columns)
    interests = from_pairs(
        node.indices.to_numpy(),
        topic.indices.to_numpy(),
        len(node.dictionary),
        len(topic.dictionary),
    )
    return node.dictionary.to_pylist(), topic.dictionary.to_pylist(), interests


def synthetic(
    kind: str, nodes: int, topics: int, each: int, seed: int, alpha: float = 2.0
) -> TopicInterests:
    """Section 5.2: each node is interested in `each` topics, drawn by popularity without
    replacement: `unif`, `zipf` (rank^-alpha) or `expo` (halving every tenth of the topics)."""
    rank = np.arange(topics)
    weights = {
        "unif": np.ones(topics),
        "zipf": (rank + 1.0) ** -alpha,
        "expo": 0.5 ** (10 * rank / topics),
    }[kind]
    chance = np.random.default_rng(draws.bits(seed, f"interests.{kind}", nodes, topics))
    chosen = np.empty((nodes, each), np.int64)
    if topics > _MANY:
        cumulative = np.cumsum(weights)
        cumulative /= cumulative[-1]  # which no draw exceeds
        for first in range(0, nodes, _AT_ONCE):
            _draw_distinct(chosen[first : first + _AT_ONCE], cumulative, chance)
    else:
        # The `each` least of exponential variates with these rates are such a draw.
        for node in range(nodes):
            keys = chance.exponential(size=topics) / weights
            chosen[node] = np.argpartition(keys, each - 1)[:each] if each < topics else rank
    return from_pairs(np.repeat(np.arange(nodes), each), chosen.reshape(-1), nodes, topics)


def _draw_distinct(chosen: IntArray, cumulative: FloatArray, chance: np.random.Generator) -> None:
    """Fill each row with the first different topics of a sequence of draws by popularity."""
    each = chosen.shape[1]
    short = np.arange(len(chosen))
    drawn = np.empty((len(chosen), 0), np.int64)
    while len(short):
        more = np.searchsorted(
            cumulative, chance.random((len(short), max(2 * each, drawn.shape[1])))
        )
        drawn = np.concatenate([drawn, more], axis=1)
        by_topic = np.argsort(drawn, axis=1, kind="stable")
        ordered = np.take_along_axis(drawn, by_topic, axis=1)
        first = np.ones(drawn.shape, bool)
        np.put_along_axis(first, by_topic[:, 1:], ordered[:, 1:] != ordered[:, :-1], axis=1)
        number = first.cumsum(axis=1)
        done = number[:, -1] >= each
        taken = first & (number <= each)
        chosen[short[done]] = drawn[done][taken[done]].reshape(-1, each)
        short, drawn = short[~done], drawn[~done]


def read_graph(path: Path) -> IntArray:
    """The edges of a social graph as pairs of users, without self-loops; users as numbered."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as stream:
            edges = np.loadtxt(stream, dtype=np.int64, comments="#", ndmin=2)
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror or error}", remedy="check the file's name"
        ) from None
    except ValueError as error:
        raise InputError(str(error), where=str(path), remedy="give two numbers a line") from None
    return edges[edges[:, 0] != edges[:, 1], :2]


def sample(edges: IntArray, users: int, seed: int, friends: bool) -> TopicInterests:
    """A breadth-first sample: every user a topic, and all edges among those visited.

    `a b` says that a follows b; `friends` that b follows a as well. The search starts from a
    random user, takes edges either way, and starts again elsewhere if it runs out.
    """
    names, numbers = np.unique(edges, return_inverse=True)
    follower, followed = numbers.reshape(edges.shape).T
    count = len(names)
    near = np.concatenate([follower, followed])
    far = np.concatenate([followed, follower])
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(near, minlength=count), out=start[1:])
    far = far[np.lexsort((far, near))]
    place = np.full(count, -1, np.int64)
    visited = 0
    starts = iter(range(8 * count))
    queue: deque[int] = deque()
    while visited < min(users, count):
        if not queue:
            user = draws.below(count, seed, "interests.sample", 0, next(starts))
            if place[user] >= 0:
                continue
            place[user] = visited
            visited += 1
            queue.append(user)
        user = queue.popleft()
        for peer in far[start[user] : start[user + 1]].tolist():
            if place[peer] < 0 and visited < users:
                place[peer] = visited
                visited += 1
                queue.append(peer)
    kept = (place[follower] >= 0) & (place[followed] >= 0)
    nodes, topics = place[follower[kept]], place[followed[kept]]
    if friends:
        nodes, topics = np.concatenate([nodes, topics]), np.concatenate([topics, nodes])
    return from_pairs(nodes, topics, visited, visited)
