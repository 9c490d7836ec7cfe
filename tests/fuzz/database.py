"""Small SQLite exports: tables with rows of any type, now and then without a table or a column, or with bytes changed."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from random import Random

from samples.db_export import SCHEMA
from tests.fuzz.pieces import ODD_TEXTS, ODD_TIMES, mutated

_SCHEMA = SCHEMA.format(block="blockNum", mix="mixBlockNum", extra="opState", device=", deviceId INTEGER")
_EPOCH = 1736408883704643212
_image: list[bytes] = []


def _empty() -> bytes:
    """The bytes of a database with the tables of an export and no rows."""
    if not _image:
        with sqlite3.connect(":memory:") as made:
            made.executescript(_SCHEMA)
            _image.append(made.serialize())
    return _image[0]


def _value(rng: Random, column: str) -> object:
    if rng.random() < 0.06:
        return rng.choice(
            (
                None,
                "",
                "x",
                -1,
                1.5,
                float("inf"),
                b"\0\xff",
                2**63 - 1,
                -(2**63),
                rng.choice(ODD_TIMES),
                rng.choice(ODD_TEXTS),
            )
        )
    form = column.lower()
    if "ns" in form and ("start" in form or "end" in form or "timestamp" in form):
        return _EPOCH + rng.randrange(50_000)
    return rng.randrange(8)


def database(rng: Random) -> bytes:
    made = sqlite3.connect(":memory:")
    made.deserialize(_empty())
    tables = [name for (name,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if rng.random() < 0.05:
            made.execute(f"DROP TABLE {table}")
            continue
        columns = [row[1] for row in made.execute(f"PRAGMA table_info({table})")]
        if rng.random() < 0.03:
            gone = rng.choice(columns)
            try:
                made.execute(f"ALTER TABLE {table} DROP COLUMN {gone}")
                columns.remove(gone)
            except sqlite3.Error:
                pass
        for _ in range(rng.randrange(4)):
            cells = [
                rng.choice(ODD_TEXTS) if table == "STRING_IDS" and c == "value" else _value(rng, c) for c in columns
            ]
            try:
                made.execute(f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * len(cells))})", cells)
            except (sqlite3.Error, UnicodeEncodeError):
                continue
    made.commit()
    data = made.serialize()
    made.close()
    return mutated(rng, data, 4) if rng.random() < 0.4 else data


def write(path: Path, data: bytes) -> None:
    """Writes a database and takes away what an earlier reader may have left beside it."""
    for ending in ("-wal", "-shm", "-journal"):
        if os.path.exists(f"{path}{ending}"):
            os.unlink(f"{path}{ending}")
    path.write_bytes(data)
