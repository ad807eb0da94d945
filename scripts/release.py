#!/usr/bin/env python3
"""release.py [--images "gpu ascend toolkit folder"] [--key FILE] [--out FOLDER] - make a release of
the commit that is checked out, in build/release. docs/how-to/upgrade.md lists its files, and shows
how to check it; `make verify` checks it before it is published.

REPOSITORY is the address of the repository: wheel and images name it. The same commit gives the
same bytes with the same address: times are the commit's, packages those of the lock files, an
image is the one that the engine has built of this commit (layers of Debian's packages differ if
they are built anew).

The form of provenance.json: https://in-toto.io/Statement/v1, https://slsa.dev/spec/v1.0/provenance
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import oci
import sbom
import version

TREE = Path(__file__).resolve().parent.parent
LOCKS = ("scripts/image/toolkit.lock", "scripts/image/build.lock")
NAMESPACE = "training-entrypoint-release"  # a signature for another purpose is not accepted
SECTION = re.compile(r"(?ms)^## \[([^]]+)\](?: - (\S+))?\n+(.*?)(?=^## |\Z)")
LINK = re.compile(r"\[([^]]+)\]\((?!https?:)([^)]+)\)")


def say(text: str) -> None:
    print(f"[release] {text}", file=sys.stderr, flush=True)


def run(*words: str | Path, cwd: Path = TREE, **env: str) -> str:
    """Run a program, and return what it prints. Its failure ends this."""
    argv = [str(word) for word in words]
    done = subprocess.run(
        argv, cwd=cwd, env=os.environ | env, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        say(f"{argv[0]} failed | status {done.returncode}: {' '.join(argv)[:200]} | see above")
        raise SystemExit(1)
    return done.stdout.strip()


def write(file: Path, document: dict[str, Any]) -> None:
    """Write a document as JSON."""
    file.write_text(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def notes(changelog: str, name: str) -> str:
    """Return what CHANGELOG.md says of a version, and upgrade.md of a release's files, with paths
    for links into the repository. Between two releases it is the first section of CHANGELOG.md.
    Raises LookupError if a release has no dated section."""
    sections = SECTION.findall(changelog)
    if "dev" not in name:
        sections = [each for each in sections if each[0] == name and each[1][:1].isdigit()]
    if not sections:
        raise LookupError(f"CHANGELOG.md has no section `## [{name}] - YYYY-MM-DD`")
    text = LINK.sub(r"\1: \2", sections[0][2].rstrip())
    page = (TREE / "docs/how-to/upgrade.md").read_text()
    checked = page.partition("\n## Check a release\n")[2].partition("\n## ")[0].rstrip()
    checked = LINK.sub(r"\1: docs/how-to/\2", checked)
    paths = "Paths, such as docs/how-to/docker.md, are those of the source archive."
    return f"# training-entrypoint {name}\n\n{text}\n\n### Check a release\n{checked}\n\n{paths}\n"


def digests(folder: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return names and SHA-256 of files, as in-toto writes them."""
    lines = run("sha256sum", "--", *names, cwd=folder).splitlines()
    return [{"name": line[66:], "digest": {"sha256": line[:64]}} for line in lines]


def environment(folder: Path, lock: Path) -> Path:
    """Make a Python environment of what a lock file has, and return its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    install(python, "--require-hashes", "--only-binary=:all:", "--requirement", lock)
    return python


def install(python: Path, *words: str | Path) -> None:
    """Run pip for a Python that has none."""
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet")
    run(*pip, "--disable-pip-version-check", "install", *words)


def package(out: Path, work: Path, name: str, epoch: int) -> None:
    """Build wheel and source archive of what is committed, and list the wheel's packages."""
    source = work / "source"
    source.mkdir()
    run("git", "archive", "--output", work / "source.tar", "HEAD")
    run("tar", "-xf", work / "source.tar", "-C", source)
    run(
        environment(work / "tools", TREE / LOCKS[1]), "-m", "hatchling", "build",
        "--target", "sdist", "--target", "wheel", "--directory", out,
        cwd=source, ENTRYPOINT_VERSION=name, SOURCE_DATE_EPOCH=str(epoch),
    )  # fmt: skip
    for program in ("image-entry", "entrypoint"):
        shutil.copy(source / "scripts" / program, out)
    shutil.copy(source / LOCKS[0], out)
    (wheel,) = out.glob("*.whl")
    installed = environment(work / "installed", TREE / LOCKS[0])
    # not by its path, which would be in the list
    by_name = ("--find-links", out, f"training-entrypoint=={name}")
    install(installed, "--no-deps", "--no-index", *by_name)
    schema = run(installed.with_name("entrypoint"), "schema")
    (out / "job.schema.json").write_text(f"{schema}\n")
    (digest,) = digests(out, [wheel.name])
    document = sbom.python_packages(installed)
    sbom.describe(document, "file", wheel.name, name, digest["digest"]["sha256"])
    write(out / f"{wheel.name}.cdx.json", document)


def image(kind: str, out: Path, name: str) -> None:
    """Write an image of this commit for `docker load`, and the list of its packages."""
    run(TREE / "scripts/build-image", kind)
    named = f"entrypoint-{kind}:{name.replace('+', '-')}"
    stem = f"entrypoint-{kind}-{name}"
    run("docker", "tag", f"entrypoint-{kind}:dev", named)
    write(out / f"{stem}.cdx.json", sbom.of_image(named))
    # not in OCI's form, which has no HEALTHCHECK
    save = f"docker save {named} | gzip -n >{stem}.image.tar.gz"
    run("bash", "-o", "pipefail", "-c", save, cwd=out)
    run("docker", "rmi", named)


def archives(out: Path, name: str, epoch: int) -> None:
    """Write the toolkit's folder for each architecture as a tar, and as one OCI index of images."""
    layout = oci.Layout(name, epoch)
    images = []
    for architecture, words in {"amd64": (), "arm64": ("arm64",)}.items():
        run(TREE / "scripts/build-image", "toolkit", *words)
        built = f"entrypoint-toolkit:{words[0] if words else 'dev'}"
        inspected = run("docker", "image", "inspect", "--format", "{{json .Config}}", built)
        config = json.loads(inspected)
        kept = {key: config[key] for key in ("Entrypoint", "Cmd", "Env", "Labels") if config[key]}
        with tempfile.TemporaryDirectory() as work:
            files = oci.folder_of(built, Path(work))
            with (out / f"entrypoint-folder-{name}-{architecture}.tar.gz").open("wb") as file:
                oci.pack(file, files, "entrypoint", epoch)
            images.append(layout.image(files, architecture, kept))
        packages = sbom.of_image(built)
        packages["metadata"]["component"]["version"] = name
        write(out / f"entrypoint-folder-{name}-{architecture}.cdx.json", packages)
    layout.write(out / f"entrypoint-toolkit-{name}.oci.tar", images)


def provenance(out: Path, name: str, epoch: int, images: list[str]) -> dict[str, Any]:
    """Return what was made, from what, and how."""
    commit = {
        "name": "training-entrypoint",
        "digest": {"gitCommit": run("git", "rev-parse", "HEAD")},
    }
    bases = []
    if images:
        base = "entrypoint-base:bookworm"
        found = run("docker", "image", "inspect", "--format", "{{.Id}}", base)
        bases = [{"name": base, "digest": {"sha256": found.removeprefix("sha256:")}}]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": digests(out, sorted(os.listdir(out))),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:training-entrypoint:make-release:1",
                "externalParameters": {
                    "version": name,
                    "images": images,
                    "repository": os.environ.get("REPOSITORY", ""),
                },
                "internalParameters": {
                    "SOURCE_DATE_EPOCH": epoch,
                    "python": platform.python_version(),
                    "machine": platform.machine(),
                },
                "resolvedDependencies": [commit, *digests(TREE, LOCKS), *bases],
            },
            # whoever signs: no build service vouches for it
            "runDetails": {"builder": {"id": "urn:training-entrypoint:the-signer"}},
        },
    }


def seal(out: Path, key: Path | None) -> None:
    """Write the digests of all files, and sign them."""
    sums = out / "SHA256SUMS"
    sums.write_text(run("sha256sum", "--", *sorted(os.listdir(out)), cwd=out) + "\n")
    if key:
        run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, sums)
    else:
        say("NOT SIGNED: no key was given | sign it: make release KEY=~/.ssh/id_ed25519")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description="Make a release.")
    parser.add_argument("--images", default="gpu ascend toolkit folder", help='"" for none')
    parser.add_argument("--key", type=Path, help="of ssh; Ed25519 signs the same bytes each time")
    parser.add_argument("--out", type=Path, default=TREE / "build/release")
    options = parser.parse_args()
    if changed := run("git", "status", "--porcelain"):
        say(f"not all is committed | {changed.splitlines()[0].strip()}, ... | commit or stash it")
        return 1
    if options.key and not options.key.is_file():
        say(f"there is no such key | {options.key} | make one: ssh-keygen -t ed25519")
        return 1
    out, images = options.out.resolve(), options.images.split()
    name = version.version(TREE)
    try:
        told = notes((TREE / "CHANGELOG.md").read_text(), name)
    except LookupError as error:
        say(f"this version has no release notes | {error.args[0]} | docs/extending/release.md")
        return 1
    epoch = int(run("git", "log", "-1", "--format=%ct"))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    say(f"version {name}")
    (out / "notes.md").write_text(told)
    with tempfile.TemporaryDirectory() as folder:
        package(out, Path(folder), name, epoch)
    for kind in images:
        if kind == "folder":
            archives(out, name, epoch)
        else:
            image(kind, out, name)
    write(out / "provenance.json", provenance(out, name, epoch, images))
    seal(out, options.key)
    print((out / "SHA256SUMS").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
