"""Trace JSON (Chrome trace events) from bytes to chunks of decoded events, in bounded memory.

Forms: a bare array (trace_view.json, msprof*.json) or an object with `traceEvents` (Kineto), either of them gzipped;
told by content, never by name. Specification: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

A block of the file is cut where one event ends and the next one starts, and decoded as a list of events in one go.
The cut is a guess that proves itself: a cut inside a string or a nested list doesn't decode. What doesn't decode is
read event by event with Python's json, which also takes NaN, control characters and lone surrogates; a stretch that
it can't read either is skipped up to the next event that parses, and counted once, with its byte offset.
Ignored on purpose: keys of events other than those of `Event` (bp, s, sf, tts, cname, stack frames).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from converter.readers import nesting
from converter.readers.event_by_hand import CUT, TOO_DEEP, OddEvents
from converter.readers.event_chunk import Chunk, Event, address
from converter.readers.input_blocks import blocks
from schemas.errors import InputError

#: More bytes than this without the end of an event are no event.
MAX_EVENT_BYTES = 64 << 20
_TOO_LARGE = f"larger than {MAX_EVENT_BYTES >> 20} MiB"
_DECODER = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)
_COMMA = re.compile(rb"\}\s*(,)\s*\{")  # between two events, or inside a string or a nested list
_TEXT_COMMA = re.compile(r"[,\n]\s*(?=\{)")  # where reading may go on after a broken stretch
_ERROR_BYTE = re.compile(r"\(byte (\d+)\)")
_PHASE = '"ph"'  # what tells an event from a nested object
_CLOSING = re.compile(r"\}\s*\](?=\s*\Z)")
_GAP = re.compile(r"[\s,]*")
_BYTE_GAP = re.compile(rb"[\s,]*")


class EventFile:
    """Iterate for the chunks of one file. Afterwards: `header` (keys beside traceEvents), `malformed`, `notes`.

    malformed: how many broken stretches; first_malformed: the byte of the first one.
    damage: lines about the bytes of the file; notes: lines about its content.
    Raises InputError where there is nothing to read: empty, not JSON, no traceEvents, larger than max_input_bytes.
    """

    def __init__(self, path: Path, max_input_bytes: int) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.is_object = False
        self.malformed = 0
        self.first_malformed = -1
        self.beyond: dict[str, int] = {}  # a limit that an event exceeds -> the first such event's byte
        self.damage: list[str] = []
        self.notes: list[str] = []
        self._odd = OddEvents()
        self._blocks = blocks(path, max_input_bytes, self.damage)
        self._buf = bytearray()
        self._base = 0  # the byte of the file at buf[0]
        self._at = 0  # the next event in buf; the byte before it is a separator
        self._ascii = True  # all of buf
        self._end = False  # nothing more to read
        self._closed = False  # the array's ] was seen
        self._broken = False  # inside a broken stretch

    # ---- bytes --------------------------------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Appends a block. False at the end of the file."""
        block = next(self._blocks, None)
        if block is None:
            self._end = True
            return False
        # A new buffer each time: events decoded from the old one may still look into it.
        keep = max(self._at - 1, 0)
        self._base += keep
        self._at -= keep
        self._buf = bytearray().join((memoryview(self._buf)[keep:], block))
        self._ascii = block.isascii() and (self._ascii or self._buf.isascii())
        return True

    def _repair(self, end: int) -> int:
        """Replaces bytes that are not UTF-8 in buf[at:end]; the new end."""
        if self._ascii:
            return end
        piece = bytes(memoryview(self._buf)[self._at : end])
        try:
            piece.decode()
            return end
        except UnicodeDecodeError as error:
            self._odd.bad_bytes(self._base + self._at + error.start)
        buf = self._buf[: self._at] + piece.decode("utf-8", "replace").encode()
        fixed_end = len(buf)
        self._buf = buf + memoryview(self._buf)[end:]
        return fixed_end

    # ---- the whole file -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Chunk]:
        self._open()
        while True:
            yield from self._drain()
            if self._closed or self._end:
                break
            self._fill()
        self._finish()

    def _open(self) -> None:
        """Skips to the first event."""
        while self._fill() and not self._buf.strip():
            self._at = len(self._buf)
        buf = self._buf
        start = 3 if self._base == 0 and buf.startswith(b"\xef\xbb\xbf") else 0
        start += len(buf) - start - len(memoryview(buf)[start:].tobytes().lstrip())
        first = bytes(buf[start : start + 1])
        self._at = start + 1
        if first == b"{":
            self.is_object = True
            self._read_keys()
        elif not first:
            where = "; ".join(line.split(": ", 1)[1] for line in self.damage)
            raise InputError(self.path, "the file is empty" + (f": {where}" if where else ""))
        elif first != b"[":
            raise InputError(
                self.path,
                f"not JSON: it starts with {bytes(buf[start : start + 16])!r}",
                where=f"byte {self._base + start}",
                todo="give a trace_view.json, msprof*.json or *.trace.json[.gz]",
            )

    def _read_keys(self) -> None:
        """Reads the keys before traceEvents; `_at` is then behind its [."""
        while True:
            text = self._buf[self._at :].decode("latin-1")
            try:
                has_events, at = self._keys(text)
            except (ValueError, RecursionError, IndexError) as error:
                if len(self._buf) < MAX_EVENT_BYTES and self._fill():
                    continue
                match = re.search(r'"traceEvents"\s*:\s*\[', text)
                has_events, at = match is not None, match.end() if match else 0
                where = f"byte {self._base + self._at}"
                limit = self._limit(error)
                if limit and not has_events:
                    raise InputError(
                        self.path, f"the keys before traceEvents are {limit}", where=where, todo="give a trace"
                    ) from None
                what = f"the keys before the events are {limit}" if limit else "malformed keys before the events"
                self.damage.append(f"{self.path.name}, {where}: {what}")
            if not has_events:
                raise InputError(self.path, "a JSON object without a list traceEvents", todo="give a trace")
            self._at += at
            return

    def _limit(self, error: Exception) -> str:
        """Which limit stopped the reading of keys; "" where they are broken."""
        if isinstance(error, RecursionError):
            return nesting.TOO_DEEP
        return "" if self._end or len(self._buf) < MAX_EVENT_BYTES else _TOO_LARGE

    def _keys(self, text: str) -> tuple[bool, int]:
        """Reads `"key": value, ...` into the header. Whether the [ of traceEvents ended it, or a }; the place behind."""
        at = 0
        while True:
            at = _end_of(_GAP, text, at)
            if text[at] == "}":
                return False, at + 1
            key, at = self._odd.scan(text, at)
            at = _end_of(_GAP, text, at)
            if text[at] != ":":
                raise ValueError("no colon")
            at = _end_of(_GAP, text, at + 1)
            if key == "traceEvents" and text[at] == "[":
                return True, at + 1
            self.header[str(key)], at = self._odd.scan(text, at)

    def _finish(self) -> None:
        """What follows the array, and what there is to say."""
        name = self.path.name
        if self._closed:
            self._trailer()
        else:
            where = self._base + len(self._buf)
            self.damage.append(f"{name}, byte {where}: the file ends without its closing ]: it was cut short")
        if self._odd.replaced >= 0:
            self.damage.append(f"{name}, byte {self._odd.replaced}: bytes that are not UTF-8 were replaced")
        if self._odd.surrogates >= 0:
            self.damage.append(f"{name}, byte {self._odd.surrogates}: half a UTF-16 pair was replaced")
        if self._odd.constants:
            self.notes.append(
                f"{name}, byte {self._odd.first_constant}: {self._odd.constants} NaN or Infinity, kept as text"
            )
        for limit, byte in self.beyond.items():
            self.damage.append(f"{name}, byte {byte}: an event is {limit}")
        if self.malformed:
            where = self.first_malformed
            self.damage.append(f"{name}, byte {where}: malformed event; {self.malformed} broken stretch(es) skipped")

    def _trailer(self) -> None:
        while len(self._buf) - self._at < MAX_EVENT_BYTES and self._fill():
            pass
        text = self._buf[self._at :].decode("latin-1")
        at = 0
        if self.is_object:
            try:
                at = self._keys(text)[1]
            except (ValueError, RecursionError, IndexError) as error:
                limit = self._limit(error)
                what = f"the keys behind the events are {limit}" if limit else ""
                what = what or "the object ends without its closing } or is broken"
                self.damage.append(f"{self.path.name}, byte {self._base + self._at}: {what}")
                return
        rest = text[at:].lstrip()
        if rest:
            where = self._base + self._at + len(text) - len(rest)
            self.damage.append(f"{self.path.name}, byte {where}: bytes after the end of the events are not read")

    # ---- events -------------------------------------------------------------------------------------------------

    def _drain(self) -> Iterator[Chunk]:
        """Decodes what the buffer holds, as far as it is complete."""
        step = 1
        while not self._closed:
            self._at = _end_of_bytes(_BYTE_GAP, self._buf, self._at)  # gigabytes of spaces are no event
            if self._at == len(self._buf):
                return
            end = self._last_end()
            if end is None and not self._end and len(self._buf) - self._at < MAX_EVENT_BYTES:
                return
            # Inside a broken stretch, what parses may be a part of its arguments: no list is taken as a whole.
            chunk = None if end is None or self._broken else self._longest(self._repair(end))
            waiting = False
            if chunk is None:
                chunk, waiting = self._one_by_one(step)
                step = min(2 * step, 1 << 16)
            yield chunk
            if waiting:
                return

    def _last_end(self) -> int | None:
        """The last place in the buffer where events may end: a comma between two, or at the end of the file a ]."""
        if self._end:
            end = self._buf.rfind(b"]", self._at)
            if end >= 0:
                return end
        return self._comma_before(len(self._buf))

    def _comma_before(self, place: int) -> int | None:
        window = 1 << 12
        while True:
            start = max(self._at, place - window)
            last = None
            for last in _COMMA.finditer(self._buf, start, place):  # noqa: B007
                pass
            if last is not None:
                return last.start(1)
            if start == self._at:
                return None
            window *= 16

    def _longest(self, end: int) -> Chunk | None:
        """The events from `at` to `end`, or to the last place before it where they decode; None if there is none."""
        good: int | None = end
        back = 1
        while good is not None and good > self._at:
            try:
                return self._decode(good)
            except (msgspec.DecodeError, RecursionError) as error:
                found = _ERROR_BYTE.search(str(error))
                if found:  # counted from the [ before `at`
                    good = self._comma_before(min(good, self._at - 1 + int(found[1])))
                else:  # cut inside an event, or too deep: further and further back
                    for _ in range(back):
                        good = None if good is None else self._comma_before(good)
                    back *= 4
        return None

    def _decode(self, end: int) -> Chunk:
        """The events of buf[at:end], which is `{...}, {...}`; moves behind them. Raises DecodeError, RecursionError."""
        buf, start = self._buf, self._at - 1
        before, after = buf[start], buf[end]
        buf[start], buf[end] = ord("["), ord("]")
        region = memoryview(buf)[start : end + 1]
        try:
            chunk = Chunk(_DECODER.decode(region), region, self._base + start)
        except msgspec.ValidationError:  # JSON, but something is no object or has a key of another type
            try:
                chunk = self._lenient(region, self._base + start)
            except BaseException:
                buf[start], buf[end] = before, after
                raise
        except BaseException:
            buf[start], buf[end] = before, after
            raise
        self._broken = False
        self._closed = after == ord("]")
        self._at = end + 1
        return chunk

    def _lenient(self, region: memoryview, start: int) -> Chunk:
        chunk = Chunk([])
        origin = address(region)
        for raw in msgspec.json.decode(region, type=list[Raw]):
            byte = start + address(raw) - origin
            try:
                chunk.append(_ONE.decode(raw), byte)
            except msgspec.DecodeError:
                self._keep(chunk, bytes(raw), byte)
        return chunk

    def _one_by_one(self, limit: int) -> tuple[Chunk, bool]:
        """Up to `limit` events, skipping what is broken; and whether the next one needs more of the file."""
        text = memoryview(self._buf)[self._at :].tobytes().decode("latin-1")  # a character per byte
        whole = self._end or len(text) >= MAX_EVENT_BYTES
        chunk = Chunk([])
        at, waiting = 0, False
        while len(chunk.events) < limit and not self._closed:
            at = _end_of(_GAP, text, at)
            if at >= len(text):
                break
            if text[at] == "]":
                self._closed, at = True, at + 1
                break
            byte = self._base + self._at + at
            end = self._odd.value_end(text, at)
            if end > 0 and not (self._broken and _PHASE not in text[at:end]):
                self._broken = False
                self._keep(chunk, text[at:end].encode("latin-1"), byte)
                at = end
            elif end == CUT and not whole:
                waiting = True
                break
            else:
                if not self._broken:
                    self._count_malformed(byte)
                    if end == TOO_DEEP:
                        self.beyond.setdefault(nesting.TOO_DEEP, byte)
                    elif end == CUT and not self._end:
                        self.beyond.setdefault(_TOO_LARGE, byte)
                self._broken = True
                at = self._next_event(text, at + 1)
        self._at += at
        return chunk, waiting

    def _next_event(self, text: str, at: int) -> int:
        """The next place after a comma where an object with a phase parses; the end of the text if there is none."""
        for comma in _TEXT_COMMA.finditer(text, at):
            start = comma.end()
            end = self._odd.value_end(text, start)
            if end == CUT or (end > 0 and _PHASE in text[start:end]):
                return start
        closing = _CLOSING.search(text, at) if self._end else None
        return closing.end() - 1 if closing and not self.is_object else len(text)

    def _count_malformed(self, byte: int) -> None:
        if not self.malformed:
            self.first_malformed = byte
        self.malformed += 1

    def _keep(self, chunk: Chunk, data: bytes, byte: int) -> None:
        """One event that the fast way didn't take. data: its JSON, which parses."""
        event = self._odd.event(data, byte)
        if event is None:
            self._count_malformed(byte)
        else:
            chunk.append(event, byte)


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _end_of_bytes(pattern: re.Pattern[bytes], data: bytearray, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at
