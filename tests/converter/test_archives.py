"""Archives whose manifest moves ranks: engines before v58 do not read it, and every command says so or does without."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from converter import manifest
from converter.check import check
from converter.convert import convert
from converter.engine import Engine, open_trace
from converter.options import Options
from converter.wasm_engine import major_version
from samples.config import Config
from samples.generate import write
from schemas.errors import InputError
from tests.converter.test_command_line import run


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """moved.tar: rank 1 has another clock; still.tar: all offsets are zero; moved.pftrace: the ranks of moved.tar."""
    folder = tmp_path_factory.mktemp("archives")
    write(Config(offsets_ms=(0, -123.4)), folder / "run")
    convert([str(folder / "run")], str(folder / "moved.tar"), Options(layout="archive"))
    convert([str(folder / "run")], str(folder / "still.tar"), Options(layout="archive", assume_aligned=True))
    convert([str(folder / "run")], str(folder / "moved.pftrace"))
    return folder


def without_a_slice(data: bytes) -> bytes:
    """The trace without its last slice."""
    trace = Trace.FromString(data)
    begins = [i for i, p in enumerate(trace.packet) if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    del trace.packet[begins[-1]]
    return bytes(trace.SerializeToString())


def offsets(path: Path) -> dict[str, int]:
    with open(path, "rb") as file:
        return manifest.offsets(file)


def test_which_ranks_a_manifest_moves(archives: Path, tmp_path: Path) -> None:
    names = {"rank0.pftrace", "rank1.pftrace", "all_ranks.pftrace"}
    assert set(offsets(archives / "moved.tar")) == set(offsets(archives / "still.tar")) == names
    assert [path for path, ns in offsets(archives / "moved.tar").items() if ns] == ["rank1.pftrace"]
    assert not any(offsets(archives / "still.tar").values())
    assert offsets(archives / "moved.pftrace") == {}
    for text in (b"", b"not json", b"[]", b'{"perfetto_manifest": {"files": [{"clocks": 1}]}}'):
        with tarfile.open(tmp_path / "odd.tar", "w") as tar:
            info = tarfile.TarInfo("manifest.json")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
        assert offsets(tmp_path / "odd.tar") == {}


def test_sql_answers_with_a_warning(archives: Path) -> None:
    done = run("sql", "moved.tar", "SELECT count(*) AS n FROM slice", "--format", "csv", cwd=archives)
    assert done.returncode == 0 and done.stdout.splitlines()[0] == "n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: moved.tar: ") and "manifest" in line and "rank1" in line
    for name in ("still.tar", "moved.pftrace"):
        assert run("sql", name, "SELECT 1", cwd=archives).stderr == ""


@pytest.mark.parametrize("args", [("report", "moved.tar"), ("compare", "moved.pftrace", "moved.tar")])
def test_figures_over_ranks_are_refused(archives: Path, args: tuple[str, ...]) -> None:
    done = run(*args, cwd=archives)
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "moved.tar" in line and "--layout single" in line


def test_check_looks_at_each_member(archives: Path) -> None:
    whole, members = check(str(archives / "moved.pftrace")), check(str(archives / "moved.tar"))
    assert whole.problems == members.problems == []
    figures = whole.compared.split(":")[0]
    assert members.compared.startswith(figures) and "each member" in members.compared
    with pytest.raises(InputError, match="--against"):
        check(str(archives / "moved.tar"), [str(archives / "run")])
    assert check(str(archives / "still.tar"), [str(archives / "run")]).problems == []


def test_check_finds_what_is_wrong_with_a_member(archives: Path, tmp_path: Path) -> None:
    def rebuilt(change: Callable[[str, bytes], bytes | None]) -> str:
        with tarfile.open(archives / "moved.tar") as old, tarfile.open(tmp_path / "new.tar", "w") as new:
            for member in old:
                inside = old.extractfile(member)
                assert inside is not None
                data = change(member.name, inside.read())
                if data is not None:
                    member.size = len(data)
                    new.addfile(member, io.BytesIO(data))
        return str(tmp_path / "new.tar")

    def change(name: str, data: bytes) -> bytes | None:
        if name == "all_ranks.pftrace":
            return None
        if name == "rank0.pftrace":
            return without_a_slice(data)
        return data + b"\xff" * 20 if name == "rank1.pftrace" else data

    *fewer, broken, missing = check(rebuilt(change)).problems
    assert fewer and all(text.startswith("rank0.pftrace: ") for text in fewer)
    assert broken.startswith("rank1.pftrace: trace_processor can't read")
    assert missing == "all_ranks.pftrace: is in the manifest and not in the archive"
    short = tmp_path / "short.tar"
    short.write_bytes((archives / "moved.tar").read_bytes()[:-300_000])
    with pytest.raises(InputError, match="cut short"):
        check(str(short))


@pytest.mark.parametrize(("version", "silent"), [(52, False), (None, False), (58, True), (61, True)])
def test_an_engine_that_reads_the_manifest(version: int | None, silent: bool) -> None:
    backend = SimpleNamespace(version=lambda: version)
    assert (Engine(backend, {"rank1.pftrace": 5}).unread_offsets == "") is silent
    assert Engine(backend, {}).unread_offsets == ""


def test_the_version_of_this_engine(archives: Path) -> None:
    with open_trace(str(archives / "moved.pftrace")) as tp:
        assert tp._backend.version() >= 52
    assert major_version(SimpleNamespace(human_readable_version="")) is None
