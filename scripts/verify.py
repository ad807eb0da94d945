#!/usr/bin/env python3
"""verify.py FOLDER [--signers FILE | --unsigned] - check a release, without a network.

Whose it is: the signature of SHA256SUMS, by a key of FILE (ssh-keygen's allowed signers: a line
has a name and a public key). That all of it is there and unchanged: every file is in SHA256SUMS,
and nothing else is. That it fits together: the provenance has the same files and digests, wheel,
source archive and images have its version, and an image's blobs are what their names say.

--unsigned accepts a release that nobody signed: it is complete, and may be anybody's.
"""

import argparse
import base64
import binascii
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from release import NAMESPACE, PROVENANCE, SIGNATURE, SUMS, TREE, digest_of, listed, sha256


def problems(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the files; the rest is of no use after the first."""
    expected, actual = (folder / SUMS).read_bytes().decode(errors="replace"), listed(folder)
    if expected != actual:
        lines = set(expected.splitlines()) ^ set(actual.splitlines())
        names = sorted({line.partition("  ")[2] or line for line in lines}) or [SUMS]
        yield f"not what {SUMS} lists: {', '.join(names)}"
        return
    statement = json.loads((folder / PROVENANCE).read_text())
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    if subjects != {
        file.name: sha256(file)
        for file in folder.iterdir()
        if file.name not in (SUMS, SIGNATURE, PROVENANCE)
    }:
        yield f"{PROVENANCE} is of other files"
    version = statement["predicate"]["buildDefinition"]["externalParameters"]["version"]
    for file in sorted(folder.iterdir()):
        for each in versions(file):
            if each != version:
                yield f"{file.name} is of version {each}, and the release {version}"


def versions(file: Path) -> Iterator[str]:
    """Yield the version that a file has inside; for an image also what does not fit in it."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
            yield field(wheel.read(name).decode())
    elif file.name.endswith(".tar.gz"):
        with tarfile.open(file) as archive:
            (member,) = (
                each for each in archive if each.name.count("/") == 1 and "PKG-INFO" in each.name
            )
            content = archive.extractfile(member)
            assert content
            yield field(content.read().decode())
    elif file.name.endswith(".oci.tar"):
        yield image(file)


def field(metadata: str) -> str:
    """Return the version in a package's metadata."""
    return next(
        line.removeprefix("Version: ") for line in metadata.splitlines() if line[:9] == "Version: "
    )


def image(file: Path) -> str:
    """Return the label `version` of an image, or what is wrong with its archive."""
    with tarfile.open(file) as archive:

        def blob(digest: str) -> bytes:
            content = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert content
            return content.read()

        for member in archive:
            parts = member.name.split("/")
            if parts[0] == "blobs" and member.isfile():
                content = archive.extractfile(member)
                assert content
                if digest_of(content) != parts[2]:
                    return f"unknown: {member.name} has another digest"
        index = archive.extractfile("index.json")
        assert index
        manifest = json.loads(blob(json.loads(index.read())["manifests"][0]["digest"]))
        labels = json.loads(blob(manifest["config"]["digest"]))["config"]["Labels"]
        return str(labels["org.opencontainers.image.version"])


def signer(folder: Path, signers: Path | None) -> str:
    """Return who of the allowed signers signed the release; "" if nobody did.

    Without a list of them it is the key's owner, whoever that is.
    """
    file, sums = folder / SIGNATURE, (folder / SUMS).read_bytes()

    def keygen(*words: str | Path) -> subprocess.CompletedProcess[str]:
        argv = ["ssh-keygen", "-Y", *map(str, words), "-n", NAMESPACE, "-s", str(file)]
        return subprocess.run(
            argv, input=sums.decode(errors="replace"), capture_output=True, text=True, check=False
        )

    if not file.is_file() or file.read_bytes() != armored(file.read_bytes()):
        return ""
    if signers is None:
        return "somebody" if keygen("check-novalidate").returncode == 0 else ""
    found = keygen("find-principals", "-f", signers).stdout.partition("\n")[0]
    held = found and keygen("verify", "-f", signers, "-I", found).returncode == 0
    return found if held else ""


def armored(text: bytes) -> bytes:
    """Return a signature as ssh-keygen writes it, which itself reads it with other white space,
    too."""
    try:
        code = base64.b64encode(base64.b64decode(b"".join(text.split(b"\n")[1:-2]), validate=True))
    except binascii.Error:
        return b""
    wrapped = [code[at : at + 70] for at in range(0, len(code), 70)]
    marks = (b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----")
    return b"\n".join([marks[0], *wrapped, marks[1], b""])


def say(text: str) -> None:
    print(f"[verify] {text}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make verify", description="Check a release.")
    parser.add_argument("folder", nargs="?", type=Path, default=TREE / "build/release")
    parser.add_argument("--signers", type=Path, metavar="FILE")
    parser.add_argument("--unsigned", action="store_true")
    options = parser.parse_args()
    folder = options.folder
    if not (folder / SUMS).is_file():
        say(f"no release | {folder / SUMS} is missing | give the folder that holds all files of it")
        return 1
    if not options.signers and not options.unsigned:
        say("nobody vouches for it | no signers were given | give SIGNERS=FILE, or UNSIGNED=1")
        return 1
    signed = (folder / SIGNATURE).exists()
    name = signer(folder, options.signers) if signed or options.signers else ""
    if not name and (signed or options.signers):
        said = f"NOT SIGNED by anybody in {options.signers}" if options.signers else "CHANGED"
        say(f"{said} | {folder / SIGNATURE} does not hold | do not use it")
        return 1
    try:
        wrong = list(problems(folder))
    except Exception as error:  # whatever a changed archive may lead to
        wrong = [f"it cannot be read: {error!r}"]
    for each in wrong:
        say(f"CHANGED | {each} | do not use it")
    if wrong:
        return 1
    by = f"signed by {name}" if options.signers else "of unknown origin, as you allowed"
    say(f"{len((folder / SUMS).read_text().splitlines())} files are complete and unchanged; {by}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
