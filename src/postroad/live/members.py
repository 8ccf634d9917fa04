"""Adding brokers to a network file and removing them, so that running brokers can follow.

Brokers are known to each other, and in their stores, by their place in the file. So a new one is
written behind all others, and one that leaves keeps its place and is named in `removed`. The rest
of the file, comments too, stays as it is; nothing is written unless the result is a good file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from postroad.errors import InputError
from postroad.live.network import DURABLE, Address, Network, load, made
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


def add(path: Path, name: str, address: Address, to: Sequence[str]) -> Change:
    """A further broker, joined to these."""
    old = load(path)
    _check(old)
    if name in old.names:
        raise InputError(
            f"there is or was a broker {name!r}", where=str(path), remedy="choose another name"
        )
    text = _more(path.read_text(encoding="utf-8"), "links", [[peer, name] for peer in to])
    table = json.dumps(name) if not name.isidentifier() or not name.isascii() else name
    text = text.rstrip("\n") + f"\n\n[brokers.{table}]\nhost = {json.dumps(address.host)}\n"
    text += f"mqtt = {address.mqtt}\nlink = {address.link}\nhttp = {address.http}\n"
    return _change(path, text, old)


def remove(path: Path, name: str) -> Change:
    """A broker leaves; the others must stay joined."""
    old = load(path)
    old.number(name)
    _check(old)
    return _change(path, _more(path.read_text(encoding="utf-8"), "removed", [name]), old)


def _check(old: Network) -> None:
    if old.scheme not in DURABLE or old.relocation is not None:
        raise InputError(
            f"brokers cannot come or go in a network with {old.relocation or old.scheme}",
            where=str(old.path),
            remedy=f"choose one of {', '.join(DURABLE)} without relocation, or restart the network",
        )


def _change(path: Path, text: str, old: Network) -> Change:
    new = made(toml.parse(text, str(path)), path, key_lines(text))
    if new.redundant != old.redundant:
        raise InputError(
            "with this broker the links would close a cycle, and before they did not",
            where=str(path),
            remedy="join it to one broker, or stop the network and begin again with new stores",
        )
    return Change(new, text)


def _more(text: str, key: str, values: Sequence[object]) -> str:
    """The text with more values in a list at its top; the list is made if there is none."""
    added = ", ".join(json.dumps(value) for value in values)
    found = re.search(rf"^\s*{key}\s*=\s*", text, re.MULTILINE)
    if found is None:
        return f"{key} = [{added}]\n{text}"
    end = _last(text, found.end()) + 1
    joint = {"[": "", ",": " "}.get(text[end - 1], ", ")
    return f"{text[:end]}{joint}{added}{text[end:]}"


def _last(text: str, start: int) -> int:
    """Where the last thing stands before the bracket that opens here is closed."""
    depth, at, quote, last = 0, start, "", start
    while True:
        char = text[at]
        if quote:
            at += char == "\\" and quote == '"'
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#":
            at = text.index("\n", at)
        else:
            depth += (char == "[") - (char == "]")
            if not depth:
                return last
        if not char.isspace() and char != "#":
            last = at
        at += 1
