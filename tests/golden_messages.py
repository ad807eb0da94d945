"""Renders the docs site's page of messages from messages.yaml, for `make docs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from entrypoint.features import explain
from tests.golden_pages import markdown_table

_HEAD = """# Messages

If the program itself failed, or a node, a device or the network under it:
[why-did-my-job-stop.md](../how-to/why-did-my-job-stop.md).

Every message has an id, which stays the same if the text changes. This page lists all messages,
with the same text as `entrypoint explain`. `…` stands for the parts that differ. Where to look for
a message: [troubleshooting](../how-to/troubleshooting.md).
"""


def markdown() -> str:
    """Return the page, with links as of a page in docs/reference."""
    out = [
        _HEAD,
        "## Exit statuses\n",
        "What a scheduler should do about each: [exit-codes.md](exit-codes.md).\n",
    ]
    rows = [
        (f"`{entry.id}`", entry.says, entry.cause, entry.confirm, entry.fix)
        for entry in explain.statuses()
    ]
    out += [*markdown_table([("status", "name", "cause", "to confirm it", "fix"), *rows]), ""]
    for title, entries in explain.groups():
        out.append(f"## {title}\n")
        for entry in entries:
            out += [f"### {entry.id}\n", f"{_forms(entry.says)} ({explain.ends(entry.statuses)})\n"]
            out += [
                f"- Cause: {_plain(entry.cause)}",
                f"- To confirm it: {_plain(entry.confirm)}",
                f"- Fix: {_plain(entry.fix)}\n",
            ]
        if any(entry.id == "EP500" for entry in entries):
            out += [
                "### States of missing nodes\n",
                "`waiting for 2 of 8 peers: worker-5 (no DNS), worker-6 (nothing listens there yet)"
                " 12s/600s`\n",
            ]
            out += _table("in the brackets", explain.source()["waiting"])
    out += ["## Messages of other programs\n", *_table("you see", explain.source()["others"])]
    return "\n".join(out).rstrip("\n") + "\n"


def _forms(says: str) -> str:
    """Return each form of a message as code."""
    return "; ".join(f"`{form.replace('`', '')}`" for form in says.split("; "))


def _plain(text: str) -> str:
    return text if text.endswith((".", "`")) else f"{text}."


def _table(says: str, entries: Iterable[Mapping[str, str]]) -> list[str]:
    rows = [(entry["says"], entry["cause"], entry["fix"]) for entry in entries]
    return [*markdown_table([(says, "cause", "fix"), *rows]), ""]
