"""The SQL package `npu`: where its modules are. Their tables are the public contract; see schemas/sql/README.md."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

NAME = "npu"


def folder() -> Traversable:
    """The folder of the modules. A real directory unless the package was imported from a zip."""
    return files("schemas") / "sql" / NAME


def modules() -> dict[str, str]:
    """Module name (`npu.kernels`) -> its SQL."""
    sources = sorted((f for f in folder().iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return {f"{NAME}.{f.name.removesuffix('.sql')}": f.read_text("utf-8") for f in sources}
