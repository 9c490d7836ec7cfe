"""Remote inputs and targets against a real S3 server on this machine, and fsspec's memory file system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.converter.test_command_line import environment, kernel_csv, run

fsspec = pytest.importorskip("fsspec")


def test_names_are_remote_only_with_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from converter.remote import is_remote

    monkeypatch.chdir(tmp_path)
    assert is_remote("s3://bucket/a") and is_remote("memory://a")
    for local in ("a/b", "/a", "a:b", "C:\\x", "-"):
        assert not is_remote(local)


def test_memory_gives_the_bytes_of_the_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from converter.batch import run as convert
    from converter.request import Request

    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "host_1_ascend_pt"
    kernel_csv(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/night/host_1_ascend_pt", recursive=True)
    assert convert(Request(["memory://night/host_1_ascend_pt"], out_dir="memory://traces", quiet=True)) == 0
    remote = memory.cat_file("/traces/host_1_ascend_pt.pftrace")
    assert convert(Request(["host_1_ascend_pt"], output="here.pftrace", quiet=True)) == 0
    # only the name of the input differs, and with it a length
    here = (tmp_path / "here.pftrace").read_bytes()
    assert b"memory://night/host_1_ascend_pt" in remote and len(remote) - len(here) <= 30
    assert memory.ls("/traces", detail=False) == ["/traces/host_1_ascend_pt.pftrace"]


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """The environment that leads to a local S3 server with the bucket `profiles`."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    variables = {
        "FSSPEC_S3_ENDPOINT_URL": url, "FSSPEC_S3_KEY": "test", "FSSPEC_S3_SECRET": "test",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
    }  # fmt: skip
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=url, key="test", secret="test", skip_instance_cache=True)
    fs.mkdir("profiles")
    yield {**variables, "URL": url}
    server.stop()


def listed(s3: dict[str, str]) -> list[str]:
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=s3["URL"], key="test", secret="test", skip_instance_cache=True)
    return sorted(fs.find("profiles"))


def put(s3: dict[str, str], local: Path, name: str) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=s3["URL"], key="test", secret="test", skip_instance_cache=True)
    fs.put_file(str(local), f"profiles/{name}")


def convert(s3: dict[str, str], cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "converter", "convert", *args]
    return subprocess.run(
        argv, cwd=cwd, env={**environment(), **s3}, capture_output=True, text=True, check=False, timeout=120
    )


def test_captures_in_a_bucket(tmp_path: Path, s3: dict[str, str]) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    env = {**s3, "TMPDIR": str(scratch)}
    table = kernel_csv(tmp_path / "kernel_details.csv", rows=50)
    for name in ("a_ascend_pt", "b_ascend_pt"):
        put(s3, table, f"night/{name}/ASCEND_PROFILER_OUTPUT/kernel_details.csv")
    (tmp_path / "broken.csv").write_text("x\n")
    put(s3, tmp_path / "broken.csv", "night/c_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv")
    urls = [f"s3://profiles/night/{name}_ascend_pt" for name in "abc"]
    done = convert(env, tmp_path, *urls, "--out-dir", "s3://profiles/traces", "--summary", "-", "--jobs", "2")
    assert done.returncode == 1, done.stderr
    assert sorted(json.loads(line)["output"] for line in done.stdout.splitlines()) == [
        f"s3://profiles/traces/{name}_ascend_pt.pftrace" for name in "ab"
    ]
    assert [n for n in listed(s3) if "traces" in n] == [f"profiles/traces/{name}_ascend_pt.pftrace" for name in "ab"]
    # the message names what the user named, and nothing stays on this machine
    assert "s3://profiles/night/c_ascend_pt" in done.stderr and str(scratch) not in done.stderr
    assert not list(scratch.iterdir())
    again = convert(env, tmp_path, urls[0], "-o", "here.pftrace", "--skip-existing")
    assert again.returncode == 0, again.stderr
    assert run("check", "here.pftrace", "--against", "kernel_details.csv", cwd=tmp_path).returncode == 0
    assert "up to date" in convert(env, tmp_path, urls[0], "-o", "here.pftrace", "--skip-existing").stderr


def test_what_is_not_there_is_usage(tmp_path: Path, s3: dict[str, str]) -> None:
    done = convert(s3, tmp_path, "s3://profiles/nowhere", "-o", "o.pftrace")
    assert done.returncode == 2 and "s3://profiles/nowhere: no such file or folder" in done.stderr
    kernel_csv(tmp_path / "k.csv")
    done = convert(s3, tmp_path, "k.csv", "-o", "s3://nobucket/o.pftrace")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1 and "nobucket" in done.stderr
    done = convert(s3, tmp_path, "k.csv", "-o", "nosuchscheme://x/o.pftrace")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["k.csv"]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; nothing may stay in it. The current folder is another one."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    yield folder
    assert not list(folder.iterdir())


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs a command in this process: s3fs takes a second to import. Gives exit status, stdout and stderr."""
    from converter import cli

    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    settings = {"endpoint_url": s3["URL"], "key": "test", "secret": "test", "use_listings_cache": False}
    monkeypatch.setitem(fsspec.config.conf, "s3", settings)
    monkeypatch.setattr("converter.cli.signal.signal", lambda *_: None)
    monkeypatch.setattr(cli.app, "registered_commands", [])

    def run_here(*args: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["npu-perfetto", *map(str, args)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.run()
        return (int(left.value.code or 0), *capfd.readouterr())

    return run_here


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def test_questions_to_traces_in_a_bucket(tmp_path: Path, s3: dict[str, str], call: Call, scratch: Path) -> None:
    for name, rows in (("a", 3), ("b", 4)):
        kernel_csv(tmp_path / f"{name}.csv", rows=rows)
        assert call("convert", f"{name}.csv", "-o", f"{name}.pftrace")[0] == 0
        put(s3, tmp_path / f"{name}.pftrace", f"asked/{name}.pftrace")
        put(s3, tmp_path / f"{name}.csv", f"asked/rank{rows}/{name}.csv")
    (tmp_path / "c.pftrace").write_text("this is a text\n")
    put(s3, tmp_path / "c.pftrace", "asked/c.pftrace")
    a, b, c = (f"s3://profiles/asked/{name}.pftrace" for name in "abc")
    query = "INCLUDE PERFETTO MODULE npu.kernels; SELECT count(*) AS n FROM npu_kernels"

    status, out, err = call("sql", "s3://profiles/asked/*.pftrace", query, "--format", "csv")
    assert (status, lines(out)) == (1, ["trace,n", f"{a},3", f"{b},4"])
    assert len(lines(err)) == 1 and f"{c}: trace_processor can't read this file" in err
    status, out, err = call("report", a, b, "--table", "ranks", "--format", "json")
    assert [row["trace"] for row in json.loads(out)] == [a, b], err
    status, out, err = call("compare", a, b, "--format", "json")
    assert (json.loads(out)["before"], json.loads(out)["after"]) == (a, b), err

    status, out, err = call("check", a, "--against", "s3://profiles/asked/rank3/a.csv")
    assert status == 0 and out.startswith(f"{a}: ") and "equal to what the input" in out, err
    status, out, err = call("check", a, "--against", "s3://profiles/asked/rank4/b.csv")
    assert status == 1 and lines(out) and all(line.startswith(f"{a}: rank 0") for line in lines(out)), err
    status, out, err = call("check", a, "--against", c)
    assert status == 1 and c in err and str(scratch) not in err

    urls = [f"s3://profiles/asked/rank{rows}/{name}.csv" for name, rows in (("a", 3), ("b", 4))]
    here = json.loads(call("gaps", "a.csv", "b.csv", "--format", "json")[1])
    wanted = [row | {"file": url, "rank": rank} for row, url, rank in zip(here, urls, (3, 4), strict=True)]
    assert json.loads(call("gaps", *urls, "--format", "json")[1]) == wanted


def test_records_roles_and_summary_in_a_bucket(tmp_path: Path, s3: dict[str, str], call: Call, scratch: Path) -> None:
    sample = Path(__file__).parents[2] / "samples" / "dspark_two_ranks"
    info = sample / "server_info.json"
    (tmp_path / "roles.toml").write_text("[commit]\npatterns = ['own_commit']\nextend = true\n")
    (tmp_path / "bad.json").write_text("no records\n")
    for path in (info, tmp_path / "roles.toml", tmp_path / "bad.json"):
        put(s3, path, f"beside/{path.name}")
    url = "s3://profiles/beside"
    status, _, err = call(
        "convert", sample, "-o", "there.pftrace", "--skip-existing", "--summary", f"{url}/summary.json",
        "--dspark", f"0={url}/server_info.json", "--dspark", f"1={url}/server_info.json", "--roles", f"{url}/roles.toml",
    )  # fmt: skip
    assert status == 0 and "profiles/beside/summary.json" in listed(s3), err
    status, _, err = call(
        "convert", sample, "-o", "here.pftrace", "--skip-existing", "--roles", "roles.toml",
        "--dspark", f"0={info}", "--dspark", f"1={info}",
    )  # fmt: skip
    assert status == 0, err
    assert (tmp_path / "there.pftrace").read_bytes() == (tmp_path / "here.pftrace").read_bytes()

    kernel_csv(tmp_path / "k.csv")
    status, _, err = call("convert", "k.csv", "-o", "k.pftrace", "--dspark", f"{url}/bad.json")
    assert status == 1 and f"npu-perfetto: {url}/bad.json: is not JSON" in err
    status, _, err = call("convert", "k.csv", "-o", "k.pftrace", "--roles", f"{url}/bad.json")
    assert status == 1 and f"npu-perfetto: {url}/bad.json: is not TOML" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["sql", "s3://profiles/none/*.pftrace", "SELECT 1"], "s3://profiles/none/*.pftrace: matches no file"),
        (["sql", "s3://nobucket/*.pftrace", "SELECT 1"], "s3://nobucket/*.pftrace: matches no file"),
        (["report", "s3://profiles/none.pftrace"], "s3://profiles/none.pftrace: no such file or folder"),
        (["compare", "s3://profiles/none.pftrace", "k.csv"], "s3://profiles/none.pftrace: no such file or folder"),
        (["check", "s3://profiles/none.pftrace"], "s3://profiles/none.pftrace: no such file or folder"),
        (["check", "k.csv", "--against", "s3://profiles/none"], "s3://profiles/none: no such file or folder"),
        (["gaps", "s3://profiles/none.csv"], "s3://profiles/none.csv: no such file or folder"),
        (["describe", "s3://profiles/none"], "s3://profiles/none: no such file or folder"),
        (["convert", "k.csv", "--dspark", "0=s3://profiles/none"], "s3://profiles/none: no such file or folder"),
        (["convert", "k.csv", "--roles", "s3://profiles/none"], "s3://profiles/none: no such file or folder"),
        (["convert", "k.csv", "--summary", "nosuchscheme://x/s.json"], "nosuchscheme://x/s.json: "),
        (["sql", "nosuchscheme://x/*.pftrace", "SELECT 1"], "nosuchscheme://x/*.pftrace: "),
        (["open", "s3://profiles/none.pftrace"], "is a URL; open shows a trace of this machine"),
        (["record", "http://127.0.0.1:9", "-o", "s3://profiles/run"], "s3://profiles/run: is a URL; "),
    ],
)  # fmt: skip
def test_urls_that_cannot_be_are_usage(tmp_path: Path, call: Call, scratch: Path, args: list[str], words: str) -> None:
    kernel_csv(tmp_path / "k.csv")
    status, out, err = call(*args)
    assert status == 2 and words in err and len(lines(err)) == 1 and not out, err
    assert sorted(os.listdir(tmp_path)) == ["k.csv", "tmp"]


def test_without_the_extra_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from converter.sql import matching
    from schemas.errors import UsageError

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    for url in ("s3://bucket/a.pftrace", "s3://bucket/*.pftrace"):
        with pytest.raises(UsageError, match=r"remote paths need the extra: pip install 'npu-perfetto\[remote\]'"):
            matching([url])


def test_patterns_of_urls() -> None:
    from converter.sql import matching

    memory = fsspec.filesystem("memory")
    for name in ("b.pftrace", "a.pftrace", "c.csv", "odd[1].pftrace"):
        memory.pipe_file(f"/globbed/{name}", b"")
    first = [f"memory://globbed/{name}.pftrace" for name in "ab"]
    assert matching(["memory://globbed/[ab].pftrace"]) == first
    assert matching(["memory://globbed/b.pftrace", "memory://globbed/?.pftrace"]) == first[::-1]
    assert matching(["memory://globbed/odd[1].pftrace"]) == ["memory://globbed/odd[1].pftrace"]


def test_a_folder_is_no_trace_and_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    from converter import remote
    from converter.sql import run as ask

    fsspec.filesystem("memory").pipe_file("/traces_of_a_night/a.pftrace", b"")
    monkeypatch.setattr(remote, "_get", None)
    answer = ask(["memory://traces_of_a_night"], "SELECT 1")
    assert [str(failure) for failure in answer.failures] == ["memory://traces_of_a_night: not a file"]


def test_what_is_said_of_an_input_names_the_url(
    tmp_path: Path, scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from converter.batch import run as convert
    from converter.describe import describe_inputs
    from converter.request import Request

    memory = fsspec.filesystem("memory")
    long = "x" * 170  # messages cut long paths, so that the whole local one is not in them
    folder = f"memory://said/{long}_ascend_pt"
    table = kernel_csv(tmp_path / "kernel_details.csv").read_bytes()
    memory.pipe_file(f"/said/{long}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", table)
    memory.pipe_file(f"/said/{long}_ascend_pt/profiler_info_0.json", b"{")  # damaged: a warning
    assert describe_inputs(Request([folder]), "json") == 0
    said = capsys.readouterr().out
    found = json.loads(said)["captures"][0]
    assert found["path"] == folder and str(scratch) not in said
    assert found["read"][0]["path"] == f"{folder}/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
    assert convert(Request([folder], output="o.pftrace", summary="-")) == 0
    out, err = capsys.readouterr()
    assert "warning: memory://said/xxx" in err and "memory://said/xxx" in json.loads(out)["warnings"][0]
    assert str(scratch) not in out + err
    memory.pipe_file(f"/said/{long}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", b"x\n")
    assert convert(Request([folder], output="o.pftrace")) == 1
    err = capsys.readouterr().err
    assert "memory://said/xxx" in err and str(scratch) not in err
