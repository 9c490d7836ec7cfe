"""Entry point of `npu-perfetto` and of `python -m converter`: a signal during start-up ends it without a traceback."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)  # nothing has been opened yet


def main() -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    from converter.cli import run

    run()


if __name__ == "__main__":
    main()
