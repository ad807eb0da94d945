"""The commands that scripts/rehearse takes out of a page, and how it stops at one that fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.blocks import Block, blocks, script, starting_pages
from tests.command import captured

TREE = Path(__file__).parents[2]
PAGE = """# Page

```sh
echo one; cd /tmp
```

<!-- rehearse: needs a cluster -->
```sh
sbatch job.sh
```

```yaml
echo: no shell
```

1. A step:

   ```sh
   pwd
   ```
"""


def bash(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script("page.md", text)], capture_output=True, text=True, timeout=60
    )


def test_blocks_are_taken_with_their_lines_and_marks() -> None:
    assert blocks(PAGE) == [
        Block(3, "echo one; cd /tmp\n", None),
        Block(8, "sbatch job.sh\n", "needs a cluster"),
        Block(18, "pwd\n", None),
    ]


def test_the_blocks_of_a_page_share_a_shell() -> None:
    done = bash(PAGE)
    assert (done.returncode, done.stdout) == (0, "one\n/tmp\n")
    assert "[rehearse] page.md:8: left out, needs a cluster\n" in done.stderr


def test_the_first_command_that_fails_ends_the_rehearsal() -> None:
    done = bash("```sh\ntrue\n(exit 3)\necho on\n```\n")
    assert (done.returncode, done.stdout) == (3, "")
    assert "[rehearse] FAILED at page.md:1: " in done.stderr
    assert bash("```sh\nno-such-command\n```\n").returncode == 127


def test_a_block_that_shows_its_status_may_fail_but_not_be_missing() -> None:
    done = bash("```sh\n(exit 7); echo $?\n```\n\n```sh\nfalse\n```\n")
    assert (done.returncode, done.stdout) == (1, "7\n")
    assert "FAILED at page.md:5" in done.stderr
    assert bash("```sh\nno-such-command; echo $?\n```\n").returncode != 0


def test_readme_leads_to_five_pages_and_fits() -> None:
    text = (TREE / "README.md").read_text()
    pages = starting_pages(text)
    assert len(pages) == 5
    assert all((TREE / page).is_file() for page in pages)
    assert len(text.splitlines()) <= 120
    assert text.index("**Never tried**") < text.index("```")


def test_a_container_that_failed_is_noticed_where_it_is_removed(tmp_path: Path) -> None:
    """`docker logs -f worker-0; docker rm worker-0` ends with 0, whatever the job did."""
    text = "```sh\ndocker logs -f a; docker rm a b\n```\n"
    for status in (0, 7):
        (tmp_path / "docker").write_text(
            f'#!/bin/sh\n[ "$1" != wait ] || [ "$2" != b ] || exec echo {status}\n'
            '[ "$1" != wait ] || exec echo 0\n'
        )
        (tmp_path / "docker").chmod(0o755)
        done = captured(
            ["bash", "-c", script("page.md", text)], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
        )
        assert (done.returncode == 0) == (status == 0)
        assert ("container b ended with 7" in done.stderr) == (status == 7)
