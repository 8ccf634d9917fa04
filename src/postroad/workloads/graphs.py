"""Social graphs: files of `a b` lines, perhaps gzipped, that say a follows b."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from postroad.errors import InputError
from postroad.overlay import IntArray
from postroad.overlay.files import readable
from postroad.workloads.model import Bad, refuse


def edges(path: Path, bad: Bad = refuse) -> list[tuple[str, str]]:
    """Every line's follower and followed, split by blanks, tabs or commas; `#` starts a comment."""
    pairs = []
    with readable(path) as file:
        for number, line in enumerate(file, 1):
            words = line.partition("#")[0].replace(",", " ").split()
            if len(words) == 2:
                pairs.append((words[0], words[1]))
            elif words:
                bad(
                    InputError(
                        f"{line.strip()[:60]!r} is not an edge",
                        where=f"{path}:{number}",
                        remedy="write who follows and who is followed",
                    )
                )
    return pairs


def numbered_edges(path: Path) -> IntArray:
    """The edges of a graph whose users are numbers, without self-loops."""
    pairs = edges(path)
    try:
        users = np.array(pairs, np.int64).reshape(-1, 2)
    except ValueError:
        number, pair = next(
            (n, pair) for n, pair in enumerate(pairs) if not "".join(pair).isdecimal()
        )
        raise InputError(
            f"edge {number + 1}, {' '.join(pair)[:60]!r}, is not of two numbers",
            where=str(path),
            remedy="number the users",
        ) from None
    return np.asarray(users[users[:, 0] != users[:, 1]])


def most_followed(path: Path, users: int) -> list[int]:
    """The follower counts of the most followed users, descending."""
    counts = Counter(followed for follower, followed in edges(path) if follower != followed)
    return sorted(counts.values(), reverse=True)[:users]
