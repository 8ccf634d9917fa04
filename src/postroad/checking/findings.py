"""What a check found: how bad, what, where, which value, and what to do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from postroad.errors import InputError

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
NAMED = 5  # of many, so many are named in a sentence; `value` has them all


@dataclass(frozen=True, slots=True)
class Finding:
    severity: str
    kind: str  # the sort of finding, for programs
    what: str
    where: str  # a file and line, or a file and key
    value: Any = None  # as JSON has it
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def refused(error: InputError, where: str = "") -> Finding:
    """What a reader complained of, as a finding."""
    return Finding(ERROR, "refused", error.what, error.where or where, None, error.remedy)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def some(names: Sequence[str]) -> str:
    """A few of the names, and how many there are besides."""
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {len(names) - NAMED:,} more" if len(names) > NAMED else shown


def plural(count: int, noun: str, several: str = "") -> str:
    """So many of them. `several` is the plural where it is not the noun with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {several or f'{noun}s'}"
