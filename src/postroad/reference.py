"""What can be written in which file: every key with its kind, its default and its meaning.

Keys that are fields of a dataclass take kind and default from there; only what they mean is written
here. `tests/unit/cli/test_reference.py` holds it against what the readers really ask for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from postroad.live.network import Limits
from postroad.relocation import RELOCATIONS
from postroad.routing import SCHEMES
from postroad.settings.overlays import KINDS
from postroad.traces.schema import Recording
from postroad.workloads.followed import Followed
from postroad.workloads.generated import Generated
from postroad.workloads.quotes import Quotes
from postroad.workloads.social import Social


@dataclass(frozen=True)
class Key:
    file: str  # which kind of file
    name: str  # with the tables it is in
    when: str  # only then; empty for always
    kind: str
    default: str
    meaning: str

    def __str__(self) -> str:
        when = f" ({self.when})" if self.when else ""
        return f"{self.file}: {self.name}{when}\n  {self.kind}, {self.default}\n  {self.meaning}"


REQUIRED = "required"
Written = Mapping[str, tuple[str, str, str]]  # key: kind, default, meaning

SCENARIO: Written = {
    "scheme": ("text", REQUIRED, "the routing scheme: `postroad docs scheme` lists them"),
    "seed": ("whole number", "0", "of all that is drawn"),
    "until": ("seconds", "when all is done", "stop then"),
    "settle": ("seconds", "as long as it takes", "how long subscriptions have before time 0"),
    "relocation": ("text", "none", "`pop` or `grape`: publishers move"),
    "parameters": ("table", "the defaults", "the scheme's own keys"),
    "brokers.rate_per_s": ("per second", "no time", "messages that a broker takes in a second"),
    "brokers.rates_per_s": ("list", "none", "of these each broker draws its own `rate_per_s`"),
    "brokers.direct_cost": (
        "number", "as measured", "publications served for one direct send, of its sender's time"
    ),
    "brokers.batch_cost": ("number", "as measured", "for each but the first of a batch"),
    "brokers.gossip_cost": ("number", "as measured", "for each publication of a gossip"),
    "brokers.buffer": ("messages", "no bound", "that wait at a broker; more are dropped"),
    "brokers.copy_us": ("microseconds", "0", "so long a broker takes for each copy that it sends"),
    "workload.subscriptions": ("file or list", "none", "who subscribes to what, where and when"),
    "workload.publications": ("file or list", "none", "who publishes what, where and when"),
    "workload.advertisements": ("file or list", "none", "who will publish what"),
    "workload.map": (
        "table", "none",
        "other names of columns and attributes in those files: `map = { client = \"user\" }`",
    ),
    "faults.kind": (
        "text", REQUIRED,
        "`link_down`, `link_delay`, `link_loss`, `crash`, `partition` or `aside_loss`",
    ),
    "faults.start": ("seconds", REQUIRED, "when it begins"),
    "faults.end": ("seconds", REQUIRED, "when it is over"),
    "faults.link": ("list of two brokers", "for faults of links", "which link"),
    "faults.broker": ("broker", "for `crash`", "which broker"),
    "faults.brokers": ("list of brokers", "for `partition`", "one side of it"),
    "faults.delay": ("seconds", "for `link_delay`", "longer by so much"),
    "faults.share": ("share", "for `link_loss`, `aside_loss`", "of messages that are lost"),
    "hand_overs.time": ("seconds", REQUIRED, "when a seat of Kyra moves"),
    "hand_overs.seat": ("broker", REQUIRED, "whose seat it was at first"),
    "hand_overs.to": ("broker", REQUIRED, "who has it from then on"),
}  # fmt: skip

COMPARISON: Written = {
    "title": ("text", "the file's name", "of the page"),
    "matters": ("text", "`traffic`", "`traffic`, `delay`, `state` or `worst_broker`"),
    "replicates": ("whole number", "3", "runs of each row, each with publications of its own"),
    "seed": ("whole number", "0", "of all that is drawn"),
    "baseline": ("row", "`subscription forwarding`", "what differences are taken from"),
    "schemes": ("list", "all", "rows, or schemes for all their rows"),
    "tune": ("true or false", "false", "choose parameters on the first fifth of the publications"),
    "topic": ("attribute", "found", "whose text topic schemes take as topic"),
    "sensitivity": ("true or false", "false", "also run with other sizes and skews"),
    "publications_per_change": ("number", "10", "publications for each change of a subscription"),
    "limits": ("table", "none", "what the best scheme must keep within"),
    "overlay": ("table", REQUIRED, "as in a scenario"),
    "brokers": ("table", "80,000 messages a second", "as in a scenario"),
    "workload": ("table", REQUIRED, "as in a scenario"),
}  # fmt: skip

NETWORK: Written = {
    "name": ("text", REQUIRED, "of the network; brokers of another are refused"),
    "scheme": ("text", REQUIRED, "the routing scheme"),
    "seed": ("whole number", "0", "of what plans and routers draw"),
    "links": ("list of pairs", "none", "which brokers are joined: a tree, or more if durable"),
    "plan": ("file", "none", "instead of links: what `postroad plan` wrote"),
    "parameters": ("table", "the defaults", "the scheme's own keys"),
    "relocation": ("text", "none", "`pop` or `grape`: publishers move"),
    "users": ("file", "everyone", "who may connect (`postroad users`)"),
    "secret": ("file", "none", "by which brokers know each other (`postroad network secret`)"),
    "tls": ("folder", "none", "of certificates (`postroad certs demo` makes some to try)"),
    "store": ("folder", "none", "where sessions, links and routes survive restarts"),
    "traces": ("folder or table", "none", "where brokers record what happens"),
    "removed": ("list of brokers", "none", "who has left; `postroad network remove` writes it"),
    "limits": ("table", "the defaults", "what a client or broker may hold and send"),
    "brokers.NAME.host": ("address", "`127.0.0.1`", "where it listens and others reach it"),
    "brokers.NAME.mqtt": ("port", REQUIRED, "for clients, MQTT and WebSocket"),
    "brokers.NAME.link": ("port", REQUIRED, "for other brokers"),
    "brokers.NAME.http": ("port", REQUIRED, "metrics, health and status"),
    "brokers.NAME.http_host": ("address", "`127.0.0.1`", "where those are; else needs a secret"),
    "brokers.NAME.workers": ("whole number", "1", "processes that share its clients"),
}  # fmt: skip

EXPERIMENT: Written = {
    "question": ("text", "none", "what the experiment is to answer"),
    "seed": ("whole number", "0", "of all replicates"),
    "replicates": ("whole number", "1", "runs of each setting, each with a workload of its own"),
    "scenario": (
        "file or table",
        "none",
        "what is run; `vary` and `fixed` reach into it with dots",
    ),
    "run": ("`module:function`", "none", "instead of a scenario: a function of yours"),
    "traces": ("true or false", "false", "also write every delivery and message"),
    "vary": ("table of lists", "nothing", "the grid: every combination is run"),
    "fixed": ("table", "nothing", "keys that all runs have"),
}

SCHEME: Mapping[str, Mapping[str, str]] = {
    "subscription_forwarding": {"covering": "do not send a filter that one already sent covers"},
    "hierarchical": {
        "covering": "do not send a filter up if one already sent covers it",
        "root": "the broker where all meet; the first one if it is empty",
    },
    "advertisement_forwarding": {"covering": "do not send a filter that one already sent covers"},
    "popsub": {
        "unpopular": "how unpopular publications travel: `direct`, `batching`, `gossip` or `tree`",
        "entries": "what fills the capacity: `all` that a broker forwards, or its `own`",
        "rule": "Algorithm 1: as `printed`, or as the paper's `prose` has it",
        "covering": "match only against filters that none from the same link covers",
        "throughputs_per_s": "or a set of which each broker draws its τ",
        "phi": "φ: the share of a broker's throughput that is for popular publications",
        "throughput_per_s": "τ: publications that a broker takes in a second",
        "reevaluate_s": "how often popularity is worked out anew, in seconds",
        "hysteresis": "how far the load may be from φ·τ before it is worked out, as a share",
        "batch_timeout_s": "a batch is sent after so many seconds at the latest",
        "view": "members that each one knows of a gossip group",
        "fanout": "members that each one gossips to",
        "gossip_interval_s": "seconds between two rounds of gossip",
        "reorder_s": "how long publications wait for earlier ones, in seconds; 0: not at all",
        "priority": "classes that are popular before all others",
    },
    "beaconvey": {
        "send": "to the finger `nearest` to the target, or `clockwise` and never past it",
        "routing": "`po`, `pal` or `pie`",
        "overlay": "what is planned for interest: S the ring, L the fingers, - neither",
        "long": "the fingers: `chord`, `chord_begun` (one more, of the last phase) or `random`",
        "incoming": "how many planned fingers of one phase may point to a broker: `one` or `any`",
        "topic": "the attribute whose text is the topic",
        "cells": "instead of topics: cells of the content space; 0 for topics",
        "membership": "the ring is as in the `plan`, or brokers join and leave it by `messages`",
        "beat_s": "with messages: seconds between beats to the two neighbours on the ring",
        "grace_s": "with messages: seconds after a change in which the old ways are used, too",
    },
    "scribe": {
        "overlay": "what is planned for interest: S the ring, L the fingers, - neither",
        "long": "the fingers: `chord`, `chord_begun` (one more, of the last phase) or `random`",
        "incoming": "how many planned fingers of one phase may point to a broker: `one` or `any`",
        "topic": "the attribute whose text is the topic",
        "cells": "instead of topics: cells of the content space; 0 for topics",
        "membership": "the ring is as in the `plan`, or brokers join and leave it by `messages`",
        "beat_s": "with messages: seconds between beats to the two neighbours on the ring",
        "grace_s": "with messages: seconds after a change in which the old ways are used, too",
    },
    "kyra": {
        "clique_ms": "the most milliseconds between two servers of a clique",
        "clique_max": "the most servers in a clique; 0 for any number",
        "trees": "how many trees; 0 for as many as the largest clique has servers",
        "attributes": "on which the content space is cut, with commas; empty: those in filters",
        "balance": "M: a tree's links are chosen of the M shortest, to make degrees alike",
        "alpha": "α: a publication's load is its popularity to this power when zones are cut",
        "covering": "within the trees, as in subscription forwarding",
    },
    "mbr": {
        "groups": "how many multicast groups",
        "cells": "of the content space that groups are made of",
        "attributes": "on which the space is cut, with commas; empty: those in filters",
        "unicast_below": "unicast where a smaller share of the servers wants a publication",
        "clique_ms": "above 0, subscriptions move within cliques of servers this near, as in Kyra",
    },
    "mix": {"parts": "tables of `scheme`, `parameters` and `where` (a filter; not in the last)"},
}
RELOCATION: Mapping[str, Mapping[str, str]] = {
    "pop": {
        "traced_max": "N: publications that are traced at a time",
        "window_s": "W: seconds in which they are",
        "threshold": "P_threshold: publications between two decisions",
        "newest": "the weight of the newest value in the mean",
        "margin": "by how many deliveries a publication a neighbour must be ahead",
    },
    "grape": {
        "threshold": "G_threshold: publications between two decisions",
        "priority": "what to make small: `load` or `delay`",
        "weight": "0 to 100: at 100 only the least of that will do, at 0 only the other counts",
    },
}
OVERLAY: Mapping[str, Mapping[str, str]] = {
    "full_tree": {
        "fanout": "children of each broker",
        "height": "levels below the root",
        "latency_us": "of every link, in microseconds",
    },
    "random_tree": {"brokers": "how many", "latency_us": "of every link, in microseconds"},
    "normal_tree": {
        "brokers": "how many",
        "mean": "of the number of children",
        "stddev": "of the number of children",
        "latency_us": "of every link, in microseconds",
    },
    "edges": {
        "file": "lines `a b [latency]`, a tree, with a header or without",
        "latency_us": "of links without one, in microseconds",
        "unit": "of the latencies: `us`, `ms` or `s`; without it and a header, whole `us`",
        "times": "what they are: `one-way` or `round-trip`; without it and a header, one way",
    },
    "swico": {
        "file": "what `postroad plan swico` wrote",
        "latency_us": "of every link, in microseconds",
    },
    "kyra": {"file": "what `postroad plan kyra` wrote"},
    "wide_area": {
        "brokers": "how many",
        "file": "a matrix of latencies (.csv), as in `latencies`; without it one is generated",
        "times": "what it holds, unless its header says it: `one-way` or `round-trip` (`rtt`)",
        "unit": "`us`, `ms` or `s`; of a matrix `ms` without it",
    },
    "latencies": {
        "file": "a matrix or `from,to,value` (.csv), names or none, or a graph of `a b latency`",
        "times": "what it holds, unless its header says it: `one-way` or `round-trip` (`rtt`)",
        "unit": "`us`, `ms` or `s`; without it a matrix is in `ms`, lines with blanks in `us`",
    },
    "transit_stub": {
        "servers": "how many",
        "multi_homed": "the share of stub domains with a second link to another domain",
    },
}
WORKLOAD: Mapping[str, tuple[type, Mapping[str, str]]] = {
    "generate": (
        Generated,
        {
            "subscriptions": "how many",
            "publications": "how many",
            "publishers": "how many",
            "classes": "how many",
            "skew": "Zipf's exponent over classes; 0: all alike",
            "selectivity": "the mean share of values that a filter accepts",
            "rate_per_s": "publications a second, in all",
            "churn": "the share of subscribers that leave and come back",
        },
    ),
    "followed": (
        Followed,
        {
            "subscriptions": "how many",
            "publications": "how many",
            "publishers": "how many symbols are quoted",
            "prices": "how many lowest prices subscribers choose among",
            "skew": "Zipf's exponent of popularity; without it, as people are followed",
            "rate_per_s": "publications a second, in all",
        },
    ),
    "social": (
        Social,
        {
            "edges": "a file of lines `a b`: a follows b",
            "publications": "how many",
            "publishers": "how many of the most followed publish",
            "rate_per_s": "publications a second, in all",
        },
    ),
    "quotes": (
        Quotes,
        {
            "file": "daily OHLCV rows (CSV); without it a series like them",
            "publishers": "symbols that are quoted",
            "per_publisher": "subscribers of each",
            "spread": "brokers that a publisher's subscribers are at",
            "subscribers": "`random` or `enterprise`",
            "minutes": "of publications",
        },
    ),
}
LIMITS: Mapping[str, str] = {
    "packet_bytes": "of one MQTT packet",
    "session_queue": "publications that wait for a client that is away or slow",
    "session_inflight": "publications sent to a client and not acknowledged",
    "session_bytes": "of what a session holds",
    "sessions_bytes": "of what all sessions of a broker hold",
    "session_expiry_s": "the longest that a session may outlive its connection, in seconds",
    "session_wait_s": "how long a client waits for the broker that has its session, in seconds",
    "keep_alive_s": "the longest keep alive of MQTT 5 clients, in seconds; 0 for any",
    "connections_per_address": "open at a time from one address",
    "connects_per_s": "new connections from one address in a second; 0 for any",
    "bytes_per_s": "that a client may send in a second; 0 for any",
    "subscriptions_per_client": "that one client may hold",
    "sessions": "of a broker, those of absent clients included",
    "retained": "topics of the network with a retained publication",
    "retained_bytes": "of retained publications",
    "drain_s": "the longest that a broker takes to stop, in seconds",
}
TRACES: Mapping[str, str] = {
    "folder": "where the files go, beside the network file",
    "sample": "the share of publications that are recorded; all else always is",
    "attributes": "`plain`, `hash` (keyed by the secret) or `none`",
    "exclude": "attributes that are never recorded",
    "file_bytes": "a file is complete at this size",
    "file_s": "or after so many seconds",
    "keep_bytes": "of a broker's files; the oldest go beyond",
    "keep_s": "or when they are older, in seconds",
}
REQUIREMENTS: Mapping[str, str] = {
    "state": "routing entries at the fullest broker",
    "broker_per_s": "messages that the busiest broker sends and receives in a second",
    "link_per_s": "publication messages over the busiest link, one way, in a second",
    "delay_p99_ms": "of 99 deliveries in 100, in milliseconds",
    "control_per_s": "control messages in the network in a second",
    "survives_crashes": "only schemes that can have a store",
    "given_links": "publications may only cross links of the overlay",
    "runs_live": "live brokers must be able to do what was compared",
}


def entries() -> Iterator[Key]:
    """All of them, file by file."""
    from postroad.comparison.limits import Requirements

    for file, written in (
        ("scenario", SCENARIO),
        ("comparison", COMPARISON),
        ("network", NETWORK),
        ("experiment", EXPERIMENT),
    ):
        for name, (kind, default, meaning) in written.items():
            yield Key(file, name, "", kind, default, meaning)
        if file in ("scenario", "network"):
            for scheme, row in SCHEMES.items():
                said = SCHEME.get("scribe" if scheme == "iscribe" else scheme, {})
                yield from _fields(file, "parameters", f"scheme {scheme}", row.config, said)
            for relocation, mover in RELOCATIONS.items():
                when = f"relocation {relocation}"
                yield from _fields(file, relocation, when, mover.config, RELOCATION[relocation])
        if file == "scenario":
            choices = ", ".join(f"`{kind}`" for kind in KINDS)
            yield Key(file, "overlay.kind", "", "text", REQUIRED, f"one of {choices}")
            for kind, settings in KINDS.items():
                yield from _fields(file, "overlay", f"kind {kind}", settings, OVERLAY[kind])
            for family, (config, said) in WORKLOAD.items():
                yield from _fields(file, f"workload.{family}", "", config, said)
        if file == "network":
            yield from _fields(file, "limits", "", Limits, LIMITS)
            yield from _fields(file, "traces", "", Recording, TRACES)
        if file == "comparison":
            yield from _fields(file, "limits", "", Requirements, REQUIREMENTS)


_KINDS = {
    str: "text", int: "whole number", float: "number", bool: "true or false",
    list[str]: "list of texts", list[dict[str, Any]]: "list of tables",
}  # fmt: skip


def _fields(
    file: str, table: str, when: str, config: Any, meanings: Mapping[str, str]
) -> Iterator[Key]:
    hints = get_type_hints(config)
    for field in dataclasses.fields(config):
        optional = type(None) in getattr(hints[field.name], "__args__", ())
        plain = hints[field.name].__args__[0] if optional else hints[field.name]
        yield Key(
            file, f"{table}.{field.name}", when, _KINDS.get(plain, str(plain)), _default(field),
            meanings[field.name],
        )  # fmt: skip


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "empty"
    if field.default is dataclasses.MISSING:
        return REQUIRED
    value = field.default
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:,.10g}"
    return f"`{value}`" if value else "empty"


def page() -> str:
    """All of it, in Markdown."""
    lines = ["# Every key of every file", ""]
    lines += [
        "Made from the code by `make golden`. `postroad docs KEY` prints an entry. File names are "
        "relative to the file they stand in.",
        "",
    ]
    file = ""
    for key in entries():
        if key.file != file:
            file = key.file
            lines += ["", f"## A {file} file", "", "| key | only with | kind | default | meaning |"]
            lines.append("|---|---|---|---|---|")
        cells = (f"`{key.name}`", key.when, key.kind, key.default, key.meaning)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
