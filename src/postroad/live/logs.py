"""Logs as one JSON object a line on standard error."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

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


def set_up(level: str) -> None:
    stream = logging.StreamHandler()
    stream.setFormatter(Lines())
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)
