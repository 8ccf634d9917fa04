"""A network file as a whole: also one that brokers refuse is looked at to its end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from postroad.checking.findings import ERROR, Finding, refused
from postroad.checking.links import Pair, loops, of_links, parts
from postroad.errors import InputError, slip_for
from postroad.live.links import secret
from postroad.live.network import DURABLE, KEYS, Network, from_values
from postroad.relocation import RELOCATIONS
from postroad.routing import SCHEMES
from postroad.settings import toml
from postroad.settings.sections import key_lines


def of_file(path: Path) -> tuple[Network | None, list[Finding]]:
    """The network, as far as it can be read, and what is wrong with its file and its links.

    Links that are wrong are told one by one; the rest is then read as if they were right.
    """
    text = toml.read_text(path)
    values = toml.parse(text, str(path))
    lines = key_lines(text)
    values, lines, findings = _respelled(values, lines, path)
    misspelled = len(findings)
    listed = None if "plan" in values else _listed(values)
    if listed is not None:
        names, pairs = listed
        cyclic = values.get("scheme") in DURABLE and "relocation" not in values
        at = f"{path}:{lines['links']}" if "links" in lines else f"{path}: links"

        def place(what: Pair | str | None) -> str:
            if isinstance(what, str):
                return f"{path}:{lines.get(f'brokers.{what}', lines.get('brokers', 1))}"
            line = None if what is None else _line(text, what)
            return at if line is None else f"{path}:{line}"

        known: list[Pair] = []
        for a, b in pairs:
            strange = [name for name in (a, b) if name not in names]
            if strange:
                findings.append(
                    Finding(
                        ERROR, "link", f"link {a}-{b} names {strange[0]}, which is no broker",
                        place((a, b)), [a, b], f"add a table [brokers.{strange[0]}] or mend it",
                    )
                )  # fmt: skip
            else:
                known.append((a, b))
        removed = values.get("removed", [])
        gone = set(removed) if cyclic and isinstance(removed, list) else set()
        stay = [name for name in names if name not in gone]
        between = [pair for pair in known if not gone & set(pair)]
        if stay:
            found = of_links(stay, between, cyclic, place)
            # Whether links may close loops is for the scheme to say, which is told to be unknown.
            unsaid = values.get("scheme") not in [*SCHEMES]
            findings += [one for one in found if not (unsaid and one.kind == "loop")]
        if stay and any(finding.severity == ERROR for finding in findings[misspelled:]):
            values = {**values, "links": [list(pair) for pair in _mended(stay, between)]}
    try:
        network = from_values(values, path, lines)
    except InputError as error:
        return None, [*findings, refused(error, str(path))]
    if network.row.overlay != "tree":
        # Such a scheme plans who is linked to whom, over the listed links or from a plan's file.
        findings = [finding for finding in findings if finding.severity == ERROR]
        findings += _planned(network)
    try:
        secret.check_guarded(network)
    except InputError as error:
        findings.append(refused(error, str(path)))
    return network, findings


def _respelled(
    values: Mapping[str, Any], lines: Mapping[str, int], path: Path
) -> tuple[dict[str, Any], dict[str, int], list[Finding]]:
    """The values and their lines as they are meant, where a key is spelled wrong, and which are:
    what would be told of a key that is missing then follows from nothing but that."""
    respelled, placed = dict(values), dict(lines)
    findings = []
    for meant in KEYS:
        unknown = [key for key in respelled if key not in (*KEYS, *RELOCATIONS)]
        slip = None if meant in respelled else slip_for(meant, unknown)
        if slip is None:
            continue
        for key, line in lines.items():
            if key == slip or key.startswith(f"{slip}."):
                placed[meant + key.removeprefix(slip)] = line
        line = min((line for key, line in lines.items() if key.split(".")[0] == slip), default=1)
        findings.append(
            Finding(
                ERROR, "refused", f"unknown key {slip}", f"{path}:{line}", slip,
                f"did you mean {meant!r}?",
            )
        )  # fmt: skip
        respelled[meant] = respelled.pop(slip)
    return respelled, placed, findings


def _planned(network: Network) -> list[Finding]:
    names = network.names
    links = network.plan().links()
    pairs = sorted({(min(a, b), max(a, b)) for a, peers in enumerate(links) for b in peers})
    at = f"{network.path}: {'links' if network.plan_file is None else 'plan'}"
    return of_links(names, [(names[a], names[b]) for a, b in pairs], True, lambda _: at)


def _listed(values: Mapping[str, Any]) -> tuple[list[str], list[Pair]] | None:
    """The brokers and links of a file; None if they are not even brokers and links."""
    brokers, links = values.get("brokers"), values.get("links", [])
    if not isinstance(brokers, Mapping) or not brokers or not isinstance(links, list):
        return None
    for link in links:
        whole = isinstance(link, list) and len(link) == 2
        if not whole or not all(isinstance(name, str) for name in link):
            return None
    return list(brokers), [(a, b) for a, b in links]


def _mended(names: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """A tree of these links, with one more for each part that they do not join."""
    closing = [pair for pair, _ in loops(names, pairs)]
    tree = list(pairs)
    for pair in closing:  # the last of equal ones closes the loop
        del tree[len(tree) - 1 - tree[::-1].index(pair)]
    first, *others = parts(names, tree)
    return tree + [(first[0], part[0]) for part in others]


def _line(text: str, pair: Pair) -> int | None:
    """The line on which a link stands."""
    a, b = (f"[\"']{re.escape(name)}[\"']" for name in pair)
    match = re.search(rf"\[\s*{a}\s*,\s*{b}\s*,?\s*\]", text)
    return None if match is None else text.count("\n", 0, match.start()) + 1
