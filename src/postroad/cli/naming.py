"""`--map`: what columns are called in a user's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroad.errors import InputError

if TYPE_CHECKING:
    from postroad.workloads.files import Names

MAP = click.option(
    "--map",
    "names",
    multiple=True,
    metavar="OURS=THEIRS",
    help="A column or attribute has another name in the file; may be repeated.",
)


def pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """What `--map` says, ours to theirs."""
    names: dict[str, str] = {}
    for text in texts:
        ours, equals, theirs = text.partition("=")
        if not (ours and equals and theirs):
            raise InputError(f"--map is {text!r}", remedy="write it as OURS=THEIRS: symbol=ticker")
        names[ours.strip()] = theirs.strip()
    return names


def names_of(texts: tuple[str, ...]) -> Names:
    from postroad.workloads.files import Names

    return Names(pairs(texts), "--map")
