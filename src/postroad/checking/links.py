"""The links of a network: parts that they do not join, loops, and what must not be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroad.checking.findings import ERROR, NOTE, WARNING, Finding, some

Pair = tuple[str, str]


def parts(names: Sequence[str], pairs: Sequence[Pair]) -> list[list[str]]:
    """The brokers by part of the network, each part and all parts in the order of the names."""
    peers = _peers(names, pairs)
    part_of: dict[str, int] = {}
    count = 0
    for name in names:
        if name in part_of:
            continue
        stack = [name]
        part_of[name] = count
        while stack:
            for peer, _ in peers[stack.pop()]:
                if peer not in part_of:
                    part_of[peer] = count
                    stack.append(peer)
        count += 1
    return [[name for name in names if part_of[name] == part] for part in range(count)]


def loops(names: Sequence[str], pairs: Sequence[Pair]) -> list[tuple[Pair, list[str]]]:
    """The links that close a loop, read in their order, each with the brokers on its loop."""
    closed: list[tuple[Pair, list[str]]] = []
    tree: list[Pair] = []
    part = {name: name for name in names}
    members = {name: [name] for name in names}
    for a, b in pairs:
        if part[a] == part[b]:
            closed.append(((a, b), _path(names, tree, a, b)))
            continue
        tree.append((a, b))
        large, small = sorted((part[a], part[b]), key=lambda one: -len(members[one]))
        for name in members.pop(small):
            part[name] = large
            members[large].append(name)
    return closed


def cuts(names: Sequence[str], pairs: Sequence[Pair]) -> tuple[list[Pair], list[str]]:
    """The links, and the brokers, whose loss splits a part of the network (Tarjan's bridges and
    articulation points; without recursion, as a line of brokers may be long)."""
    peers = _peers(names, pairs)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    bridges: set[int] = set()
    brokers: set[str] = set()
    for root in names:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        branches = 0
        stack = [(root, -1, iter(peers[root]))]
        while stack:
            here, came, rest = stack[-1]
            onward = next(rest, None)
            if onward is not None:
                peer, link = onward
                if link == came:
                    continue
                if peer in order:
                    low[here] = min(low[here], order[peer])
                else:
                    order[peer] = low[peer] = len(order)
                    stack.append((peer, link, iter(peers[peer])))
                continue
            stack.pop()
            if not stack:
                break
            above = stack[-1][0]
            low[above] = min(low[above], low[here])
            if low[here] > order[above]:
                bridges.add(came)
            if above == root:
                branches += 1
            elif low[here] >= order[above]:
                brokers.add(above)
        if branches > 1:
            brokers.add(root)
    return [pairs[link] for link in sorted(bridges)], [name for name in names if name in brokers]


def of_links(
    names: Sequence[str],
    pairs: Sequence[Pair],
    cyclic: bool,
    place: Callable[[Pair | str | None], str],
) -> list[Finding]:
    """All about the links that a file lists. `cyclic`: whether they may close loops; `place` says
    where a link, a broker, or all links stand."""
    findings: list[Finding] = []
    joined: set[frozenset[str]] = set()
    distinct: list[Pair] = []
    for a, b in pairs:
        if a == b or frozenset((a, b)) in joined:
            what = (
                f"link {a}-{b} joins a broker to itself" if a == b else f"link {a}-{b} is doubled"
            )
            findings.append(Finding(ERROR, "link", what, place((a, b)), [a, b], "leave it out"))
        else:
            joined.add(frozenset((a, b)))
            distinct.append((a, b))
    first, *others = parts(names, distinct)
    for part in others:
        one = len(part) == 1
        which = f"broker {part[0]} is" if one else f"brokers {some(part)} are"
        findings.append(
            Finding(
                ERROR, "unreachable", f"{which} not joined to {first[0]} by any links",
                place(None), part, f"add a link between {part[0]} and {first[0]}, or another such",
            )
        )  # fmt: skip
    closing = loops(names, distinct)
    if not cyclic:
        findings += [
            Finding(
                ERROR, "loop", f"link {a}-{b} closes the loop {' - '.join([*way, a])}",
                place((a, b)), way,
                "leave one of its links out, or choose a scheme that takes redundant links",
            )
            for (a, b), way in closing
        ]  # fmt: skip
    return findings + _splits(names, distinct, cyclic, bool(closing), place)


def _splits(
    names: Sequence[str],
    pairs: Sequence[Pair],
    cyclic: bool,
    redundant: bool,
    place: Callable[[Pair | str | None], str],
) -> list[Finding]:
    bridges, brokers = cuts(names, pairs)
    more = "add links that close loops through them" if cyclic else ""
    if not redundant:
        findings = []
        if bridges:
            each = "the one link" if len(bridges) == 1 else f"any of the {len(bridges):,} links"
            findings.append(
                Finding(
                    NOTE, "link splits", f"the loss of {each} splits the network: it is a tree",
                    place(None), [list(pair) for pair in bridges], more,
                )
            )  # fmt: skip
        if brokers:
            any_of = "one broker" if len(brokers) == 1 else f"any of {len(brokers):,} brokers"
            findings.append(
                Finding(
                    NOTE, "broker splits",
                    f"the loss of {any_of} splits the network: "
                    f"{some(brokers)}", place(None), list(brokers), more,
                )
            )  # fmt: skip
        return findings
    return [
        Finding(WARNING, "link splits", f"the loss of link {a}-{b} splits the network",
                place((a, b)), [a, b], "add a link that goes round it" if cyclic else "")
        for a, b in bridges
    ] + [
        Finding(WARNING, "broker splits", f"the loss of broker {name} splits the network",
                place(name), name,
                "join its neighbours by another way" if cyclic else "")
        for name in brokers
    ]  # fmt: skip


def _peers(names: Sequence[str], pairs: Sequence[Pair]) -> dict[str, list[tuple[str, int]]]:
    """Per broker, its peers and the number of the link to each."""
    peers: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    for link, (a, b) in enumerate(pairs):
        peers[a].append((b, link))
        peers[b].append((a, link))
    return peers


def _path(names: Sequence[str], tree: Sequence[Pair], source: str, target: str) -> list[str]:
    peers = _peers(names, tree)
    before = {source: source}
    stack = [source]
    while target not in before:
        here = stack.pop()
        for peer, _ in peers[here]:
            if peer not in before:
                before[peer] = here
                stack.append(peer)
    way = [target]
    while way[-1] != source:
        way.append(before[way[-1]])
    return way[::-1]
