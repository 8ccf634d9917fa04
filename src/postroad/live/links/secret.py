"""The secret that the brokers of one network share, and how they prove to each other that they
know it without saying it.

Whoever is dialled challenges with bytes that it draws; who dials answers with bytes of its own and
a keyed hash over both, over who speaks to whom, in which network, and that it dialled; only if that
is right the other answers in the same way. So nothing that was recorded proves anything later, and
no broker's proof can be sent back to it, or be shown to another.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import msgspec

from postroad.errors import InputError
from postroad.live.network import Network
from postroad.model import BrokerId

BYTES = 32


def make(path: Path) -> None:
    """Write a new secret that only its owner may read."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise InputError(
            f"there is a secret {str(path)!r} already",
            remedy="remove it first if all brokers are to have a new one",
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot write {str(path)!r}: {error.strerror}", remedy="choose another place"
        ) from None
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(BYTES) + "\n")


def load(path: Path) -> bytes:
    try:
        text = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the secret {str(path)!r}: {error}",
            remedy="make one with: postroad network secret, and copy it to every broker's machine",
        ) from None
    if mode & 0o077:
        raise InputError(f"others may read the secret {str(path)!r}", remedy=f"chmod 600 {path}")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) < BYTES:
        raise InputError(
            f"{str(path)!r} is no secret of {BYTES} bytes in hexadecimal digits",
            remedy="make one with: postroad network secret",
        )
    return key


def nonce() -> bytes:
    return secrets.token_bytes(BYTES)


def proof(
    key: bytes,
    network: str,
    dialler: BrokerId,
    dialled: BrokerId,
    challenge: bytes,
    answer: bytes,
    by_dialler: bool,
) -> bytes:
    """What one of two brokers shows the other on one connection."""
    claim = [network, dialler, dialled, challenge, answer, by_dialler]
    return hmac.digest(key, msgspec.msgpack.encode(claim), hashlib.sha256)


def proves(shown: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(shown, expected)


def check_guarded(network: Network) -> None:
    """Refuse a network whose users must log in while anybody could pose as one of its brokers."""
    alone = len({network.hubs[broker] for broker in network.members}) == 1
    if network.users is not None and network.tls is None and network.secret is None and not alone:
        raise InputError(
            "users is set, and without tls or secret anyone may pose as a broker",
            where=str(network.path),
            remedy='set secret = "network.secret" and run: postroad network secret, or set tls',
        )
