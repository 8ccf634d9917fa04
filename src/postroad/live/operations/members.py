"""Adding brokers to a network file and removing them, so that running brokers can follow.

Brokers are known to each other, and in their stores, by their place in the file. So a new one is
written behind all others, and one that leaves keeps its place and is named in `removed`. The rest
of the file, comments too, stays as it is; nothing is written unless the result is a good file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tomlkit

from postroad.errors import InputError
from postroad.live.network import DURABLE, Address, Network, from_values, load
from postroad.settings import toml
from postroad.settings.sections import key_lines


@dataclass(frozen=True)
class Change:
    """A network as it will be once its file says so."""

    network: Network
    text: str

    def write(self) -> None:
        path = self.network.path
        beside = path.with_name(f"{path.name}.new")
        beside.write_text(self.text, encoding="utf-8")
        os.replace(beside, path)


def add(path: Path, name: str, address: Address, to: Sequence[str], workers: int = 1) -> Change:
    """A further broker, joined to these, of so many workers."""
    old = load(path)
    _check(old)
    if name in old.names:
        raise InputError(
            f"there is or was a broker {name!r}", where=str(path), remedy="choose another name"
        )
    document = tomlkit.parse(toml.read_text(path))
    _append(document, "links", [[peer, name] for peer in to])
    more = {} if workers == 1 else {"workers": workers}
    document["brokers"][name] = {**asdict(address), **more}
    return _change(path, tomlkit.dumps(document), old)


def remove(path: Path, name: str) -> Change:
    """A broker leaves; the others must stay joined."""
    old = load(path)
    old.number(name)
    _check(old)
    document = tomlkit.parse(toml.read_text(path))
    _append(document, "removed", [name])
    return _change(path, tomlkit.dumps(document), old)


def _check(old: Network) -> None:
    if not old.grows:
        raise InputError(
            f"brokers cannot come or go in a network with {old.relocation or old.scheme}",
            where=str(old.path),
            remedy=f"choose one of {', '.join(DURABLE)} without relocation, or a ring with "
            'membership = "messages", or restart the network',
        )


def _change(path: Path, text: str, old: Network) -> Change:
    new = from_values(toml.parse(text, str(path)), path, key_lines(text))
    if new.redundant != old.redundant:
        raise InputError(
            "with this broker the links would close a cycle, and before they did not",
            where=str(path),
            remedy="join it to one broker, or stop the network and begin again with new stores",
        )
    return Change(new, text)


def _append(document: tomlkit.TOMLDocument, key: str, values: Sequence[object]) -> None:
    """More values for a list at the top; the list is made if there is none."""
    if key in document:
        document[key].add_line(*values)  # what is appended would land in a last line's comment
    else:
        document[key] = list(values)
