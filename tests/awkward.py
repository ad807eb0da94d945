"""Values that are hard to quote, and a context for sshd's template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

AWKWARD = [
    *("", " ", "-n", "--", "-e x", "it's", 'say "hi"', "a\nb\n", "\r", "\t"),
    *("$HOME", "$(id)", "`id`", "${x:-y}", "\\", "\\n"),
    *("a;b", "a&b", "{{ port }}", "{% raw %}", "{# no #}", "#x", "~", "*", "!x", "%h", "=", "=="),
    *("ümläut", "漢字 🎉", "\x85", "\u2028"),
    *("\udcff\udc80", "a\x81\x88b", '{"a": [1, "b"]}', "x" * 5000),
]  # fmt: skip
# What a variable or an argument of a process can hold: bytes but NUL, those that are no UTF-8 as
# surrogates.
values = (
    st.sampled_from(AWKWARD)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
    | st.binary(max_size=40).map(
        lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    )
)


def sshd_context(folder: Path, **values: Any) -> dict[str, Any]:
    return {
        "origin": "a test", "port": 36666, "run_dir": str(folder), "user": "ma-user",
        "root_login": "no", "host_key": "made by hand", "startups": 64, "login_grace": 30,
        "alive_interval": 5, "session_env": {"A": "b"},
        "about": "a test", "more": "", **values,
    }  # fmt: skip
