"""Kills conversions at random moments: python -m tests.faults --kills 200 [--signal KILL|INT|TERM] [--seed N]"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.faults.kills import kill_at_random


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--signal", choices=("KILL", "INT", "TERM"), default="KILL")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=30_000)
    options = parser.parse_args()
    number = signal.Signals[f"SIG{options.signal}"]
    with tempfile.TemporaryDirectory() as folder:
        kills = kill_at_random(Path(folder), options.kills, number, options.seed, options.rows)
    moments = ", ".join(f"{count} {moment}" for moment, count in sorted(kills.moments.items()))
    print(f"{number.name}: {kills.good} of {kills.runs} left nothing or a whole trace under the target ({moments})")
    for fault in kills.faults[:10]:
        print(f"  {fault}")
    return 0 if kills.good == kills.runs else 1


if __name__ == "__main__":
    sys.exit(main())
