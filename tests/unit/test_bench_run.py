"""A benchmark from its first run to its report, interrupted, resumed, and with everything that can go wrong."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench_fakes import CELL, WISH, World, bench
from cli_run import fastfill

from fastfill.benchmark import arms, report
from fastfill.benchmark.connection import under_way
from fastfill.benchmark.grid import Cell
from fastfill.benchmark.journal import Journal, digest
from fastfill.benchmark.load import Loader, arguments
from fastfill.benchmark.proven import judge
from fastfill.errors import NotReadyError, UsageError
from fastfill.serving.profile import load
from ports import free_port

ALL = 4 * (WISH.blocks + WISH.noise)


def test_a_benchmark_runs_every_step_once_and_finds_the_difference(tmp_path: Path) -> None:
    world = World()
    running, _ = bench(tmp_path, world)
    assert running.run() == ""
    assert len(world.loads) == len(set(world.loads)) == ALL
    assert world.closed == 1
    document = report.write(tmp_path)
    assert document.complete
    (cell,) = document.cells
    assert (cell.verdict, cell.arms["A"].fast_calls) == ("faster", 0)
    assert cell.arms["A"].coverage.stopped == pytest.approx({"operator_off": 1.0})
    assert cell.arms["B"].coverage.attention_work == 1.0
    assert cell.ratio is not None
    assert cell.ratio.low <= 0.8 <= cell.ratio.high or cell.ratio.value == pytest.approx(0.8, abs=0.02)
    assert document.provenance.stack.startswith("sglang-0.5.16, digest ")


def test_the_html_needs_nothing_else_and_shows_every_plot(tmp_path: Path) -> None:
    bench(tmp_path, World())[0].run()
    report.write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    for name in ("ratio", "ttft", "coverage", "timeline"):
        assert f'data-plot="{name}"' in page
    assert page.count("<svg") == 4
    for outside in ("src=", "<script", "<link", "@import", "url(http"):
        assert outside not in page
    assert "SGLANG_AITER_FMHA_FP8_ASM: 0 in A, 1 in B" in page
    assert "| isl64-osl2-conc1 | faster |" in (tmp_path / "report.md").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["schema"] == "fastfill.bench/1"


@pytest.mark.parametrize("at", [0, 1, 5, 6, 15])
def test_an_interruption_loses_nothing_and_repeats_no_finished_unit(tmp_path: Path, at: int) -> None:
    first = World()

    def interrupted(name: str, file: Path) -> str:
        if len(first.loads) == at + 1:
            raise KeyboardInterrupt
        return first.well(name, file)

    first.script = interrupted
    running, journal = bench(tmp_path, first)
    with pytest.raises(KeyboardInterrupt):
        running.run()
    assert first.closed == 1
    done = {event["file"]: event["sha256"] for event in journal.events if event["event"] == "run"
            and event["unit"] in journal.finished()}  # fmt: skip

    second = World()
    running, journal = bench(tmp_path, second)
    assert running.run() == ""
    assert all(digest(tmp_path / file) == sha for file, sha in done.items())
    assert not {Path(file).stem for file in done} & set(second.loads)
    document = report.read(tmp_path)
    assert document.complete
    assert len(document.runs) == ALL
    assert any("Ctrl-C" in line for line in document.interruptions)
    assert any("gone on with" in line for line in document.interruptions)
    assert document.cells[0].verdict == "faster"


def test_a_finished_benchmark_given_again_runs_nothing(tmp_path: Path) -> None:
    bench(tmp_path, World())[0].run()
    again = World()
    bench(tmp_path, again)[0].run()
    assert again.loads == []


def test_a_kill_without_warning_leaves_a_torn_line_that_did_not_happen(tmp_path: Path) -> None:
    bench(tmp_path, World())[0].run()
    journal = tmp_path / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    last_unit = max(index for index, line in enumerate(lines) if b'"event": "unit"' in line)
    journal.write_bytes(b"".join(lines[:last_unit]) + lines[last_unit][:20])
    world = World()
    bench(tmp_path, world)[0].run()
    assert len(world.loads) == 4
    document = report.read(tmp_path)
    assert document.complete
    assert any("begun before and not finished" in line for line in document.interruptions)
    assert len(document.runs) == ALL


def test_a_changed_raw_file_voids_its_cell(tmp_path: Path) -> None:
    bench(tmp_path, World())[0].run()
    file = next((tmp_path / "raw").glob("isl64*"))
    file.chmod(0o644)
    file.write_text(file.read_text() + " ")
    document = report.read(tmp_path)
    assert document.changed_files == [f"raw/{file.name}"]
    assert document.cells[0].verdict == "void"
    _, journal = bench(tmp_path, World())
    assert journal.changed() == document.changed_files


def test_another_plan_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    bench(tmp_path, World())
    with pytest.raises(UsageError, match="another blocks"):
        bench(tmp_path, World(), WISH._replace(blocks=4))
    with pytest.raises(UsageError, match="another metric"):
        bench(tmp_path, World(), WISH._replace(metric="total_throughput"))


def test_a_flag_that_did_not_take_is_void_not_no_difference(tmp_path: Path) -> None:
    world = World()
    world.takes_effect = False
    stopped = bench(tmp_path, world)[0].run()
    assert "flag_off" in stopped
    (cell,) = report.read(tmp_path).cells
    assert cell.verdict == "void"
    assert "flag_off" in cell.why


def test_an_arm_that_loses_the_path_after_its_proof_is_void(tmp_path: Path) -> None:
    world = World()

    def lost(name: str, file: Path) -> str:
        world.takes_effect = len(world.loads) < 6
        return world.well(name, file)

    world.script = lost
    bench(tmp_path, world)[0].run()
    (cell,) = report.read(tmp_path).cells
    assert cell.verdict == "void"
    assert "never did" in cell.why


def test_other_clients_void_a_cell(tmp_path: Path) -> None:
    world = World()

    def shared(name: str, file: Path) -> str:
        world.tokens += 50
        return world.well(name, file)

    world.script = shared
    bench(tmp_path, world)[0].run()
    assert "other clients" in report.read(tmp_path).cells[0].why


def test_a_server_that_dies_is_said_and_the_rest_can_be_run_later(tmp_path: Path) -> None:
    world = World()

    def dies(name: str, file: Path) -> str:
        world.lives = len(world.loads) < 7
        return world.well(name, file) if world.lives else "ConnectionRefusedError: refused"

    world.script = dies
    assert "died" in bench(tmp_path, world)[0].run()
    document = report.read(tmp_path)
    assert not document.complete
    assert "not finished" in document.cells[0].why
    assert any("the server died" in run.void for run in document.runs)
    assert any("stopped" in line for line in document.interruptions)
    bench(tmp_path, World())[0].run()
    document = report.read(tmp_path)
    assert document.complete
    assert document.cells[0].verdict == "faster"
    assert any("died" in line for line in document.interruptions)


def test_failed_requests_and_a_client_that_is_cut_off_void_their_cell(tmp_path: Path) -> None:
    from bench_fakes import raw

    world = World()

    def partly(name: str, file: Path) -> str:
        if "ab002-1" in name:
            file.write_text(raw(CELL, 80.0, failed=1))
            return ""
        if "ab003-2" in name:
            return "the client was cut off after 5 s"
        return world.well(name, file)

    world.script = partly
    bench(tmp_path, world)[0].run()
    (cell,) = report.read(tmp_path).cells
    assert cell.verdict == "void"
    assert "1 of 4 requests failed" in cell.why
    assert "cut off" in cell.why
    assert len(cell.blocks) == 1


def test_a_cell_that_does_not_fit_is_void_and_the_others_are_run(tmp_path: Path) -> None:
    world = World()
    big = Cell(1000, 24, 1, 4)
    bench(tmp_path, world, cells=[big, CELL])[0].run()
    first, second = report.read(tmp_path).cells
    assert "1000 + 24 tokens do not fit the server's context of 1024" in first.why
    assert (first.verdict, second.verdict) == ("void", "faster")
    assert not any(big.name in name for name in world.loads)


def test_a_full_disk_stops_with_what_is_finished(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\nfrom bench_fakes import World, bench\n"
        "bench(Path(sys.argv[1]), World())[0].run()\n"
    )

    def small() -> None:
        # The kernel refuses to write beyond this many bytes of any one file, as a full disk does.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    here = str(Path(__file__).parent)
    ran = subprocess.run(
        [sys.executable, "-B", "-c", program, str(tmp_path), here],
        preexec_fn=small, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "the disk is full" in ran.stderr
    world = World()
    bench(tmp_path, world)[0].run()
    document = report.read(tmp_path)
    assert document.complete
    assert len(document.runs) == ALL
    assert 0 < len(world.loads) < ALL


def test_the_report_of_a_folder_without_a_benchmark_is_a_usage_error(tmp_path: Path) -> None:
    ran = fastfill("bench", "report", str(tmp_path))
    assert ran.code == 2
    assert "no benchmark is there" in ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--metric", "speed"], "is no metric"),
        (["--switch", "soon"], "no way to switch"),
        ([], "no server is named"),
        (["--switch", "restart"], "its own start"),
        (["--switch", "restart", "--model", "m", "--url", "http://h:1"], "its own start"),
        (["--url", "http://h:1", "--model", "m"], "several servers are named"),
        (["--model", "m", "--lab", "dense"], "give --url of one with profile long-context, or --model"),
        (["--url", "http://h:1", "--", "--log-level", "info"], "words after -- are for servers that are started here"),
    ],
)
def test_what_cannot_be_run_is_refused_before_a_server_is_touched(words: list[str], says: str, tmp_path: Path) -> None:
    given = ["--a", "off", "--b", "long-context", "--grid", "isl=1 osl=1 conc=1", "--out", str(tmp_path / "new")]
    ran = fastfill("bench", "ab", *given, *words)
    assert (ran.code, says in ran.err) == (2, True), ran.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["ab", "accuracy"])
def test_a_server_that_is_asked_for_wins_over_one_that_the_environment_names(command: str, tmp_path: Path) -> None:
    words = ["--a", "off", "--b", "long-context", "--grid", "isl=1 osl=1 conc=1"] if command == "ab" else []
    words += ["--out", str(tmp_path / "new"), "--lab", "no-such-model", "--python", sys.executable]
    words += ["--port", str(free_port())]
    ran = fastfill("bench", command, *words, env={"FASTFILL_URL": "http://127.0.0.1:1"})
    assert (ran.code, "there is no model no-such-model" in ran.err) == (2, True), ran.err
    ran = fastfill("bench", command, *words, "--url", "http://127.0.0.1:1")
    assert ran.code == 2 and "no-such-model" not in ran.err
    assert not (tmp_path / "new").exists()


def test_a_proof_must_say_what_the_arm_is() -> None:
    off, on = (arms.compare(load("off"), load("long-context"), switch=None).arm(name) for name in ("A", "B"))
    for verdict, holds in (("FIRED", on), ("NOT_FIRED", off)):
        for arm in (off, on):
            assert judge(arm, {"verdict": verdict, "summary": ""}).holds == (arm is holds)
    for verdict in ("PARTIAL", "NOT_EXERCISED", "WRONG", "INVALID", None):
        assert not judge(on, {"verdict": verdict, "summary": ""}).holds
        assert not judge(off, {"verdict": verdict, "summary": ""}).holds


def test_requests_under_way_are_read_from_the_metrics() -> None:
    page = 'sglang:num_running_reqs{tp_rank="0"} 2.0\nsglang:num_queue_reqs{tp_rank="0"} 1.0\nother 7\n'
    assert under_way(page) == 3
    assert under_way("other 7\n") is None


STANDIN = """
import json, os, sys, time
def get_tokenizer(name):
    return print("read", name, flush=True)
def cli_main():
    words = sys.argv
    seed = words[words.index("--seed") + 1]
    if seed == "1": time.sleep(60)
    if seed == "2": os._exit(9)
    if seed == "3": raise ValueError("no such tokenizer")
    if seed == "4": sys.exit(1)
    get_tokenizer("t")
    print("talk")
    open(words[words.index("--output-file") + 1], "a").write(json.dumps(words) + os.environ.get("OPENAI_API_KEY", ""))
"""


def test_the_loader_survives_every_end_of_a_run(tmp_path: Path) -> None:
    package = tmp_path / "sglang" / "benchmark"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "serving.py").write_text(STANDIN)
    out = tmp_path / "o.jsonl"

    def words(seed: int) -> list[str]:
        return arguments(CELL, url="http://h:1", seed=seed, file=out, tokenizer="t")

    env = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with Loader(Path(sys.executable), env, tmp_path / "log", "secret") as loader:
        assert loader.run(words(0), 20) == ""
        assert "cut off after 1 s" in loader.run(words(1), 1)
        assert "died" in loader.run(words(2), 20)
        assert loader.run(words(3), 20) == "ValueError: no such tokenizer"
        assert loader.run(words(4), 20) == "it left with 1"
        assert loader.run(words(5), 20) == loader.run(words(6), 20) == ""
    assert out.read_text().count("--flush-cache") == 3
    assert out.read_text().count("secret") == 3
    # The first process and the last one, whose second run has it already.
    assert (tmp_path / "log").read_text().count("read t") == 2
    assert "secret" not in " ".join(words(0))


def test_an_interpreter_without_sglang_is_named(tmp_path: Path) -> None:
    with (
        Loader(Path(sys.executable), {"PYTHONPATH": ""}, tmp_path / "log") as loader,
        pytest.raises(NotReadyError, match="cannot be started") as raised,
    ):
        loader.run([], 5)
    assert "--python" in raised.value.next_step
    assert "sglang" in raised.value.detail


def test_a_journal_refuses_a_line_that_is_not_its_own(tmp_path: Path) -> None:
    Journal(tmp_path, {"x": 1}).add("started")
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write("what\n{}\n")
    with pytest.raises(UsageError, match="journal") as raised:
        Journal(tmp_path, {"x": 1})
    assert raised.value.where.endswith(":2")
