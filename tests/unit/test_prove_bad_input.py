"""What operators give a proof that is wrong, and odd answers of servers: a clear word and the right exit code."""

from __future__ import annotations

import datetime
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from cli_run import fastfill
from contract_server import ContractServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prove_rig import prove, steps_without
from pytest_httpserver import HTTPServer
from test_prove_log import LINE

from fastfill.proof import gather, profiling, tracing, visit
from fastfill.proof.answers_send import compare
from fastfill.proof.load import load
from fastfill.proof.options import WITNESSES
from fastfill.proof.profiling import Profile
from fastfill.proof.server import Server
from fastfill.proof.transport import Deadline, TimedOut

TRACE = ("--witness", "counters,log,trace")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit, "SETTLE_S", 0.2)
    monkeypatch.setattr(gather, "STEPS", steps_without(compare, load))


def says(document: dict[str, Any], witness: str) -> tuple[str, str]:
    (one,) = [one for one in document["witnesses"] if one["witness"] == witness]
    return one["says"], one["detail"]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that nobody has signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "server.pem"
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


def test_a_certificate_that_nobody_knows_and_one_that_is_given(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with HTTPServer(ssl_context=context, threaded=True) as running:
        server = ContractServer(running)
        ran, document = prove(server.url)
        assert (ran.code, document["verdict"]) == (4, None)
        assert "TLS failed" in ran.err and "SSL_CERT_FILE" in ran.err
        ran, document = prove(server.url, env={"SSL_CERT_FILE": str(certificate)})
        assert (ran.code, document["verdict"]) == (0, "FIRED"), ran.err


def test_an_older_sglang_knows_its_settings_by_another_name(server: ContractServer, http: HTTPServer) -> None:
    facts = server._server_info(None)  # type: ignore[arg-type]
    server.http.clear()
    for path, value in (("/get_server_info", facts), ("/get_model_info", {})):
        http.expect_request(path).respond_with_json(value)
    http.expect_request("/server_info").respond_with_json({"detail": "Not Found"}, status=404)
    http.expect_request("/fastfill/status").respond_with_json({"detail": "Not Found"}, status=404)
    ran, document = prove(server.url)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "plugin_not_attached")


@pytest.mark.parametrize(("status", "words"), [(404, "does not know /start_profile"), (500, "answered HTTP 500")])
def test_a_server_that_cannot_profile_leaves_the_trace_without_a_word(
    server: ContractServer, status: int, words: str
) -> None:
    server.profile_status = status
    ran, document = prove(server.url, *TRACE)
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert says(document, "trace")[0] == "cannot_say" and words in says(document, "trace")[1]


def test_the_trace_is_read_and_removed(server: ContractServer, tmp_path: Path) -> None:
    ran, document = prove(server.url, *TRACE, "--profile-dir", str(tmp_path))
    assert (ran.code, document["verdict"], says(document, "trace")[0]) == (0, "FIRED", "seen")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        ({"trace_bytes": 40}, "ends early or is damaged"),
        ({"trace_bytes": 0}, "ends early or is damaged"),
        ({"gpu": "AMD Instinct MI300X"}, "another GPU: AMD Instinct MI300X"),
    ],
)
def test_half_a_trace_and_one_of_another_gpu_cannot_say(
    server: ContractServer, tmp_path: Path, spoiled: dict[str, Any], words: str
) -> None:
    for name, value in spoiled.items():
        setattr(server, name, value)
    ran, document = prove(server.url, *TRACE, "--profile-dir", str(tmp_path))
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert says(document, "trace")[0] == "cannot_say" and words in says(document, "trace")[1]


@pytest.mark.parametrize("traced", [0.0, 0.5, 2.0])
def test_a_trace_that_does_not_fit_the_ring_disagrees(server: ContractServer, tmp_path: Path, traced: float) -> None:
    server.traced = traced
    ran, document = prove(server.url, *TRACE, "--profile-dir", str(tmp_path))
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "DISAGREE", "witnesses_disagree")
    assert "counters: 2 of 2 calls" in document["summary"] and "trace contradicts" in document["summary"]


def test_traces_on_another_machine_are_said_to_be_there(
    server: ContractServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server._stop_profile = lambda _: {}  # type: ignore[method-assign]
    monkeypatch.setattr(ContractServer, "_stop_profile", lambda *_: "ok")
    server.http.clear()
    again = ContractServer(server.http)
    ran, document = prove(again.url, *TRACE, "--profile-dir", str(tmp_path))
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert "on its own machine" in says(document, "trace")[1] and "--container" in says(document, "trace")[1]


def test_traces_come_out_of_a_container(
    server: ContractServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server's folder is seen in the container only: docker cp gives it as a tar."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "docker"
    tool.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = cp ]; then name=$(basename "$2"); exec tar -cf - -C {inside} "$name"; fi\n'
        f'if [ "$1 $3" = "exec rm" ]; then rm -rf {inside}/$(basename "$5"); fi\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    # What the server calls /elsewhere is inside/ to the pretended engine.
    start = ContractServer._start_profile

    def start_inside(self: ContractServer, request: Any) -> Any:
        answer = start(self, request)
        assert self.profiling is not None
        self.profiling = str(inside / Path(self.profiling[0]).name), self.profiling[1]
        return answer

    monkeypatch.setattr(ContractServer, "_start_profile", start_inside)
    server.http.clear()
    again = ContractServer(server.http)
    words = (*TRACE, "--container", "server", "--profile-dir", str(tmp_path / "elsewhere"))
    ran, document = prove(again.url, *words)
    assert (ran.code, document["verdict"], says(document, "trace")[0]) == (0, "FIRED", "seen"), ran.err
    assert says(document, "log")[0] == "cannot_say"
    assert list(inside.iterdir()) == []


def test_a_profiler_that_does_not_start_in_time_is_stopped_and_the_rest_is_proven(
    server: ContractServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []

    def hangs(*_: object, **__: object) -> str:
        raise TimedOut("http://h/start_profile", 60.0)

    monkeypatch.setattr(Server, "start_profile", hangs)
    monkeypatch.setattr(Server, "stop_profile", lambda *_, **__: stopped.append(1) or True)
    ran, document = prove(server.url, *TRACE)
    assert (ran.code, document["verdict"], stopped) == (0, "FIRED", [1])
    assert says(document, "trace")[0] == "cannot_say" and "did not start" in says(document, "trace")[1]


def test_a_deadline_that_has_passed_starts_no_profiler(
    server: ContractServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Deadline, "passed", lambda deadline: bool(server.requests[1:]) or deadline.remaining() <= 0)
    ran, document = prove(server.url, *TRACE, "--profile-dir", str(tmp_path))
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert says(document, "trace")[0] == "cannot_say" and "time was up" in says(document, "trace")[1]
    assert server.profiling is None and list(tmp_path.iterdir()) == []


class Unasked:
    """A server that has no ring and takes every order."""

    def passes(self, rid: str) -> None:
        return None

    def start_profile(self, folder: str, steps: int, *, timeout_s: float) -> str:
        return ""


def test_the_profiler_keeps_to_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Slow:
        def passes(self, rid: str) -> None:
            return None

        def start_profile(self, folder: str, steps: int, *, timeout_s: float) -> str:
            waits.append(timeout_s)
            return ""

        def stop_profile(self, *, timeout_s: float) -> bool:
            waits.append(timeout_s)
            return True

    profile = Profile(Slow(), 1, None, "")  # type: ignore[arg-type]
    for seconds in (20.0, 0.0):
        profile.start(Deadline(seconds))
        profile.stop(Deadline(seconds))
    assert waits == [pytest.approx(20, abs=1)] * 2 + [5.0] * 2, "a started profiler has to be stopped"


def test_an_operator_who_interrupts_leaves_no_trace_behind(
    server: ContractServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tracing, "until_fair", interrupt)
    ran = fastfill("prove", "--url", server.url, *TRACE, "--profile-dir", str(tmp_path))
    assert ran.code == 130 and "Traceback" not in ran.err
    assert server.profiling is None, "the profiler is stopped, and has written its traces"
    assert list(tmp_path.iterdir()) == []


def test_a_container_that_gives_no_traces_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "docker"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(profiling, "LEAST_S", 0.5)
    start = time.monotonic()
    ranks, why = Profile(None, 1, tmp_path / "elsewhere", "server").fetch(Deadline(0.0))  # type: ignore[arg-type]
    assert ranks == () and "from server: not within 0 s" in why and time.monotonic() - start < 20


def test_a_container_that_is_gone_is_said_in_dockers_words_and_its_traces_count_as_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "docker"
    tool.write_text("#!/bin/sh\necho 'No such container: server' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    profile = Profile(Unasked(), 1, tmp_path / "elsewhere", "server")  # type: ignore[arg-type]
    assert profile.remove(), "nothing was started, so nothing is left"
    profile.start(Deadline(9.0))
    ranks, why = profile.fetch(Deadline(9.0))
    assert ranks == () and why.endswith("from server: No such container: server")
    assert not profile.remove()


def test_without_docker_a_containers_traces_are_left(
    server: ContractServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ("--witness", "counters,trace", "--container", "server", "--profile-dir", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(Path, "is_dir", lambda place: "elsewhere" not in str(place) and Path.exists(place))
    ran, document = prove(server.url, *words)
    assert (ran.code, document["verdict"]) == (0, "FIRED"), ran.err
    assert says(document, "trace")[0] == "cannot_say" and "docker could not fetch" in says(document, "trace")[1]


def test_profiling_and_aborting_take_the_admin_key(server: ContractServer, tmp_path: Path) -> None:
    server.key, server.admin_key = "ordinary-1", "admin-2"
    (tmp_path / "key").write_text("ordinary-1")
    (tmp_path / "admin").write_text("admin-2")
    (tmp_path / "traces").mkdir()
    words = (*TRACE, "--api-key-file", str(tmp_path / "key"), "--profile-dir", str(tmp_path / "traces"))
    ran, document = prove(server.url, *words)
    assert (ran.code, document["verdict"]) == (2, None)
    assert "/start_profile" in ran.err and "--admin-api-key-file" in ran.err
    words += ("--admin-api-key-file", str(tmp_path / "admin"))
    ran, document = prove(server.url, *words)
    assert (ran.code, says(document, "trace")[0]) == (0, "seen"), ran.err
    server.hang = lambda: time.sleep(6)
    ran, document = prove(server.url, "--deadline", "3", *words)
    assert (ran.code, document["verdict"]) == (3, "NOT_EXERCISED")
    assert len(server.aborted) == 1 and "could not be dropped" not in ran.err
    ran, document = prove(server.url, "--deadline", "3", *words[:-2])
    assert (ran.code, document["verdict"]) == (3, "NOT_EXERCISED")
    assert len(server.aborted) == 1 and "--admin-api-key-file" in ran.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--witness", "counters,gossip"), "there is no witness gossip"),
        (("--witness", "log,trace"), "the counters cannot be left out"),
        (("--log", "/nowhere/server.log"), "cannot read the log"),
        (("--journal", "x", "--log", "y"), "the log is in one place"),
        (("--container", "x", "--log", "y"), "--container has no effect here: the log is in one place"),
        (("--container", "x", "--journal", "y"), "--container has no effect here: the log is in one place"),
        (("--container", "x", "--witness", "counters"), "neither its log nor its traces are asked for"),
        (("--log", "x", "--witness", "counters,trace"), "the log is not asked for"),
        (("--journal", "x", "--witness", "counters"), "the log is not asked for"),
        (("--profile-steps", "9"), "--profile-steps has no effect here: no trace is asked for"),
        (("--profile-dir", "/tmp"), "--profile-dir has no effect here: no trace is asked for"),
        (("--light", "--load", "8"), "--light sends no load"),
        (("--light", "--witness", "counters,trace"), "--light takes no trace"),
        (("--manifest-sha256", "0" * 64), "the hash of a folder that is replayed"),
        (("--min-coverage", "1.5"), "min-coverage"),
        (("--load", "-1"), "load"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(
    server: ContractServer, words: tuple[str, ...], error: str
) -> None:
    ran = fastfill("prove", "--url", server.url, *words)
    assert ran.code == 2 and error in ran.err
    assert server.requests == []


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (b"\xff\xfe\x00\n[x] server_args=ServerArgs(random_seed=77)\ncaf\xe9\n" + LINE, "seen"),
        (b"[x] server_args=ServerArgs(random_seed=77)\n[aiter] Load\xffKernel\n", "cannot_say"),
        (b"\x00\xff" * 5000, "cannot_say"),
    ],
)
def test_a_log_of_no_encoding_is_read_as_far_as_it_goes(
    server: ContractServer, tmp_path: Path, log: bytes, said: str
) -> None:
    server.server_info = {"random_seed": 77}
    file = tmp_path / "server.log"
    file.write_bytes(log)
    ran, document = prove(server.url, "--log", str(file))
    assert (ran.code, document["verdict"], says(document, "log")[0]) == (0, "FIRED", said), says(document, "log")
    assert "Traceback" not in ran.err


def test_a_clock_that_jumps_neither_ends_a_proof_nor_prolongs_it(
    server: ContractServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait is on the monotonic clock; times of the ring and the log are compared with each other only."""
    real = time.time
    jumps = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: real() + (-1) ** next(jumps) * 86400.0 * 365)
    ran, document = prove(server.url)
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert 0 <= document["elapsed_s"] < 60


def test_the_profilers_folder_is_a_fresh_one(server: ContractServer) -> None:
    first, second = (Profile(None, 1, None, "") for _ in range(2))  # type: ignore[arg-type]
    assert first.folder != second.folder and str(first.folder).startswith("/tmp/fastfill-prove-")


def test_help_and_readme_say_what_each_witness_can_prove_and_what_not() -> None:
    told = fastfill("prove", "--help").out
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    for name in WITNESSES:
        assert any(line.split()[:1] == [name] and len(line.split()) > 5 for line in told.splitlines()), name
        assert any(line.startswith(f"| `{name}` |") and line.count("|") == 5 for line in readme.splitlines()), name
