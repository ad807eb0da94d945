"""The shell commands of a Markdown page, and the script with which scripts/rehearse follows pages.

`<!-- rehearse: needs a cluster -->` on the line before a block says that the block cannot run on a
bare machine, and why. Readers do not see it.
"""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"(?ms)^(?:<!-- rehearse: ([^\n]+) -->\n)?( *)```sh\n(.*?)^ *```$")


@dataclass(frozen=True)
class Block:
    """The commands of one fenced block, the line of its fence, and why it is not rehearsed."""

    line: int
    commands: str
    needs: str | None


def blocks(text: str) -> list[Block]:
    """Return the blocks of shell of a page, in order."""
    return [
        Block(text[: found.start(2)].count("\n") + 1, textwrap.dedent(found[3]), found[1])
        for found in _BLOCK.finditer(text)
    ]


def starting_pages(readme: str) -> list[str]:
    """Return the first link of each row of README's table "I have ..."."""
    table = readme.partition("\n## I have ...\n")[2].partition("\n## ")[0]
    return re.findall(r"(?m)^\| [^|]+ \| \[[^]]+\]\(([^)#]+)\)", table)


def script(page: str, text: str) -> str:
    """Return a bash script that runs the page's blocks in one shell, up to the first failure.

    A block that shows `$?` expects failures. Its commands may fail, except for "command not found".
    """
    lines = [
        "set -Eeuo pipefail",
        "trap 'status=$?; "
        'echo "[rehearse] FAILED at $place: $BASH_COMMAND" >&2; exit $status\' ERR',
    ]
    for block in blocks(text):
        place = f"{page}:{block.line}"
        if block.needs:
            lines.append(f"echo {shlex.quote(f'[rehearse] {place}: left out, {block.needs}')} >&2")
            continue
        lines += [f"place={shlex.quote(place)}", 'echo "[rehearse] $place" >&2']
        if "$?" in block.commands:
            missing = f'echo "[rehearse] FAILED at {place}: $1: command not found" >&2; kill $$'
            lines.append(f"command_not_found_handle() {{ {missing}; }}; trap - ERR; set +e")
            lines += [block.commands.rstrip("\n"), "set -e"]
            lines.append(lines[1])
        else:
            lines.append(block.commands.rstrip("\n"))
    return "\n".join(lines) + "\n"


def main(tree: Path, folder: Path) -> None:
    """Write one script for README and each of its starting pages into `folder`, by number."""
    pages = ["README.md", *starting_pages((tree / "README.md").read_text(encoding="utf-8"))]
    for number, page in enumerate(pages):
        text = (tree / page).read_text(encoding="utf-8")
        (folder / f"{number}.sh").write_text(script(page, text), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
