"""The `perfetto_manifest` of an archive that `--layout archive` made, read again: which ranks it moves.

Perfetto reads it from v58 on (reference: perfetto's docs, perfetto_manifest, version 1). Older engines merge the
members and leave each on the clock that recorded it, without a word.
"""

from __future__ import annotations

import json
import tarfile
from typing import IO

NAME = "manifest.json"
FIRST_VERSION = 58  # of Perfetto that reads it
MAX_BYTES = 16 << 20


def offsets(file: IO[bytes]) -> dict[str, int]:
    """Member -> ns by which the manifest moves it (0: not at all). Empty for any other file, or where it is damaged.

    file: open at its start, seekable; where it stands afterwards is not defined.
    """
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            first = tar.next()
            inside = tar.extractfile(first) if first is not None and first.name == NAME else None
            stated = json.loads(inside.read(MAX_BYTES))["perfetto_manifest"]["files"] if inside is not None else []
        return {str(entry["path"]): int(entry.get("clocks", {}).get("offset_ns", 0)) for entry in stated}
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, EOFError, OSError):
        return {}
