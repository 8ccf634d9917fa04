"""TLS: one folder with `ca.pem`, and `NAME.pem` and `NAME.key` for each broker.

Clients check the broker's certificate. Brokers check each other's: it must come from the same
authority, and its common name must be `BROKER.NETWORK`, for the broker that says hello.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from postroad.errors import InputError


def common_name(broker: str, network: str) -> str:
    return f"{broker}.{network}"


def for_clients(folder: Path, broker: str) -> ssl.SSLContext:
    """What a broker shows its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, folder, broker)
    return context


def for_peers(folder: Path, broker: str, dialling: bool) -> ssl.SSLContext:
    """What brokers show each other; both must."""
    kind = ssl.PROTOCOL_TLS_CLIENT if dialling else ssl.PROTOCOL_TLS_SERVER
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a broker is known by its name in the network
    context.verify_mode = ssl.CERT_REQUIRED
    _load(context, folder, broker)
    return context


def _load(context: ssl.SSLContext, folder: Path, broker: str) -> None:
    try:
        context.load_verify_locations(folder / "ca.pem")
        context.load_cert_chain(folder / f"{broker}.pem", folder / f"{broker}.key")
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"no certificate for broker {broker!r}: {error.strerror or error}",
            where=str(folder),
            remedy="make a set to try with: postroad certs demo",
        ) from None


def name_in(certificate: Any) -> str | None:
    """The common name in what `getpeercert` returns."""
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None
