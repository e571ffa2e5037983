"""Stand-ins for what only a network has: the vendor's image in a registry, and git repositories.

The registry (Debian's docker-registry) and git's own daemon are real, on this machine's addresses; the image has the
layout of SGLang's image and no GPU code; aiter has its file names, kernel objects without code, and a setup.py whose
compile step is not executed here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import machine
from machine import HERE, IGNORED, ROOT, UNIT, free_port, pip_secret, run, wait

sys.path.insert(0, str(UNIT))

import aiter_tree

from fastfill.pinning import stack as stacks

IMAGE, TAG = "lmsysorg/sglang", "v0.5.16-rocm720-mi35x"
MODEL = "amd/Qwen3.5-397B-A17B-MXFP4"


class Vendor:
    """The stand-ins, and checkouts of this project that point to them.

    Attributes:
        commits: Of the stand-in repositories, by name; ``aiter-incomplete`` builds one module too few.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commits: dict[str, str] = {}
        self.kernels: dict[str, str] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._images: list[str] = []
        self.registry = ""
        self.git = ""

    def start(self) -> None:
        self._start_registry()
        self._make_repositories()
        gateway = run(
            "docker", "network", "inspect", "bridge", "-f", "{{(index .IPAM.Config 0).Gateway}}"
        ).stdout.strip()
        port = free_port()
        self.git = f"git://{gateway}:{port}"
        base = self.folder / "git"
        self._spawn("git", "daemon", "--export-all", f"--base-path={base}", f"--port={port}", "--reuseaddr", str(base))
        wait("git daemon", lambda: run("git", "ls-remote", f"{self.git}/aiter", check=False).returncode == 0, 20)
        self.push()

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait(10)
        for image in self._images:
            run("docker", "image", "rm", image, check=False)

    def push(self) -> None:
        """Build the vendor's image and push it."""
        context = self.folder / "image"
        shutil.copytree(HERE / "vendor", context)
        shutil.copytree(self.folder / "git/aiter", context / "aiter")
        self._push(TAG, "--secret", f"id=pip,src={pip_secret(self.folder)}", str(context))

    def push_release(self, sglang: str, tag: str) -> None:
        """Push the same with another release of SGLang, by name only: what is judged is the installed version."""
        site = "/opt/venv/lib/python3.11/site-packages"
        lines = (
            f"FROM {self.registry}/{IMAGE}:{TAG}",
            f"RUN mv {site}/sglang-0.5.16.dist-info {site}/sglang-{sglang}.dist-info \\",
            f"  && sed -i 's/^Version: 0.5.16$/Version: {sglang}/' {site}/sglang-{sglang}.dist-info/METADATA",
        )
        self._push(tag, "-", input="\n".join(lines) + "\n")

    def _push(self, tag: str, *build: str, **more: str) -> None:
        name = f"{self.registry}/{IMAGE}:{tag}"
        self._images.append(name)
        run("docker", "build", "-q", "-t", name, *build, **more)
        run("docker", "push", "-q", name)

    def checkout(self, place: Path, **changes: str) -> Path:
        """This project's files, with a stack file that names the stand-ins.

        Args:
            place: A new folder.
            changes: Fields of the stack file as ``table__key``, over the stand-ins' own.
        """
        shutil.copytree(ROOT, place, ignore=IGNORED)
        file = place / "docker/stacks/sglang-0.5.16.toml"
        text = file.read_text()
        values = {
            "base.image": f"{self.registry}/{IMAGE}",
            "sglang.repository": f"{self.git}/sglang",
            "aiter.repository": f"{self.git}/aiter",
            "aiter.commit": self.commits["aiter"],
            "aiter.submodule.repository": f"{self.git}/composable_kernel",
            "aiter.submodule.commit": self.commits["composable_kernel"],
            "model.hub": self.git,
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
        for field, value in values.items():
            text = stacks.replace(text, field, value)
        for name, sha256 in self.kernels.items():
            text = text.replace(stacks.load().aiter.kernels.sha256[name], sha256)
        file.write_text(text)
        self.fastfill(place, "pins", "render")
        return place

    def fastfill(self, checkout: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The command line of that checkout, not of this one."""
        environment = {**os.environ, "PYTHONPATH": f"{checkout}/launch:{checkout}/patches"}
        return run(sys.executable, "-m", "fastfill", *words, check=check, cwd=checkout, env=environment)

    def _spawn(self, *argv: str) -> None:
        self._processes.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def _start_registry(self) -> None:
        if shutil.which("docker-registry") is None:
            machine.engine("install")
        self.registry = f"127.0.0.1:{free_port()}"
        config = self.folder / "registry.yml"
        data = self.folder / "registry"
        config.write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {data}}}}}\nhttp: {{addr: '{self.registry}'}}\n"
        )
        self._spawn("docker-registry", "serve", str(config))
        wait("registry", lambda: answers(f"http://{self.registry}/v2/"), 20)

    def _make_repositories(self) -> None:
        base = self.folder / "git"
        self.commits["composable_kernel"] = repository(base / "composable_kernel", {"README.md": "stand-in\n"})
        repository(base / "sglang", {"README.md": "stand-in\n"}, tag="v0.5.16")
        self.commits["model"] = repository(base / MODEL, {"config.json": "{}\n"})
        aiter = base / "aiter"
        aiter_tree.make(aiter, module=None)
        for path in (aiter / "hsa/gfx950/fmha_v3_fwd").glob("*.co"):
            self.kernels[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        files = {"aiter/__init__.py": "", "aiter/jit/__init__.py": ""}
        files |= {
            "setup.py": (HERE / "vendor/setup.py").read_text(),
            "aiter/jit/core.py": (HERE / "vendor/core.py").read_text(),
        }
        submodule = ("3rdparty/composable_kernel", self.commits["composable_kernel"])
        self.commits["aiter"] = repository(aiter, files, submodule=submodule)
        incomplete = {"setup.py": files["setup.py"].replace(', "module_moe_asm"', "")}
        self.commits["aiter-incomplete"] = repository(aiter, incomplete, submodule=submodule)


def answers(url: str) -> bool:
    """Whether a server of this machine answers."""
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def repository(folder: Path, files: dict[str, str], *, tag: str = "", submodule: tuple[str, str] | None = None) -> str:
    """Commit files to a repository, made if need be; returns the commit."""
    git = ["git", "-C", str(folder), "-c", "user.name=test", "-c", "user.email=test@example.org"]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        run("git", "init", "-q", str(folder))
        run(*git, "config", "uploadpack.allowAnySHA1InWant", "true")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run(*git, "add", "-A")
    if submodule is not None:
        run(*git, "update-index", "--add", "--cacheinfo", f"160000,{submodule[1]},{submodule[0]}")
    run(*git, "commit", "-q", "-m", "stand-in")
    if tag:
        run(*git, "tag", "-a", "-m", tag, tag)
    return run(*git, "rev-parse", "HEAD").stdout.strip()
