"""A compose project of real containers, from a file that `entrypoint deploy compose` rendered."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import TREE
from tests.containers import IMAGE, engine, skip_without
from tests.rows import ended, said

SPEC = """\
name: {name}
launcher: {launcher}
hosts: [worker-0, worker-1]
slots: 2
command: [python, -u, program.py]
"""


class Compose:
    """A compose project, from a file that `entrypoint deploy compose` rendered, by this `tool` or
    the one there is."""

    def __init__(
        self, folder: Path, project: str, tool: Sequence[str] = (f"{TREE}/scripts/dev/compose",)
    ) -> None:
        self.folder = folder
        self.project = project
        self.tool = tool
        self.file = folder / "compose.yaml"

    def render(
        self, spec: Path, *command: str, image: str = IMAGE, options: Sequence[str] = ()
    ) -> None:
        skip_without(image)
        secret = self.folder / "secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o444)  # the container's user is not this one
        argv = [sys.executable, "-m", "entrypoint", "deploy", "compose", "--image", image]
        argv += ["--spec", str(spec), "--out", str(self.file), *options]
        argv += ["--", *command] if command else []
        subprocess.run(argv, check=True)

    def train(self, name: str, launcher: str, program: str, fields: str) -> tuple[set[int], str]:
        """Run a job of two nodes with two ranks each, with these fields of its spec, to its end.
        Return the statuses of its nodes, and all that they printed."""
        folder = self.folder / "job"
        folder.mkdir()
        (folder / "job.yaml").write_text(SPEC.format(name=name, launcher=launcher) + fields)
        (folder / "program.py").write_text(program)
        for file in (folder, *folder.iterdir()):
            file.chmod(0o755)
        self.render(folder / "job.yaml")
        self.run("up", "-d")
        containers = self.containers()
        statuses = {*ended(containers, 120).values()}
        return statuses, said(containers)

    def run(self, *words: str, timeout: float = 150) -> str:
        done = self.call(*words, timeout=timeout)
        return done.stdout + done.stderr

    def call(self, *words: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        argv = [*self.tool, "-p", self.project, "-f", str(self.file), *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)

    def containers(self) -> dict[str, str]:
        """Service -> container id."""
        mine = {"label": f"com.docker.compose.project={self.project}"}
        found = engine().containers.list(all=True, filters=mine)
        return dict(sorted((of.labels["com.docker.compose.service"], str(of.id)) for of in found))

    def down(self) -> None:
        if self.file.exists():
            self.run("down", "--timeout", "0", "--volumes")
