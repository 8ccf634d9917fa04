"""Folders to start from: a small network and workload of one kind, every file with comments.

Each file runs as it is: `simulate`, `compare`, `network up`, `plan`, `pipeline sweep`. The rows are
drawn by a seed, so that the same words give the same folder.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from postroad import draws

SITES = (
    "london", "paris", "milan", "berlin", "madrid", "vienna", "oslo", "warsaw", "athens", "lisbon",
    "dublin", "prague",
)  # fmt: skip
PORT = 21_000
SEED = 1


@dataclass(frozen=True)
class Starter:
    """What is published, and what is asked for: functions of a number that is drawn from."""

    about: str
    topic: str  # the attribute that names a topic
    attributes: Callable[[int], Mapping[str, Any]]
    filter: Callable[[int], str]
    per_broker: int  # subscriptions


def _below(bound: int, purpose: str, n: int) -> int:
    return draws.below(bound, SEED, f"starter.{purpose}", 0, n)


def _popular(bound: int, purpose: str, n: int) -> int:
    """A number below the bound, small ones often."""
    return int(bound * draws.uniform(SEED, f"starter.{purpose}", 0, n) ** 3)


KINDS: dict[str, Starter] = {
    "quotes": Starter(
        "prices of stocks; readers follow some symbols above a price",
        "symbol",
        lambda n: {
            "class": "quotes", "symbol": f"S{_popular(20, 'symbol', n)}",
            "price": _below(100, "price", n),
        },
        lambda n: (
            f"class = 'quotes' AND symbol = 'S{_popular(20, 'wanted', n)}' "
            f"AND price > {_below(80, 'least', n)}"
        ),
        20,
    ),
    "social": Starter(
        "posts of people; readers follow some of them, a few are followed by many",
        "author",
        lambda n: {
            "class": "posts", "author": f"user{_below(40, 'author', n)}",
            "length": 10 + _below(270, "length", n),
        },
        lambda n: f"class = 'posts' AND author = 'user{_popular(40, 'followed', n)}'",
        40,
    ),
    "iot": Starter(
        "readings of sensors; services want one kind, or what is out of the ordinary",
        "kind",
        lambda n: {
            "class": "readings",
            "kind": ("temperature", "humidity", "door", "power")[_below(4, "kind", n)],
            "room": _below(30, "room", n), "value": _below(100, "value", n),
        },
        lambda n: (
            "class = 'readings' AND kind = '"
            + ("temperature", "humidity", "door", "power")[_below(4, "wanted", n)]
            + ("' AND value > 90" if n % 3 else f"' AND room = {_below(30, 'of', n)}")
        ),
        10,
    ),
    "blank": Starter(
        "one subscription at each broker and a few publications, to write over",
        "class",
        lambda n: {"class": "news", "level": n % 5},
        lambda n: "class = 'news' AND level > 2",
        1,
    ),
}  # fmt: skip


def files(name: str, kind: str, brokers: int) -> dict[str, str]:
    """The files of a folder, by name."""
    chosen = KINDS[kind]
    sites = [SITES[n] if n < len(SITES) else f"site{n + 1}" for n in range(brokers)]
    links = [((n - 1) // 2, n, 4_000 + 1_000 * _below(20, "latency", n)) for n in range(1, brokers)]
    publishers = [f"publisher{n}" for n in range(min(4, brokers))]
    posts = 12 if kind == "blank" else 300
    head = f"# {name}: {chosen.about}."
    return {
        "README.md": _readme(name, chosen),
        "links.edges": "# The tree of brokers: two sites and the latency between them, in µs.\n"
        + "".join(f"{sites[a]} {sites[b]} {latency_us}\n" for a, b, latency_us in links),
        "subscriptions.csv": _csv(
            ["broker", "client", "filter"],
            [
                [sites[n % brokers], f"client{n}", chosen.filter(n)]
                for n in range(brokers * chosen.per_broker)
            ],
        ),
        "publications.jsonl": "".join(
            json.dumps(
                {
                    "time": round(n * 0.05, 3),
                    "broker": sites[n % len(publishers)],
                    "publisher": publishers[n % len(publishers)],
                    "attributes": chosen.attributes(n),
                }
            )
            + "\n"
            for n in range(posts)
        ),
        "interests.csv": _csv(
            ["node", "topic"],
            sorted(
                {
                    (sites[n % brokers], str(chosen.attributes(n)[chosen.topic]))
                    for n in range(brokers * 6)
                }
            ),
        ),
        "scenario.toml": f"""{head}
# postroad simulate scenario.toml
scheme = "subscription_forwarding"   # postroad simulate --help lists the schemes
seed = {SEED}

[parameters]
covering = true                      # a filter that another covers is not sent on

[overlay]
kind = "edges"
file = "links.edges"

[brokers]
rate_per_s = 80000                   # messages a broker takes in a second

[workload]
subscriptions = "subscriptions.csv"  # broker, client, filter in SQL
publications = "publications.jsonl"  # time in seconds, broker, publisher, attributes
""",
        "compare.toml": f"""{head}
# postroad compare compare.toml -o report
title = "{name}"
matters = "traffic"                  # or delay, state, worst_broker
replicates = 3
schemes = ["flooding", "subscription forwarding", "subscription forwarding + covering", "unicast"]
publications_per_change = 10         # for each change of a subscription

[limits]                             # the best scheme is one that keeps within them
delay_p99_ms = 500
# state = 50000                      # routing entries at the fullest broker
# survives_crashes = true            # only schemes that can have a store

[overlay]
kind = "edges"
file = "links.edges"

[workload]
subscriptions = "subscriptions.csv"
publications = "publications.jsonl"
""",
        "experiment.toml": """# postroad pipeline sweep experiment.toml -o data/sweep
question = "What does covering save, and what does flooding cost?"
seed = 1
replicates = 1                       # the workload comes from files: more would be copies
scenario = "scenario.toml"

[vary]
"parameters.covering" = [false, true]
""",
        "network.toml": _network(name, sites, links),
    }


def _readme(name: str, kind: Starter) -> str:
    return f"""# {name}

{kind.about[0].upper()}{kind.about[1:]}.

    postroad simulate scenario.toml                     # one scheme on this workload
    postroad compare compare.toml -o report             # several schemes, and which to run
    postroad plan swico --interests interests.csv -o ring.json
    postroad pipeline sweep experiment.toml -o data/sweep
    postroad check network.toml --subscriptions subscriptions.csv
    postroad network up network.toml                    # real brokers; network down ends them

Write your own rows into `subscriptions.csv` and `publications.jsonl`, your sites into `links.edges`
and `network.toml`.
"""


def _network(name: str, sites: list[str], links: list[tuple[int, int, int]]) -> str:
    pairs = ", ".join(f'["{sites[a]}", "{sites[b]}"]' for a, b, _ in links)
    tables = "".join(
        f"\n[brokers.{site}]\nmqtt = {PORT + 3 * n}\nlink = {PORT + 3 * n + 1}\n"
        f"http = {PORT + 3 * n + 2}\n"
        for n, site in enumerate(sites)
    )
    return f"""# postroad network up network.toml
name = "{name}"
scheme = "subscription_forwarding"
links = [{pairs}]
traces = {{ folder = "traces", sample = 1.0 }}  # all publications; a large network records fewer
# store = "store"                    # sessions, links and routes survive restarts

[parameters]
covering = true
{tables}"""


def _csv(header: list[str], rows: list[Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
