"""Makes the sample that lies in the repository again: `python -m samples.shipped [FOLDER]`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from samples.config import Config
from samples.generate import write

FOLDER = Path(__file__).parent / "dspark_two_ranks"
CONFIG = Config(ranks=2, steps=4, seed=20261020, stages=1, start_step=True, slow_rank=1, delay_us=60.0)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    if folder == FOLDER:
        shutil.rmtree(folder, ignore_errors=True)
    write(CONFIG, folder)


if __name__ == "__main__":
    main()
