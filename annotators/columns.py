"""Arguments of derived slices from the tables' columns: what is absent there is absent in the trace."""

from __future__ import annotations

import numpy as np

from schemas.dspark import Float64
from schemas.timeline import NULL, Bool, Column, Int32, Int64, StringPool, text_column


def int_column(key: str, values: Int64, valid: Bool | None = None) -> Column:
    """Whole numbers; absent where NULL, or where `valid` says so (for values that may be negative)."""
    return Column(key, "int", values, values != NULL if valid is None else valid)


def float_column(key: str, values: Float64) -> Column:
    """Numbers; absent where NaN."""
    return Column(key, "float", values, ~np.isnan(values))


def texts_column(key: str, strings: StringPool, values: list[str]) -> Column:
    """Texts; absent where empty."""
    return text_column(key, strings.add_all(values))


def one_of_two(strings: StringPool, mask: Bool, yes: str, no: str) -> Int32:
    """int32[n] text ids: `yes` where the mask holds, else `no`."""
    return np.where(mask, strings.add(yes), strings.add(no)).astype(np.int32)


def evidence_column(strings: StringPool, linked: Bool, yes: str = "linked", no: str = "inferred") -> Column:
    """The argument `evidence`: `yes` where the mask holds, else `no`."""
    return text_column("evidence", one_of_two(strings, linked, yes, no))
