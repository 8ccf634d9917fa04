"""Who is interested in which topic: from files, or a sample of a social graph.

Interests are rows `node,topic`, as CSV with that header or as Parquet, a file or a folder, with
those columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from postroad import draws
from postroad.errors import InputError
from postroad.overlay import IntArray
from postroad.planning.swico import TopicInterests, from_pairs


def is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet" or path.is_dir()


def rows_count(path: Path) -> int:
    """The rows of Parquet, from its files' footers."""
    from pyarrow import dataset

    try:
        return int(dataset.dataset(path, format="parquet").count_rows())
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot read {str(path)!r}: {error.strerror or error}", remedy="check the file's name"
    )


def read(
    path: Path, names: Mapping[str, str] | None = None
) -> tuple[list[str], list[str], TopicInterests]:
    """The nodes and topics in the order they first appear, and the interests.

    `names` says what `node` and `topic` are called in the file.
    """
    import pyarrow as arrow
    from pyarrow import compute, csv, parquet

    called = {"node": "node", "topic": "topic", **(names or {})}
    if len(called) > 2:
        raise InputError(f"the map names {[*called][2]!r}", remedy="the columns are node and topic")
    try:
        if is_parquet(path):
            table = parquet.read_table(path)
        else:
            as_text = csv.ConvertOptions(
                column_types={name: arrow.string() for name in called.values()},
                strings_can_be_null=False,
            )
            table = csv.read_csv(path, convert_options=as_text)
        columns = [
            table.column(name).cast(arrow.string()).combine_chunks() for name in called.values()
        ]
    except OSError as error:
        raise _unreadable(path, error) from None
    except KeyError:
        raise InputError(
            f"columns {', '.join(table.column_names)}",
            where=str(path),
            remedy="name two of them node and topic, or say --map node=COLUMN",
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
