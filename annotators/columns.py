"""Arguments of derived slices from the tables' columns: what is absent there is absent in the trace."""

from __future__ import annotations

import numpy as np

from schemas.dspark import Float64
from schemas.timeline import NULL, Bool, Column, Int64, StringPool, text_column


def int_column(key: str, values: Int64, valid: Bool | None = None) -> Column:
    """Whole numbers; absent where NULL, or where `valid` says so (for values that may be negative)."""
    return Column(key, "int", values, values != NULL if valid is None else valid)


def float_column(key: str, values: Float64) -> Column:
    """Numbers; absent where NaN."""
    return Column(key, "float", values, ~np.isnan(values))


def texts_column(key: str, strings: StringPool, values: list[str]) -> Column:
    """Texts; absent where empty."""
    return text_column(key, strings.add_all(values))


def evidence_column(strings: StringPool, linked: Bool, yes: str = "linked", no: str = "inferred") -> Column:
    """The argument `evidence`: `yes` where the mask holds, else `no`."""
    ids = np.where(linked, strings.add(yes), strings.add(no)).astype(np.int32)
    return text_column("evidence", ids)
