"""Stands in for a command that a document shows: notes it, and holds it to what can be held here.

`entrypoint` is the real one, where `run` becomes `plan`. `make` and the scripts are looked up,
`docker run IMAGE` is what the image would start, `docker build` is compared with its Dockerfile.
All else is noted only.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

TREE = Path(os.environ["DOCUMENT_TREE"])
_VALUED = {
    "-e", "-v", "-w", "--name", "--user", "--hostname", "--network", "--network-alias", "--device",
    "--entrypoint", "--volumes-from",
}  # fmt: skip


# they need nodes, or a boot to ask about
_PARSED = ("check", "local", "netcheck", "report", "rerun", "status")


def entrypoint(words: list[str], env: dict[str, str]) -> int:
    """Run it; a plan that only says what this machine lacks is fine."""
    if words[:1] and words[0] in _PARSED:
        return parsed(words)
    if words[:1] == ["run"]:
        words = ["plan", *(word for word in words[1:] if word != "--passthrough")]
    env = {
        **env,
        "PYTHONPATH": str(TREE),
        "DOCUMENT_TREE": str(TREE),
        "DOCUMENT_CALLS": os.environ["DOCUMENT_CALLS"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "entrypoint", *words], env=env, capture_output=True, text=True
    )
    sys.stdout.write(done.stdout)
    if done.returncode and "run would end: " not in done.stderr:
        return failed(done.stderr.strip())
    return 0


def parsed(words: list[str]) -> int:
    """Its words are such as the command takes."""
    sys.path.insert(0, str(TREE))
    from entrypoint.base.errors import EntrypointError
    from entrypoint.cli import parser

    ours = words[: words.index("--")] if "--" in words else words
    try:
        parser.parser(None, ours).parse_args(ours)
    except EntrypointError as error:
        return failed(str(error))
    return 0


def make(words: list[str]) -> int:
    """What it would do, without doing it."""
    done = subprocess.run(
        ["/usr/bin/make", "-n", "-C", str(TREE), *words], capture_output=True, text=True
    )
    return failed(done.stderr.strip()) if done.returncode else 0


def script(name: str, words: list[str]) -> int:
    """It is there, and so is each test that is named."""
    gone = [
        word
        for word in words
        if word.startswith("tests/") and not (TREE / word.split("::")[0]).exists()
    ]
    if gone or not os.access(TREE / "scripts" / name, os.X_OK):
        return failed(f"not there: {gone or name}")
    if name == "dev/venv":
        print(os.environ["DOCUMENT_VENV"])
    return 0


def docker(words: list[str]) -> int:
    """The image's own words become the toolkit's; a build is held to its Dockerfile."""
    if words[0] == "build":
        file = (TREE / words[words.index("-f") + 1]).read_text()
        wanted = [
            word.partition("=")[0]
            for before, word in itertools.pairwise(words)
            if before == "--build-arg"
        ]
        gone = [name for name in wanted if not re.search(rf"(?m)^ARG {name}\b", file)]
        return failed(f"no ARG: {gone}") if gone else 0
    if words[0] != "run":
        return 0
    env, rest = {"PATH": os.environ["PATH"]}, words[1:]
    while rest and (rest[0].startswith("-") or rest[0] == "..."):
        option = rest.pop(0)
        value = rest.pop(0) if option in _VALUED else ""
        if option == "-e":
            name, _, text = value.partition("=")
            env[name] = text.replace("/job/", f"{os.getcwd()}/")
        if option == "--hostname":
            env["ENTRYPOINT_NODE_RANK"] = value.rpartition("-")[2]
    sys.path.insert(0, str(TREE))
    from entrypoint.cli import of_image

    program = [word for word in rest[1:] if word != "..."]
    if program in ([], ["entrypoint", "plan"]):
        env["ENTRYPOINT_SPEC"] = "job.yaml"  # "the job that the spec and the environment describe"
    inner = of_image(program)
    if inner is None:  # `entrypoint ...`, or a script that the image has
        return entrypoint(program[1:], env) if program[0] == "entrypoint" else 0
    return entrypoint(inner, env)


def failed(why: str) -> int:
    """Say it, and how it ends."""
    print(f"{' '.join(sys.argv[1:])}: {why}", file=sys.stderr)
    return 1


def main() -> int:
    """The command's exit status. Its first word is the name that it was called by."""
    name, *words = sys.argv[1:]
    with open(os.environ["DOCUMENT_CALLS"], "a") as calls:
        calls.write(f"{name}\n")
    if name == "entrypoint":
        return entrypoint(words, {**os.environ})
    if name == "make":
        return make(words)
    if name.startswith("scripts/"):
        return script(name.removeprefix("scripts/"), words)
    if name == "docker":
        return docker(words)
    if name == "openssl":
        print("0123456789abcdef" * 4)
    if name in ("curl", "kubectl", "jq"):
        sys.stdin.read() if not sys.stdin.isatty() else None
    return 0


sys.exit(main())
