"""The texts of an SQLite export: STRING_IDS and the ENUM_ tables, by id.

An id without an entry gets a stated name, so that the slice keeps its time (a profile whose export was killed has such
ids). Only texts that are used are added to the StringPool.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from converter.readers.sqlite_tables import Database
from schemas.columns import ABSENT_CELLS
from schemas.timeline import NO_TEXT, Int32, StringPool

_NONE = -1


class Texts:
    """STRING_IDS of one database. missing: ids that were asked for and have no entry."""

    def __init__(self, db: Database, strings: StringPool) -> None:
        self._db, self._strings = db, strings
        ids: list[int] = []
        self._values: list[str] = []
        for id_, text in db.texts("STRING_IDS", "id", "value"):
            ids.append(id_)
            self._values.append(text)
        given = np.array(ids, np.int64)
        # An id that stands twice keeps its first text.
        self._order = np.argsort(given, kind="stable")
        self._ids = given[self._order]
        self.missing: set[int] = set()

    def names(self, ids: npt.NDArray[Any]) -> Int32:
        """int32[n]: names of slices. No id gives `no name`, an unknown one `unknown name <id>`."""
        return self._pool_ids(ids, names=True)

    def arguments(self, ids: npt.NDArray[Any]) -> Int32:
        """int32[n]: texts of arguments. No id and N/A are absent (NO_TEXT), an unknown one is `unknown text <id>`."""
        return self._pool_ids(ids, names=False)

    def _pool_ids(self, ids: npt.NDArray[Any], names: bool) -> Int32:
        distinct, inverse = np.unique(ids, return_inverse=True)
        out = np.empty(len(distinct), np.int32)
        for i, id_ in enumerate(distinct.tolist()):
            text = self.text(id_)
            if text is None and id_ == _NONE:
                text = "no name" if names else ""
            elif text is None:
                self.missing.add(id_)
                text = f"unknown {'name' if names else 'text'} {id_}"
            elif not names and text in ABSENT_CELLS:
                text = ""
            out[i] = self._strings.add(text) if text else NO_TEXT
        return out[inverse.reshape(-1)]

    def text(self, id_: int) -> str | None:
        """The text of an id, or None."""
        at = int(np.searchsorted(self._ids, id_))
        if at == len(self._ids) or self._ids[at] != id_:
            return None
        return self._values[int(self._order[at])]

    def enum(self, table: str, ids: npt.NDArray[Any]) -> Int32:
        """int32[n]: the names of an ENUM_ table; an id that it lacks is its number as text, -1 is absent."""
        known = self.enum_names(table)
        distinct, inverse = np.unique(ids, return_inverse=True)
        texts = [known.get(i, "" if i == _NONE else str(i)) for i in distinct.tolist()]
        out = np.array([self._strings.add(t) if t not in ABSENT_CELLS else NO_TEXT for t in texts], np.int32)
        return out[inverse.reshape(-1)] if len(out) else np.empty(0, np.int32)

    def enum_names(self, table: str) -> dict[int, str]:
        return dict(self._db.texts(table, "id", "name"))
