#!/usr/bin/env python3
"""release.py [--images "gpu ascend toolkit"] [--key FILE] [--out FOLDER] - make a release of the
commit that is checked out, in build/release.

    wheel, source archive, image-entry, entrypoint    what `make wheel` makes
    completion and man page                           one archive, to unpack below /usr/local
    entrypoint-KIND-VERSION.oci.tar                   each image, as an OCI layout
    *.cdx.json                                        what comes with the wheel, or is in an image
    provenance.json                                   of what it was made: in-toto and SLSA, both v1
    SHA256SUMS, SHA256SUMS.sig                        of all of the above, signed by ssh-keygen

The same commit gives the same bytes: times are the commit's, packages those of the lock files, an
image is the one that the engine has built of this commit (layers of Debian's packages differ if
they are built anew). Without a key nothing is signed, which it says. scripts/verify.py checks a
release.

The form of provenance.json: https://in-toto.io/Statement/v1, https://slsa.dev/spec/v1.0/provenance
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import sbom
import version

TREE = Path(__file__).resolve().parent.parent
LOCKS = ("scripts/image/toolkit.lock", "scripts/image/build.lock")
NAMESPACE = "training-entrypoint-release"  # of signatures: one for another purpose is none here
SUMS, SIGNATURE, PROVENANCE = "SHA256SUMS", "SHA256SUMS.sig", "provenance.json"


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


def sha256(file: Path) -> str:
    """Return the digest of a file."""
    with file.open("rb") as stream:
        return digest_of(stream)


def digest_of(stream: IO[bytes]) -> str:
    """Return the SHA-256 of what a stream has left."""
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def pack(folder: Path, archive: Path, epoch: int) -> None:
    """Write a tar archive of a folder that depends on names and contents alone."""

    def normal(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = epoch
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=normal)


class Release:
    """A release that is being made of a commit."""

    def __init__(self, out: Path, work: Path) -> None:
        self.out = out
        self.work = work
        self.commit = run("git", "rev-parse", "HEAD")
        self.epoch = int(run("git", "log", "-1", "--format=%ct"))
        self.version = version.version(TREE)

    def python(self) -> None:
        """Build wheel and source archive of what is committed, with the build tools of the
        lock."""
        source, tools = self.work / "source", self.work / "tools"
        source.mkdir()
        run("git", "archive", "--output", self.work / "source.tar", self.commit)
        run("tar", "-xf", self.work / "source.tar", "-C", source)
        self.environment(tools, "--requirement", TREE / LOCKS[1])
        run(
            tools / "bin/python", "-m", "hatchling", "build", "--target", "sdist",
            "--target", "wheel", "--directory", self.out,
            cwd=source, ENTRYPOINT_VERSION=self.version, SOURCE_DATE_EPOCH=str(self.epoch),
        )  # fmt: skip
        for name in ("image-entry", "entrypoint"):
            shutil.copy(source / "scripts" / name, self.out)

    def environment(self, folder: Path, *packages: str | Path) -> None:
        """Make a Python environment that holds these packages, each by its hash, and nothing
        else."""
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python", "--quiet")
        options = ("--disable-pip-version-check", "--require-hashes", "--only-binary=:all:")
        run(*pip, "install", *options, *packages)

    def try_wheel(self) -> None:
        """Install the wheel with the packages of the lock, list them, and start it."""
        (wheel,) = self.out.glob("*.whl")
        installed = self.work / "installed"
        self.environment(installed, "--requirement", TREE / LOCKS[0])
        pip = (sys.executable, "-m", "pip", "--python", installed / "bin/python", "--quiet")
        run(*pip, "install", "--disable-pip-version-check", "--no-deps", "--no-index", wheel)
        said = run(installed / "bin/entrypoint", "--version", cwd=self.work)
        if said != f"entrypoint {self.version}":
            say(f"the wheel is of another version | {said} | {self.version} was built")
            raise SystemExit(1)
        listed = run(installed / "bin/python", "-I", sbom.CONTENTS, "dists", cwd=self.work)
        packages = json.loads(listed)["packages"]
        parts = [sbom.component(each, sbom.python_purl(each), "", "") for each in packages]
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.epoch))
        subject = {
            "type": "file",
            "bom-ref": wheel.name,
            "name": wheel.name,
            "version": self.version,
        }
        self.write(f"{wheel.name}.cdx.json", sbom.document(subject, sha256(wheel), created, parts))
        self.share(installed)

    def share(self, installed: Path) -> None:
        """Write completion and man page, as the installed command has them."""
        program = TREE / "scripts/completion.py"
        if not program.exists():
            return
        (packages,) = installed.glob("lib/python3*/site-packages")
        epoch = str(self.epoch)
        run(
            sys.executable, program, self.work / "share/share",
            PYTHONPATH=str(packages), SOURCE_DATE_EPOCH=epoch,
        )  # fmt: skip
        pack(self.work / "share", self.out / f"entrypoint-share-{self.version}.tar", self.epoch)

    def image(self, kind: str) -> dict[str, Any]:
        """Write an image of this commit and its list. Returns what it was built on."""
        run(TREE / "scripts/build-image", kind)
        name = f"entrypoint-{kind}:dev"
        stem = f"entrypoint-{kind}-{self.version}"
        self.write(f"{stem}.cdx.json", sbom.bom(name))
        saved, layout = self.work / f"{kind}.tar", self.work / kind
        run("docker", "save", "--output", saved, name)
        # Debian's skopeo, without a policy of whom to believe: the engine of this machine
        run(
            "skopeo", "--insecure-policy", "copy", "--quiet",
            f"docker-archive:{saved}", f"oci:{layout}:{self.version}",
        )  # fmt: skip
        saved.unlink()
        pack(layout, self.out / f"{stem}.oci.tar", self.epoch)
        shutil.rmtree(layout)
        base = json.loads(run("docker", "image", "inspect", "entrypoint-base:bookworm"))[0]
        return {"name": "entrypoint-base:bookworm", "digest": {"sha256": base["Id"][7:]}}

    def provenance(self, images: list[str], bases: list[dict[str, Any]]) -> None:
        """Write what was made, from what, and how."""
        made = sorted(self.out.iterdir())
        commit = {"name": "training-entrypoint", "digest": {"gitCommit": self.commit}}
        locks = [{"name": name, "digest": {"sha256": sha256(TREE / name)}} for name in LOCKS]
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": file.name, "digest": {"sha256": sha256(file)}} for file in made],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": "urn:training-entrypoint:make-release:1",
                    "externalParameters": {"version": self.version, "images": images},
                    "internalParameters": {
                        "SOURCE_DATE_EPOCH": self.epoch,
                        "python": platform.python_version(),
                        "machine": platform.machine(),
                    },
                    "resolvedDependencies": [commit, *locks, *bases[:1]],
                },
                # whoever signs: no build service vouches for it
                "runDetails": {"builder": {"id": "urn:training-entrypoint:the-signer"}},
            },
        }
        self.write(PROVENANCE, statement)

    def write(self, name: str, document: dict[str, Any]) -> None:
        """Write a document as JSON."""
        text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
        (self.out / name).write_text(f"{text}\n")

    def sums(self) -> None:
        """Write the digest of every file."""
        (self.out / SUMS).write_text(listed(self.out))


def listed(folder: Path) -> str:
    """Return what SHA256SUMS has to be, as sha256sum would write it."""
    files = [file for file in sorted(folder.iterdir()) if file.name not in (SUMS, SIGNATURE)]
    return "".join(f"{sha256(file)}  {file.name}\n" for file in files)


def sign(folder: Path, key: Path | None) -> None:
    """Sign the list of digests; without a key, say that nobody did."""
    if key is None:
        say("NOT SIGNED: no key was given | sign it: make release KEY=~/.ssh/id_ed25519")
        return
    run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, folder / SUMS)
    say(f"signed by {key.name}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description="Make a release.")
    parser.add_argument("--images", default="gpu ascend toolkit", help='"" for none')
    parser.add_argument("--key", type=Path, help="of ssh; Ed25519 signs the same bytes each time")
    parser.add_argument("--out", type=Path, default=TREE / "build/release")
    options = parser.parse_args()
    if changed := run("git", "status", "--porcelain"):
        say(f"not all is committed | {changed.splitlines()[0].strip()}, ... | commit or stash it")
        return 1
    if options.key and not options.key.is_file():
        say(f"there is no such key | {options.key} | make one: ssh-keygen -t ed25519")
        return 1
    images = options.images.split()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        release = Release(options.out, Path(work))
        say(f"{release.version}, of commit {release.commit}")
        release.python()
        release.try_wheel()
        if images:
            run(TREE / "scripts/dev/need", "skopeo")
        bases = [release.image(kind) for kind in images]
        release.provenance(images, bases)
        release.sums()
    sign(options.out, options.key)
    print((options.out / SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
