"""A new configuration for a running broker: all of it, or, if any of it is wrong, none.

Users, limits and certificates may change, and brokers may have been added or removed (members.py).
What else brokers must agree on, and where they listen, may not: that is refused with the key, and
the old configuration stays.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from postroad.errors import InputError
from postroad.live.links import certificates, secret
from postroad.live.network import Network
from postroad.model import BrokerId


@dataclass(frozen=True)
class Contexts:
    """What a broker shows and asks for over TLS; nothing without it."""

    to_clients: ssl.SSLContext | None = None
    to_peers: ssl.SSLContext | None = None
    dialling: ssl.SSLContext | None = None


def contexts(network: Network, number: BrokerId) -> Contexts:
    """The certificates as they are on disk now."""
    folder, name = network.tls, network.names[network.hubs[number]]
    if folder is None:
        return Contexts()
    return Contexts(
        certificates.for_clients(folder, name),
        certificates.for_peers(folder, name, False),
        certificates.for_peers(folder, name, True),
    )


def fixed(old: Network, new: Network) -> list[str]:
    """The keys that changed and that a running broker cannot take up."""
    same = {
        "name": old.name == new.name,
        "scheme": old.scheme == new.scheme,
        "seed": old.seed == new.seed,
        "parameters": old.config == new.config,
        "relocation": (old.relocation, old.relocation_config)
        == (new.relocation, new.relocation_config),
        "brokers": (old.names, old.addresses)
        == (new.names[: len(old.names)], new.addresses[: len(old.names)])
        and (old.removed <= new.removed)
        and old.hubs == tuple(hub for hub in new.hubs if hub < len(old.names))
        and old.workers == new.workers[: len(old.names)]
        and (len(old.names) == len(new.names) or old.grows),
        "links": _links(old, new, set(range(len(old.names))) - new.removed)
        and old.redundant == new.redundant,
        "traces": _folder(old) == _folder(new),
        "store": old.store == new.store,
        "tls": (old.tls is None) == (new.tls is None),
        "secret": (old.secret is None) == (new.secret is None),
    }
    return [key for key, alike in same.items() if not alike]


def check(old: Network, new: Network) -> None:
    """Raise `InputError` if something changed that a running broker cannot take up."""
    changed = fixed(old, new)
    if changed:
        raise InputError(
            f"{', '.join(changed)} cannot change while a broker runs",
            where=str(new.path),
            remedy="put the old value back, or restart the brokers",
        )
    secret.check_guarded(new)


def _folder(network: Network) -> str | None:
    return None if network.traces is None else network.traces.folder


def _links(old: Network, new: Network, stay: set[BrokerId]) -> bool:
    """Whether the brokers that stay are joined by the same links."""
    before, now = ([pair for pair in n.pairs if stay.issuperset(pair)] for n in (old, new))
    return before == now
