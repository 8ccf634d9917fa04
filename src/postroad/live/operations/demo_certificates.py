"""A set of certificates to try TLS with: an authority of its own, and one for each broker."""

from __future__ import annotations

import datetime
import os
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.x509.oid import NameOID

from postroad.live.links.certificates import common_name

LIFE = datetime.timedelta(days=825)


def write(folder: Path, network: str, hosts: dict[str, str]) -> None:
    """`ca.pem`, and `NAME.pem` and `NAME.key` for each broker and the host it listens on."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = generate_private_key(SECP256R1())
    authority = _name(f"{network} authority")
    own = _certificate(authority, authority, authority_key).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    _write(folder, "ca", own.sign(authority_key, hashes.SHA256()), authority_key)
    for broker, host in hosts.items():
        try:
            place: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            place = x509.DNSName(host)
        key = generate_private_key(SECP256R1())
        names = x509.SubjectAlternativeName([place, x509.DNSName("localhost")])
        unsigned = _certificate(_name(common_name(broker, network)), authority, key)
        signed = unsigned.add_extension(names, critical=False).sign(authority_key, hashes.SHA256())
        _write(folder, broker, signed, key)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFE)
    )


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: EllipticCurvePrivateKey
) -> None:
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / f"{name}.key"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(secret)
