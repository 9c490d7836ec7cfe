"""Hostile inputs beside the checkout (../shared/cases), run by their own runner: each has one right answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GROUPS = ("csv_*", "json_*", "dspark_*", "db_*", "f*", "g*", "[aik]*", "[mopt]*", "c[ah]*", "[rsu]*")


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_case_holds(shared: Path, group: str) -> None:
    command = Path(sys.executable).with_name("npu-perfetto")
    argv = [sys.executable, str(shared / "tools" / "run_cases.py"), str(shared / "cases"), "--only", group]
    done = subprocess.run([*argv, "--command", str(command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    print(done.stdout)


def test_the_groups_leave_no_case_out(shared: Path) -> None:
    from fnmatch import fnmatch

    names = [p.parent.name for p in (shared / "cases").glob("*/expect.json")]
    assert names and all(any(fnmatch(n, g) for g in GROUPS) for n in names)
