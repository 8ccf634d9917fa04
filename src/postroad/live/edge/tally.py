"""What came from a broker's clients and went to them, in numbers: for its status, its metrics and
`$SYS`."""

from __future__ import annotations


class Tally:
    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "delivered",
        "dropped",
        "numbered",
        "published",
        "refused",
    )

    def __init__(self) -> None:
        self.published = self.delivered = self.dropped = 0  # publications
        self.refused = 0  # connections and clients
        self.bytes_received = self.bytes_sent = 0
        self.numbered = 0  # publications, sessions, and all else that is named by a number
