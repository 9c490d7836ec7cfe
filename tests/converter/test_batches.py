"""Batches: many inputs, side by side, on a cluster, interrupted, with broken ones among them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.converter.test_command_line import environment, kernel_csv, run

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"host_{i}_ascend_pt" for i in range(4)]


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """Four captures under night/, the third of them broken."""
    for i, name in enumerate(NAMES):
        kernel_csv(tmp_path / "night" / name / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", rows=20 + i)
    (tmp_path / "night" / NAMES[2] / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").write_text("Name\nx\n")
    return tmp_path


def good() -> list[str]:
    return [f"{name}.pftrace" for name in NAMES if name != NAMES[2]]


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_inputs_from_a_list_with_nul(night: Path) -> None:
    listed = b"".join(os.fsencode(f"night/{name}") + b"\0" for name in NAMES)
    (night / "list").write_bytes(listed)
    done = run("convert", "--files0-from", "list", "--out-dir", "out", cwd=night)
    assert done.returncode == 1 and files(night / "out") == good()
    assert f"failed: night/{NAMES[2]}" in done.stderr
    argv = [sys.executable, "-m", "converter", "convert", "--files0-from", "-", "--out-dir", "out2", "-q"]
    piped = subprocess.run(argv, cwd=night, input=listed, env=environment(), check=False, capture_output=True)
    assert piped.returncode == 1 and files(night / "out2") == good()


@pytest.mark.parametrize("content", [b"", b"\0\0"])
def test_a_list_that_names_nothing(night: Path, content: bytes) -> None:
    (night / "list").write_bytes(content)
    done = run("convert", "--files0-from", "list", "--out-dir", "out", cwd=night)
    assert done.returncode == 2 and "names no input" in done.stderr
    assert run("convert", "night", "--files0-from", "list", cwd=night).returncode == 2


def test_side_by_side_gives_the_same_bytes(night: Path) -> None:
    inputs = [f"night/{name}" for name in NAMES]
    one = run("convert", *inputs, "--out-dir", "one", cwd=night)
    two = run("convert", *inputs, "--out-dir", "two", "--jobs", "2", "--summary", "-", cwd=night)
    assert one.returncode == two.returncode == 1, two.stderr
    assert files(night / "one") == files(night / "two") == good()
    for name in good():
        assert (night / "one" / name).read_bytes() == (night / "two" / name).read_bytes()
    assert sorted(json.loads(line)["output"] for line in two.stdout.splitlines()) == [f"two/{n}" for n in good()]
    # the error is the same one line as without workers
    line = next(line for line in one.stderr.splitlines() if "kernel_details.csv" in line)
    assert line in two.stderr


def test_skip_existing_knows_content_and_options(tmp_path: Path) -> None:
    table = kernel_csv(tmp_path / "k.csv")

    def again(*more: str) -> bool:
        done = run("convert", "k.csv", "-o", "o.pftrace", "--skip-existing", "--summary", "-", *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return bool(json.loads(done.stdout).get("skipped"))

    run("convert", "k.csv", "-o", "o.pftrace", cwd=tmp_path)
    assert not again()  # it bears no fingerprint yet
    assert again()
    first = (tmp_path / "o.pftrace").read_bytes()
    os.utime(table, (1, 1))
    assert again()
    assert not again("--annotate", "none") and again("--annotate", "none")
    text = table.read_text()
    table.write_text(text.replace("5.500", "5.600", 1))  # the same size
    assert not again()
    table.write_text(text)
    assert not again()
    assert (tmp_path / "o.pftrace").read_bytes() == first
    assert run("check", "o.pftrace", "--against", "k.csv", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_workers(tmp_path: Path, number: signal.Signals, status: int) -> None:
    names = [kernel_csv(tmp_path / f"k{i}.csv", rows=60_000).name for i in range(8)]
    argv = [sys.executable, "-m", "converter", "convert", *names, "--out-dir", "out", "--jobs", "2", "-q"]
    process = subprocess.Popen(argv, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, start_new_session=True)
    wait_for_trace(tmp_path / "out", process)
    began = time.monotonic()
    os.killpg(process.pid, number)  # as a terminal does
    _, text = process.communicate(timeout=30)
    assert process.returncode == status and time.monotonic() - began < 10
    assert b"Traceback" not in text
    left = files(tmp_path / "out")
    assert 1 <= len(left) < 8 and all(re.fullmatch(r"k\d\.pftrace", name) for name in left)


def wait_for_trace(folder: Path, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and not (folder.is_dir() and list(folder.glob("*.pftrace"))):
        time.sleep(0.01)
    assert process.poll() is None


def test_a_killed_worker_costs_nothing(tmp_path: Path) -> None:
    names = [kernel_csv(tmp_path / f"k{i}.csv", rows=60_000).name for i in range(6)]
    argv = [sys.executable, "-m", "converter", "convert", *names, "--out-dir", "out", "--jobs", "2", "-q"]
    process = subprocess.Popen(argv, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE)
    wait_for_trace(tmp_path / "out", process)
    found = subprocess.run(["pgrep", "-P", str(process.pid), "-f", "LokyProcess"], capture_output=True, check=True)
    os.kill(int(found.stdout.split()[-1]), signal.SIGKILL)
    _, text = process.communicate(timeout=60)
    assert process.returncode == 0, text
    assert files(tmp_path / "out") == [f"k{i}.pftrace" for i in range(6)]


def deadly(item: int) -> int:
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_an_item_that_kills_its_worker_fails_alone() -> None:
    from converter.parallel import Workers
    from schemas.errors import WorkerError

    cleaned: list[int] = []
    found = dict(Workers(jobs=2).as_done(deadly, range(4), cleaned.append))
    assert {k: v for k, v in found.items() if k != 1} == {0: 0, 2: 2, 3: 3}
    assert isinstance(found[1], WorkerError) and 1 in cleaned
    with pytest.raises(WorkerError):
        Workers(jobs=2).map(deadly, range(4))


def test_errors_come_through_a_pickle() -> None:
    import pickle

    from schemas.errors import InputError

    error = InputError("a.csv", "is odd", where="line 3", todo="look at it")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is InputError and str(again) == str(error) and again.where == "line 3"


@pytest.fixture(scope="module")
def dask() -> Iterator[object]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        yield cluster


@pytest.mark.slow
def test_a_dask_cluster_loses_a_worker(tmp_path: Path, dask: object) -> None:
    names = [kernel_csv(tmp_path / f"k{i}.csv", rows=60_000).name for i in range(6)]
    address = dask.scheduler_address  # type: ignore[attr-defined]
    argv = [
        sys.executable, "-m", "converter", "convert", *names, "--out-dir", "out", "-q",
        "--backend", "dask", "--scheduler", address,
    ]  # fmt: skip
    process = subprocess.Popen(argv, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE)
    wait_for_trace(tmp_path / "out", process)
    os.kill(next(iter(dask.workers.values())).pid, signal.SIGKILL)  # type: ignore[attr-defined]
    _, text = process.communicate(timeout=90)
    assert process.returncode == 0, text
    assert files(tmp_path / "out") == [f"k{i}.pftrace" for i in range(6)]


@pytest.mark.slow
def test_dask_converts_ranks_of_one_trace(tmp_path: Path, dask: object) -> None:
    sample = str(ROOT / "samples" / "dspark_two_ranks")
    address = dask.scheduler_address  # type: ignore[attr-defined]
    assert run("convert", sample, "-o", "one.pftrace", cwd=tmp_path).returncode == 0
    done = run("convert", sample, "-o", "two.pftrace", "--backend", "dask", "--scheduler", address, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one.pftrace").read_bytes() == (tmp_path / "two.pftrace").read_bytes()
    assert files(tmp_path) == ["one.pftrace", "two.pftrace"]


@pytest.mark.slow
def test_ray_converts_inputs_and_ranks(night: Path) -> None:
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    address = ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False
    ).address_info["gcs_address"]
    try:
        engine = ["--backend", "ray", "--scheduler", address]
        done = run("convert", *[f"night/{name}" for name in NAMES], "--out-dir", "out", *engine, cwd=night)
        assert done.returncode == 1 and files(night / "out") == good(), done.stderr
        sample = str(ROOT / "samples" / "dspark_two_ranks")
        assert run("convert", sample, "-o", "one.pftrace", cwd=night).returncode == 0
        assert run("convert", sample, "-o", "two.pftrace", *engine, cwd=night).returncode == 0
        assert (night / "one.pftrace").read_bytes() == (night / "two.pftrace").read_bytes()
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--backend", "slurm"], "slurm"),
        (["--backend", "dask"], "--scheduler"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--backend"),
        (["--layout", "zip"], "zip"),
        (["--skip-existing", "-o", "-"], "--skip-existing"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, args: list[str], word: str) -> None:
    kernel_csv(tmp_path / "k.csv")
    done = run("convert", "k.csv", *args, cwd=tmp_path)
    assert done.returncode == 2 and word in done.stderr


def recipe(word: str, language: str = "sh") -> str:
    """The block of docs/batches.md in which `word` stands."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "batches.md").read_text(), re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return str(found)


@pytest.fixture
def shell(night: Path) -> dict[str, str]:
    """An environment in which `npu-perfetto` is this checkout's."""
    program = night / "bin" / "npu-perfetto"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m converter "$@"\n')
    program.chmod(0o755)
    return {**environment(), "PATH": f"{program.parent}:{os.environ['PATH']}"}


def sh(text: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", text], cwd=cwd, env=env, capture_output=True, text=True, check=False)


DAMAGED = "host_9_ascend_pt"


@pytest.fixture
def damaged(night: Path) -> Path:
    """The four captures and one more that can be read but was cut short."""
    folder = night / "night" / DAMAGED / "ASCEND_PROFILER_OUTPUT"
    kernel_csv(folder / "kernel_details.csv")
    (folder / "trace_view.json").write_text(TRACE_CUT_SHORT)
    return night


#: One whole event, and the start of another.
TRACE_CUT_SHORT = """[{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Python"}},
{"ph": "X", "name": "aten::add", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": "1767000000000001.000", "dur": 5, "args": {}},
{"ph": "X", "na"""


def with_damaged() -> list[str]:
    return [*good(), f"{DAMAGED}.pftrace"]


def test_the_recipe_for_a_folder(damaged: Path, shell: dict[str, str]) -> None:
    done = sh(recipe("night/* --out-dir traces --jobs"), damaged, shell)
    assert done.returncode == 1 and f"failed: night/{NAMES[2]}" in done.stderr
    assert "1 of 5 inputs was damaged" in done.stderr and f"damaged: night/{DAMAGED}" in done.stderr
    assert files(damaged / "traces") == with_damaged()
    shutil.rmtree(damaged / "night" / NAMES[2])
    assert sh(recipe("night/* --out-dir traces --jobs"), damaged, shell).returncode == 0


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq here")
def test_the_recipe_with_find_and_jq(damaged: Path, shell: dict[str, str]) -> None:
    for skipped in ("false", "true"):
        done = sh(recipe("jq"), damaged, shell)
        rows = sorted(line.split("\t") for line in done.stdout.splitlines())
        assert [Path(row[0]).name for row in rows] == with_damaged(), done.stderr
        assert [row[2] for row in rows] == [*[skipped] * len(good()), "false"]  # the damaged one is named each time
        assert f"damaged: night/{DAMAGED}" in done.stderr
    assert files(damaged / "traces") == with_damaged()


def test_the_recipe_with_xargs(damaged: Path, shell: dict[str, str]) -> None:
    done = sh(recipe("xargs"), damaged, shell)
    assert done.returncode == 123, done.stderr
    assert files(damaged / "traces") == with_damaged()
    shutil.rmtree(damaged / "night" / NAMES[2])
    done = sh(recipe("xargs"), damaged, shell)
    assert done.returncode == 123 and DAMAGED in done.stderr, done.stderr
    assert not any(name in done.stderr for name in NAMES)
    shutil.rmtree(damaged / "night" / DAMAGED)
    done = sh(recipe("xargs"), damaged, shell)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_the_recipe_with_make(damaged: Path, shell: dict[str, str]) -> None:
    (damaged / "Makefile").write_text(recipe("CAPTURES", "make"))
    done = sh("make -k -j 2 all", damaged, shell)
    assert done.returncode == 2, done.stderr
    assert f"night/{DAMAGED}: is damaged: trace_view.json" in done.stderr
    assert files(damaged / "traces") == with_damaged()
    again = sh("make -k -n all", damaged, shell)
    assert again.stdout.count("npu-perfetto convert") == 1  # only the broken one is still to do
