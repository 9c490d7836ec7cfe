"""What Perfetto's own JSON import makes of a trace: `python -m tests.perfetto_json TRACE_VIEW.json ...`

Prints, per file, the slices and flows that the engine drops and how many timestamps stay exact.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

from converter.engine import open_trace


def main() -> None:
    for path in sys.argv[1:]:
        events = json.loads(Path(path).read_text(), parse_float=Decimal)
        slices = Counter(
            (e["name"], int((Decimal(str(e["ts"])) * 1000).to_integral_value())) for e in events if e["ph"] == "X"
        )
        pairs = Counter((e.get("cat"), str(e["id"])) for e in events if e["ph"] == "s")
        ends = Counter((e.get("cat"), str(e["id"])) for e in events if e["ph"] == "f")
        flows = sum(min(n, pairs[k]) if pairs[k] > 1 else n * pairs[k] for k, n in ends.items())
        with open_trace(path) as tp:
            have = Counter((name, ts) for name, ts in tp.rows("SELECT name, ts FROM slice"))
            dropped = tp.rows("SELECT value FROM stats WHERE name = 'slice_drop_overlapping_complete_event'")
            arrows = tp.rows("SELECT count(*) FROM flow")[0][0]
        total, exact = sum(slices.values()), sum((slices & have).values())
        print(
            f"{path}: {sum(v for (v,) in dropped)} of {total} slices dropped, {flows - arrows} of {flows} flows dropped, "
            f"{exact} timestamps exact ({100 * exact / total:.1f} %)"
        )


if __name__ == "__main__":
    main()
