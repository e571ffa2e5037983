"""Hosts for tests and measurements: network namespaces with an sshd each, and one for the controller. Needs root.

They share this machine's file system but for the folders named here, and reach only each other. Nothing of the
machine's own network or firewall is touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastfill.errors import NotReadyError

OWN = ("/root", "/srv")
"""Folders of which each host has its own, empty at first."""
OVER = ("/etc", "/opt", "/var")
"""Folders that each host sees as this machine has them, and changes for itself alone."""
SSHD = """\
ListenAddress {address}
HostKey {keys}/host
AuthorizedKeysFile {keys}/controller.pub .ssh/authorized_keys
PidFile none
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
MaxStartups 200
SetEnv PATH={folder}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""


def run(*argv: str) -> str:
    """A command's output; a failure says what it said."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


class Namespaces:
    """The hosts.

    Args:
        folder: For keys and the hosts' own folders.
        count: How many.
        prefix: Of the namespaces' names.
    """

    def __init__(self, folder: Path, count: int, prefix: str = "") -> None:
        self.folder = folder
        self.prefix = prefix or f"ff{os.getpid()}"
        self.names = [f"host{number:03}" for number in range(1, count + 1)]
        self.controller = f"{self.prefix}-controller"
        self.keys = folder / "keys"
        self.servers: dict[str, subprocess.Popen[bytes]] = {}

    def address(self, name: str) -> str:
        """A host's address."""
        number = int(name.removeprefix("host"))
        return f"10.231.{number // 250}.{number % 250 + 2}"

    def namespace(self, name: str) -> str:
        """A host's network namespace."""
        return f"{self.prefix}-{name}"

    def own(self, name: str, place: str) -> Path:
        """Where what a host has for itself lies on this machine."""
        top = f"/{place.split('/')[1]}"
        if top not in (*OWN, *OVER):
            raise KeyError(place)
        return self.folder / name / place.strip("/")

    def bin(self, name: str) -> Path:
        """Programs that only this host has, or has in place of this machine's."""
        return self.folder / name / "bin"

    def inside(self, *argv: str) -> list[str]:
        """A command in the controller's namespace."""
        return ["ip", "netns", "exec", self.controller, *argv]

    def up(self, prepare: Callable[[str], None] = lambda _: None) -> None:
        """Make them.

        Args:
            prepare: Told each host's name before its sshd starts.

        Raises:
            NotReadyError: This is not root, or has no sshd.
        """
        if os.geteuid() != 0 or not shutil.which("sshd") or not shutil.which("rsync"):
            raise NotReadyError(
                "this needs root, sshd and rsync", next_step="as root: apt-get install openssh-server rsync"
            )
        self.keys.mkdir(parents=True)
        for key in ("controller", "host"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", str(self.keys / key))
        Path("/run/sshd").mkdir(exist_ok=True)
        run("ip", "netns", "add", self.controller)
        for words in (
            "link add hosts type bridge",
            "addr add 10.231.255.254/16 dev hosts",
            "link set hosts up",
            "link set lo up",
        ):
            run("ip", "-n", self.controller, *words.split())
        for name in self.names:
            self._host(name)
            prepare(name)
            self.start(name)
        self.wait()

    def _host(self, name: str) -> None:
        space, link = self.namespace(name), name
        run("ip", "netns", "add", space)
        run("ip", "link", "add", "eth0", "netns", space, "type", "veth", "peer", link, "netns", self.controller)
        run("ip", "-n", self.controller, "link", "set", link, "master", "hosts", "up")
        run("ip", "-n", space, "addr", "add", f"{self.address(name)}/16", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        self.bin(name).mkdir(parents=True)
        for place in (*OWN, *OVER):
            self.own(name, place).mkdir(parents=True)

    def start(self, name: str) -> None:
        """Start a host's sshd in its namespace, with its own folders."""
        config = self.folder / name / "sshd_config"
        config.write_text(SSHD.format(address=self.address(name), keys=self.keys, folder=self.folder / name))
        script = ["set -e", *(f"mount --bind {self.own(name, place)} {place}" for place in OWN)]
        for place in OVER:
            work = self.folder / name / f"work{place.replace('/', '-')}"
            work.mkdir(exist_ok=True)
            options = f"lowerdir={place},upperdir={self.own(name, place)},workdir={work}"
            script.append(f"mount -t overlay -o {options} overlay {place}")
        # The service manager that Ansible looks for is process 1's name.
        (self.folder / name / "comm").write_text("systemd\n")
        script += [f"mount --bind {self.folder / name / 'comm'} /proc/1/comm", f"exec /usr/sbin/sshd -D -f {config}"]
        argv = ["ip", "netns", "exec", self.namespace(name), "sh", "-c", "; ".join(script)]
        with (self.folder / name / "sshd.log").open("ab") as log:
            self.servers[name] = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)

    def stop(self, name: str) -> None:
        """End a host's sshd and whatever it has started; its folders stay."""
        self._end(self.namespace(name))
        self.servers.pop(name).wait()

    def wait(self) -> None:
        """Until every host's sshd answers."""
        end = time.monotonic() + 60
        for name in self.names:
            while (
                subprocess.run(
                    self.inside("ssh-keyscan", "-T", "2", self.address(name)), capture_output=True, check=False
                ).stdout.strip()
                == b""
            ):
                if time.monotonic() > end:
                    raise RuntimeError(f"{name}: {(self.folder / name / 'sshd.log').read_text()}")
                time.sleep(0.2)

    def settings(self) -> dict[str, str]:
        """How Ansible reaches them."""
        known = self.folder / "known_hosts"
        key = " ".join((self.keys / "host.pub").read_text().split()[:2])
        known.write_text("".join(f"{self.address(name)} {key}\n" for name in self.names))
        return {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.keys / "controller"),
            "ansible_python_interpreter": "/usr/bin/python3",
            # Other namespaces have the same addresses.
            "ansible_control_path_dir": str(self.folder / "cp"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null",
        }

    def processes(self, namespace: str) -> list[int]:
        """Who runs in a namespace now."""
        done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
        return [int(pid) for pid in done.stdout.split()]

    def _end(self, space: str) -> None:
        for sign, seconds in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
            end = time.monotonic() + seconds
            for pid in self.processes(space):
                with suppress(ProcessLookupError):
                    os.kill(pid, sign)
            while self.processes(space) and time.monotonic() < end:
                time.sleep(0.02)

    def down(self) -> None:
        """End what runs in the namespaces, and take them away."""
        spaces = [self.controller, *(self.namespace(name) for name in self.names)]
        for space in spaces:
            self._end(space)
        for server in self.servers.values():
            server.wait()
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


@contextmanager
def namespaces(folder: Path, count: int) -> Iterator[Namespaces]:
    """Hosts for a while."""
    hosts = Namespaces(folder, count)
    try:
        hosts.up()
        yield hosts
    finally:
        hosts.down()
