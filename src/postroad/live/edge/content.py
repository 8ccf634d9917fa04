"""What a publication says: its class is the topic, its attributes come from payload and properties.

Attributes are the scalar fields of a JSON object in the payload, and the user properties. A user
property is text, unless it reads as a JSON number or as true or false; in doubt put a text in
double quotes. Where both name an attribute the property wins, and `class` is always the topic. A
text longer than `TEXT_MAX` is no attribute: LIKE patterns take time in proportion to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from postroad.model import Scalar

TEXT_MAX = 4_096  # characters
_SCALARS = frozenset((str, int, float, bool))
_INT_MAX = 2**63  # MessagePack carries no more; a larger number is no attribute
_Int = Annotated[int, msgspec.Meta(ge=-_INT_MAX, le=_INT_MAX - 1)]
_Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
_BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode
_decode_scalars = msgspec.json.Decoder(dict[str, _Text | _Int | float | bool]).decode


def attributes(
    topic: str, payload: bytes, properties: list[tuple[str, str]] | None = None
) -> dict[str, Scalar]:
    scalars: dict[str, Any] = {}
    if payload[:1] != b"{":
        payload = payload.removeprefix(_BOM).lstrip(b" \t\r\n")
    if payload[:1] == b"{":
        try:
            scalars = _decode_scalars(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            scalars = _some_scalars(payload)
    if properties:
        for name, text in properties:
            if name[:1] != "$":
                said = scalar(text)
                if said is not None and not _too_long(said):
                    scalars[name] = said
    scalars["class"] = topic
    return scalars


def _some_scalars(payload: bytes) -> dict[str, Any]:
    """Those fields that are scalars; any payload is welcome, and some say nothing to filters."""
    try:
        document = _decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return _scalars(document) if isinstance(document, dict) else {}


class _Pairs(list[tuple[str, Any]]):
    """The fields of a JSON object as they stand there, repeated ones too."""


def unambiguous(
    payload: bytes,
    properties: list[tuple[str, str]],
    names: frozenset[str],
    attributes: Mapping[str, Scalar],
) -> bool:
    """Whether everybody finds these attributes under these names, wherever and however they look.

    A field may be given twice, or hidden behind a user property; a payload may be JSON for some
    and not for others, as with NaN or in another encoding.
    """
    try:
        fields = json.loads(payload, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        if payload.removeprefix(_BOM).lstrip()[:1] == b"{":
            return False
        fields = None
    said = [*fields] if isinstance(fields, _Pairs) else []
    said += [(name, scalar(text)) for name, text in properties if name[:1] != "$"]
    return all(_same(value, attributes.get(name)) for name, value in said if name in names)


def _same(value: object, other: object) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def scalar(text: str) -> Scalar | None:
    """The value that a user property's text stands for; None for the JSON null."""
    try:
        value = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    if value is None:
        return None
    value = _scalars({"": value}).get("")
    return text if value is None else value


def _scalars(document: dict[str, Any]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = {}
    for name, value in document.items():
        kind = type(value)
        if kind not in _SCALARS:
            continue
        if kind is int and not -_INT_MAX <= value < _INT_MAX:
            continue
        if _too_long(value):
            continue
        scalars[name] = value
    return scalars


def _too_long(value: Scalar) -> bool:
    return type(value) is str and len(value) > TEXT_MAX
