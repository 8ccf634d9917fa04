"""TLS: one folder with `ca.pem`, and `NAME.pem` and `NAME.key` for each broker.

Clients check the broker's certificate. Brokers check each other's: it must come from the same
authority, and its common name must be `BROKER.NETWORK`, for the broker that says hello.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

from postroad.errors import InputError

DAYS = "825"


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


def demo(folder: Path, network: str, hosts: dict[str, str]) -> None:
    """An authority and a certificate per broker, good enough to try TLS on this machine."""
    if shutil.which("openssl") is None:
        raise InputError("openssl is not installed", remedy="install it, or bring certificates")
    folder.mkdir(parents=True, exist_ok=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ca = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={network} authority"]
    _openssl(folder, "req", "-x509", *key, *ca, "-days", DAYS)
    for broker, host in hosts.items():
        kind = "IP" if host.replace(".", "").isdigit() or ":" in host else "DNS"
        named = f"subjectAltName={kind}:{host},DNS:localhost"
        subject = ["-subj", f"/CN={common_name(broker, network)}", "-addext", named]
        out = ["-keyout", f"{broker}.key", "-out", f"{broker}.csr"]
        _openssl(folder, "req", *key, *out, *subject)
        signed = ["-in", f"{broker}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
        signed += ["-copy_extensions", "copyall", "-days", DAYS, "-out", f"{broker}.pem"]
        _openssl(folder, "x509", "-req", *signed)
        (folder / f"{broker}.csr").unlink()
    for path in folder.glob("*.key"):
        path.chmod(0o600)


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(
        ["openssl", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise InputError(f"openssl failed: {lines[-1] if lines else words[0]}", where=str(folder))
