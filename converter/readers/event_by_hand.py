"""Single events that the fast decoder refuses: Python's json takes NaN, control characters, lone surrogates, and tells
an event that is cut from one that is broken. Numbers keep the text they were written as."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec
from msgspec import Raw

from converter.readers.event_chunk import Event

CUT, NOT_JSON, TOO_DEEP = -1, -2, -3
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Decimal(float):
    """A JSON number with the text it was written as."""

    text: str


def _parse_float(text: str) -> float | str:
    value = _Decimal(text)
    value.text = text
    return value if math.isfinite(value) else text


def _as_json(value: Any) -> str:
    return value.text if isinstance(value, _Decimal) else json.dumps(value, ensure_ascii=False)


class OddEvents:
    """Reads events one at a time. Remembers the first byte (-1: none) of each oddity that it put right."""

    def __init__(self) -> None:
        self.constants = 0  # NaN and Infinity, kept as text
        self.first_constant = -1
        self.replaced = -1  # bytes that are not UTF-8
        self.surrogates = -1  # half a UTF-16 pair
        self.scan = json.JSONDecoder(strict=False, parse_float=_parse_float, parse_constant=self._constant).raw_decode

    def _constant(self, text: str) -> str:
        self.constants += 1
        return text

    def value_end(self, text: str, at: int) -> int:
        """Where the JSON value at `at` ends; CUT if the text ends first, NOT_JSON if it is broken, or TOO_DEEP.

        Looks at a piece of the text first: an error of Python's json counts the lines from the start of what it is given.
        """
        size = 1 << 14
        while True:
            piece = text[at : at + size]
            end = self._end_in(piece)
            if at + size >= len(text) or end not in (CUT, len(piece)):
                return at + end if end > 0 else end
            size *= 8

    def _end_in(self, text: str) -> int:
        constants = self.constants
        try:
            return int(self.scan(text, 0)[1])
        except RecursionError:
            return TOO_DEEP
        except json.JSONDecodeError as error:
            cut = error.pos > len(text) - 16 or error.msg.startswith("Unterminated string")
            return CUT if cut else NOT_JSON
        finally:
            self.constants = constants

    def bad_bytes(self, byte: int) -> None:
        """Bytes that are not UTF-8 were replaced."""
        if self.replaced < 0:
            self.replaced = byte

    def event(self, data: bytes, byte: int) -> Event | None:
        """The event of JSON that parses, None if it is no object. byte: its place in the file."""
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            text = data.decode("utf-8", "replace")
            self.bad_bytes(byte + error.start)
        constants = self.constants
        value = self.scan(text, 0)[0]
        if self.constants > constants and self.first_constant < 0:
            self.first_constant = byte
        if not isinstance(value, dict):
            return None
        fields: dict[str, Any] = {}
        for key in ("ph", "name", "cat"):
            item = value.get(key, "")
            fields[key] = item if isinstance(item, str) else "" if item is None else _as_json(item)
        for key in ("pid", "tid"):
            item = value.get(key)
            known = isinstance(item, (int, float, str)) and not isinstance(item, bool)
            fields[key] = item if known or item is None else _as_json(item)
        for key in ("ts", "dur", "id", "args"):
            if key in value:
                fields[key] = Raw(_as_json(value[key]).encode("utf-8", "surrogatepass"))
        event = Event(**fields)
        return self._without_surrogates(event, byte) if "\\u" in text else event

    def _without_surrogates(self, event: Event, byte: int) -> Event:
        """Half a UTF-16 pair can't be written as UTF-8: replaced."""
        for key in msgspec.structs.fields(Event):
            item = getattr(event, key.name)
            text = bytes(item).decode("utf-8", "surrogatepass") if isinstance(item, Raw) else item
            if isinstance(text, str) and _SURROGATE.search(text):
                text = _SURROGATE.sub("\ufffd", text)
                setattr(event, key.name, Raw(text.encode()) if isinstance(item, Raw) else text)
                if self.surrogates < 0:
                    self.surrogates = byte
        return event
