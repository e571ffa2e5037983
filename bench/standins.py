"""What a host without servers needs in their place: Docker and systemd that remember, and a port that answers.

For measuring what a playbook costs where nothing changes; nothing is served, and no proof is true.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from pathlib import Path

IMAGE_ID = "sha256:" + "1" * 64
DOCKER = f'''#!/usr/bin/python3 -S
import json, os, sys
words, state = sys.argv[1:], "/var/lib/docker/standin.json"
os.makedirs("/var/lib/docker", exist_ok=True)
known = json.load(open(state)) if os.path.exists(state) else {{}}
def save():
    json.dump(known, open(state, "w"))
if words[:2] == ["image", "inspect"]:
    print("{IMAGE_ID}")
elif words[0] == "version":
    print("26.1.5")
elif words[:2] == ["compose", "version"]:
    print("2.26.1")
elif words[0] == "compose" and "up" in words:
    project = words[words.index("--project-name") + 1]
    known[project + "-server-1"] = os.path.basename(words[words.index("--project-directory") + 1])
    save()
elif words[0] == "inspect":
    name = words[-1]
    if name not in known:
        sys.exit("Error: No such container: " + name)
    running = {{"Status": "running", "Health": {{"Status": "healthy"}}, "ExitCode": 0, "StartedAt": "today"}}
    labels = {{"fastfill.release": known[name]}}
    print(json.dumps([{{"Id": "1" * 64, "State": running, "Config": {{"Labels": labels}}}}]))
elif words[0] == "rm":
    known.pop(words[-1], None)
    save()
elif words[0] == "exec":
    print(json.dumps({{"verdict": "FIRED", "summary": "a stand-in", "coverage": None, "witnesses": []}}))
'''
SYSTEMCTL = """#!/bin/sh
verb=$1
shift
case $verb in
show)
    for name; do
        case $name in -*) continue ;; esac
        printf 'Id=%s\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\nUnitFileState=enabled\\n\\n' "$name"
    done ;;
is-enabled) echo enabled ;;
is-active) echo active ;;
esac
"""
METRICS = b"sglang:num_running_reqs 0.0\nsglang:num_queue_reqs 0.0\n"
_CLONE_NEWNET = 0x40000000


def install(folder: Path) -> None:
    """Put the programs into a host's own folder of programs."""
    for name, text in (("docker", DOCKER), ("systemctl", SYSTEMCTL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def listen(namespace: str, address: str, port: int) -> socket.socket:
    """A listening socket in a network namespace; this thread is back in its own when it is made.

    Raises:
        OSError: There is no such namespace, or this is not root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    places = (f"/run/netns/{namespace}", "/proc/thread-self/ns/net")
    # Opened first: after the first step, "own" means the other one.
    there, own = (os.open(place, os.O_RDONLY) for place in places)

    def enter(handle: int) -> None:
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"namespace {namespace}")

    try:
        enter(there)
        try:
            return socket.create_server((address, port))
        finally:
            enter(own)
    finally:
        os.close(there)
        os.close(own)


def answer(listening: socket.socket) -> None:
    """Answer whoever asks with the numbers of an idle server, in the background, until the socket is closed."""

    def serve() -> None:
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            with taken:
                taken.settimeout(10)
                try:
                    taken.recv(65536)
                    head = f"HTTP/1.0 200 OK\r\ncontent-length: {len(METRICS)}\r\n\r\n"
                    taken.sendall(head.encode() + METRICS)
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
