"""Dependency audit: python -m tests.audit. Part of `make lint`; never fails for lack of a network.

* Offline, always: what is installed fits together (pip check), every dependency of pyproject.toml has a lower bound,
  those that a user gets have a line in docs/dependencies.md.
* pip-audit asks the public vulnerability database about the installed versions. Where it can't be reached, that is said.
Exit 1 where a version is known to be vulnerable or an offline check fails.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120
#: Known and of no effect here: id -> why.
ACCEPTED: dict[str, str] = {}


def offline() -> list[str]:
    problems = []
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    if done.returncode:
        problems += [f"pip check: {line}" for line in done.stdout.splitlines()]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *(t for name, texts in extras.items() if name != "dev" for t in texts)]:
        name = re.split(r"[\[<>=!~; ]", text, maxsplit=1)[0]
        if ">=" not in text:
            problems.append(f"{name}: no lower bound in pyproject.toml")
        if name not in told:
            problems.append(f"{name}: no line in docs/dependencies.md")
    return problems


def vulnerabilities() -> tuple[list[str], str]:
    """(known vulnerabilities, one line each; why there was no audit, or "")."""
    if importlib.util.find_spec("pip_audit") is None:
        return [], "pip-audit is not installed; it comes with the extra dev"
    argv = [
        sys.executable,
        "-m",
        "pip_audit",
        "--format",
        "json",
        "--skip-editable",
        "--progress-spinner",
        "off",
        "--timeout",
        "10",
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [], f"the vulnerability database did not answer within {TIMEOUT_S} s"
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        words = done.stderr.strip().splitlines()[-1:] or ["no answer"]
        return [], f"the vulnerability database was not reached ({words[0][:200]})"
    lines = [
        f"{package['name']} {package.get('version', '')}: {problem['id']}, fixed in {', '.join(problem['fix_versions']) or 'no version'}"
        for package in found
        for problem in package.get("vulns", ())
        if problem["id"] not in ACCEPTED
    ]
    skipped = [package["skip_reason"] for package in found if "skip_reason" in package]
    if skipped:
        return lines, f"of {len(skipped)} of {len(found)} packages nothing is known ({skipped[0][:120]})"
    return lines, ""


def main() -> int:
    problems = offline()
    known, why_not = vulnerabilities()
    for line in (*problems, *known):
        print(f"audit: {line}")
    if why_not:
        print(f"audit: no look-up of vulnerabilities: {why_not}")
    if not problems:
        print("audit: dependencies fit together and are documented")
    if not known and not why_not:
        print("audit: no known vulnerability in what is installed")
    return 1 if problems or known else 0


if __name__ == "__main__":
    sys.exit(main())
