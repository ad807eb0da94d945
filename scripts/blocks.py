"""blocks.py TREE FOLDER [PAGE ...] - write into FOLDER, by number, the scripts with which
scripts/rehearse follows pages: those that are given, or README and the first link of each row of
its table "I have ...".

`<!-- rehearse: needs a cluster -->` on the line before a block of shell says that the block cannot
run on a bare machine, and why. Readers do not see it.
"""

import re
import shlex
import sys
import textwrap
from pathlib import Path

_BLOCK = re.compile(r"(?ms)^(?:<!-- rehearse: ([^\n]+) -->\n)?( *)```sh\n(.*?)^ *```$")

# `docker logs -f worker-0; docker rm worker-0` shows a reader what went wrong, and ends with 0.
_DOCKER = """\
docker() {
  local name status
  if [ "$1" = rm ] && [ "$2" != -f ]; then
    for name in "${@:2}"; do
      status=$(command docker wait "$name")
      [ "$status" = 0 ] || { echo "[rehearse] container $name ended with $status" >&2; return 1; }
    done
  fi
  command docker "$@"
}"""
_TRAP = (
    "trap 'status=$?; echo \"[rehearse] FAILED at $place: $BASH_COMMAND\" >&2; exit $status' ERR"
)


def script(page: str, text: str) -> str:
    """Return a bash script that runs the page's blocks in one shell, up to the first failure.

    A block that shows `$?` expects failures. Its commands may fail, except for "command not found".
    """
    lines = [_DOCKER, "set -Eeuo pipefail", _TRAP]
    for found in _BLOCK.finditer(text):
        commands = textwrap.dedent(found[3]).rstrip("\n")
        line = text[: found.start(2)].count("\n") + 1
        place = f"{page}:{line}"
        if found[1]:
            lines.append(f"echo {shlex.quote(f'[rehearse] {place}: left out, {found[1]}')} >&2")
            continue
        lines += [f"place={shlex.quote(place)}", 'echo "[rehearse] $place" >&2']
        if "$?" in commands:
            missing = f'echo "[rehearse] FAILED at {place}: $1: command not found" >&2; kill $$'
            lines.append(f"command_not_found_handle() {{ {missing}; }}; trap - ERR; set +e")
            lines += [commands, "set -e", _TRAP]
        else:
            lines.append(commands)
    return "\n".join(lines) + "\n"


def main() -> None:
    tree, folder, *pages = sys.argv[1:]
    if not pages:
        readme = Path(tree, "README.md").read_text(encoding="utf-8")
        table = readme.partition("\n## I have ...\n")[2].partition("\n## ")[0]
        rows = re.findall(r"(?m)^\| [^|]+ \| \[[^]]+\]\(([^)#]+)\)", table)
        pages = ["README.md", *rows]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, page in enumerate(pages):
        text = Path(tree, page).read_text(encoding="utf-8")
        Path(folder, f"{number}.sh").write_text(script(page, text), encoding="utf-8")


if __name__ == "__main__":
    main()
