"""What processes compile at the same time into one cache."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from numba.core import caching

import postroad.jit  # noqa: F401


def test_two_that_save_at_once_do_not_exchange_their_code(tmp_path: Path) -> None:
    first, second = (caching.IndexDataCacheFile(str(tmp_path), "kernel", 1) for _ in range(2))
    other = Thread(target=second.save, args=("of floats", "code for floats"))
    write = first._save_index

    def interrupted(overloads: dict[str, str]) -> None:
        other.start()
        other.join(timeout=0.5)  # it has to wait; if it need not, it is done by then
        write(overloads)

    first._save_index = interrupted
    first.save("of integers", "code for integers")
    other.join()
    assert first.load("of integers") == "code for integers"
    assert first.load("of floats") == "code for floats"
    assert first.load("of texts") is None
