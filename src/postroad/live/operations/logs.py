"""Logs as one JSON object a line on standard error, so many a second for each reason.

What clients do wrong is logged, and they may do it as fast as they can send: of lines that say the
same for the same reason only the first few of a second are written, and then how many were not.
Errors are always written.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import IO

PER_REASON = 10  # lines a second that say the same for the same reason
PER_MESSAGE = 50  # and for any reason
_KIND = re.compile(r"[^0-9'\"`:(\[]{0,40}")  # of a reason, without what it is about

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "what": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _USUAL},
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)


class Limited(logging.StreamHandler[IO[str]]):
    """Writes only the first lines of each second, and once it is over how many there were more."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.second = 0
        self.written: Counter[tuple[str, str]] = Counter()
        self.suppressed: Counter[tuple[str, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.summarise(record.created)
        if record.levelno < logging.ERROR:
            kind = _KIND.match(str(getattr(record, "reason", "")))
            of_reason = (record.msg, "" if kind is None else kind[0].strip())
            of_message = (record.msg, "*")
            if self.written[of_message] >= PER_MESSAGE or self.written[of_reason] >= PER_REASON:
                crowded = self.written[of_message] >= PER_MESSAGE
                self.suppressed[of_message if crowded else of_reason] += 1
                return
            self.written[of_message] += 1
            self.written[of_reason] += 1
        super().emit(record)

    def summarise(self, now_s: float) -> None:
        """Once a second is over, say what was not written in it."""
        if int(now_s) == self.second:
            return
        self.second = int(now_s)
        self.written.clear()
        suppressed, self.suppressed = self.suppressed, Counter()
        for (what, reason), count in suppressed.items():
            fields = {"msg": "lines suppressed", "levelno": logging.WARNING, "levelname": "WARNING"}
            totals = {"of": what, "reason": reason or "*", "count": count}
            super().emit(logging.makeLogRecord({**fields, **totals}))


def summarise(now_s: float) -> None:
    """Have every such handler say what it did not write; to be called now and then."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Limited):
            handler.summarise(now_s)


def set_up(level: str) -> None:
    stream = Limited()
    stream.setFormatter(Lines())
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)
