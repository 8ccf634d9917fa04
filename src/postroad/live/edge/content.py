"""What a publication says: its class is the topic, its attributes come from payload and properties.

Attributes are the fields of a JSON object in the payload, or of a MessagePack map where the content
type says so, with what is nested as `filters/nested.py` has it, and the user properties. A user
property is text, unless it reads as a JSON number or as true or false; in doubt put a text in
double quotes. Where both name an attribute the property wins, and `class` is always the topic. A
text longer than `TEXT_MAX` is no attribute: LIKE patterns take time in proportion to it.

Of a CloudEvent in structured mode the context attributes are attributes, and so are the fields of
its `data`; in binary mode the context attributes are user properties, those of the specification
always text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from postroad.filters.nested import INT_MAX, ROWS, TEXT_MAX, flatten, is_scalar
from postroad.live.edge.mqtt import Letter
from postroad.model import Scalar

_Int = Annotated[int, msgspec.Meta(ge=-INT_MAX, le=INT_MAX - 1)]
_Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
_BOM = b"\xef\xbb\xbf"
_BRACE = 0x7B
_decode = msgspec.json.Decoder().decode
_decode_packed = msgspec.msgpack.Decoder().decode
_decode_scalars = msgspec.json.Decoder(dict[str, _Text | _Int | float | bool]).decode
_PACKED = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
_EVENT = "application/cloudevents+json"
_CONTEXT = (
    "id",
    "source",
    "specversion",
    "type",
    "datacontenttype",
    "dataschema",
    "subject",
    "time",
)


def plain_attributes(topic: str, payload: bytes) -> dict[str, Scalar]:
    """The same as `attributes` of a publication that has no properties, which most have not."""
    if payload and payload[0] == _BRACE:
        try:
            scalars: dict[str, Any] = _decode_scalars(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            scalars = _nested(payload)
        else:
            if ROWS in scalars:
                del scalars[ROWS]
        scalars["class"] = topic
        return scalars
    return attributes(topic, payload)


def of_kept(kept: bytes) -> dict[str, Scalar]:
    """The same of a publication that has none, as it is kept."""
    letter = Letter(kept)
    return plain_attributes(str(letter.topic[2:], "utf-8"), letter.payload)


def attributes(
    topic: str,
    payload: bytes,
    properties: list[tuple[str, str]] | None = None,
    content_type: str | None = None,
) -> dict[str, Scalar]:
    scalars: dict[str, Any] = {}
    if content_type is not None and (kind := _kind(content_type)) in (*_PACKED, _EVENT):
        scalars = _event(payload) if kind == _EVENT else _packed(payload)
    else:
        if payload[:1] != b"{":
            payload = payload.removeprefix(_BOM).lstrip(b" \t\r\n")
        if payload[:1] == b"{":
            try:
                scalars = _decode_scalars(payload)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                scalars = _nested(payload)
            else:
                if ROWS in scalars:
                    del scalars[ROWS]
    if properties:
        event = any(name == "specversion" for name, _ in properties)
        for name, text in properties:
            if name[:1] != "$":
                said = text if event and name in _CONTEXT else scalar(text)
                if said is not None and is_scalar(said):
                    scalars[name] = said
    scalars["class"] = topic
    return scalars


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _nested(payload: bytes) -> dict[str, Any]:
    """Any payload is welcome, and some say nothing to filters."""
    try:
        document = _decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return flatten(document) if isinstance(document, dict) else {}


def _packed(payload: bytes) -> dict[str, Any]:
    try:
        document = _decode_packed(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError, TypeError):
        return {}
    if not isinstance(document, dict) or not all(isinstance(name, str) for name in document):
        return {}
    return flatten(document)


def _event(payload: bytes) -> dict[str, Any]:
    """A CloudEvent in structured mode; its context attributes win over fields of its data."""
    try:
        document = _decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    if not isinstance(document, dict):
        return {}
    data = document.pop("data", None)
    context = {name: value for name, value in document.items() if name != "data_base64"}
    return flatten({**(data if isinstance(data, dict) else {}), **context})


class _Pairs(list[tuple[str, Any]]):
    """The fields of a JSON object as they stand there, repeated ones too."""


def unambiguous(
    payload: bytes,
    properties: list[tuple[str, str]],
    names: frozenset[str],
    attributes: Mapping[str, Scalar],
    content_type: str | None = None,
) -> bool:
    """Whether everybody finds these attributes under these names, wherever and however they look.

    A field may be given twice, or hidden behind a user property; a payload may be JSON for some
    and not for others, as with NaN or in another encoding, or as its content type has it.
    """
    if names and content_type is not None and _kind(content_type) in (*_PACKED, _EVENT):
        return False
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
    return value if is_scalar(value) else text
