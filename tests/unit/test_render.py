"""The renderer: whatever a value holds, who reads the file gets that value, or we refuse to write
it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from entrypoint.base import render as renderer
from entrypoint.base.errors import ConfigError
from entrypoint.base.render import quote_compose, quote_word, quote_yaml, render
from tests.awkward import AWKWARD, sshd_context, values

# --------------------------------------------------------------------------------------------------
# OpenSSH

LINE_ENDS = ["\n", "a\nb", "\r", "x\r", "a\0b", "ok\nPermitRootLogin yes"]


@pytest.mark.parametrize("text", LINE_ENDS)
def test_a_line_end_is_refused_for_ssh(folder: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="line end"):
        render("ssh/sshd_config.j2", sshd_context(folder, session_env={"V": text}))
    with pytest.raises(ConfigError, match="line end"):
        render("ssh/sshd_config.j2", sshd_context(folder, user=text))


# --------------------------------------------------------------------------------------------------
# Templates with nothing but values need no Jinja

FOLDER = Path(renderer.TEMPLATES)
ALL = [path.relative_to(FOLDER).as_posix() for path in sorted(FOLDER.rglob("*.j2"))]
PLAIN = [name for name in ALL if renderer.holds_only_values((FOLDER / name).read_text())]


def context_of(template: str, text: str) -> dict[str, Any]:
    """Return the text for every value that a template names, such as those of a launcher that was
    just added."""
    names = {name for name, _, _ in renderer._VALUE.findall((FOLDER / template).read_text())}
    return dict.fromkeys(names - {"version"}, text)


@pytest.mark.parametrize("template", PLAIN)
@given(text=values, words=st.lists(values, max_size=4))
def test_what_is_filled_without_jinja_is_what_jinja_makes(
    template: str, text: str, words: list[str]
) -> None:
    context = {
        **context_of(template, text),
        **sshd_context(Path("/run")), "run_dir": text, "user": text, "origin": text, "host": text, "pass_fd": words, "socket": text,
        "session_env": {f"N{number}": word for number, word in enumerate(words)},
        "nodes": [(text, "slots=1"), ("b", *words)], "given": text, "agent": text, "hostfile": text, "np": 2,
        "mpi_major": text, "grace": 30, "restarted": words, "number": text, "after": text, "tags": text,
    }  # fmt: skip
    language = renderer._language(template)
    try:
        expected = renderer._environment(language).get_template(template).render(context)
    except ConfigError as error:
        with pytest.raises(ConfigError, match=re.escape(str(error))):
            render(template, context)
    else:
        assert render(template, context) == expected


@pytest.mark.parametrize(
    "template", ["mpirun/hostfile.j2", "mpirun/mpirun.sh.j2", "ssh/sshd_config.j2"]
)
def test_what_nodes_write_for_themselves_needs_no_jinja(template: str) -> None:
    assert template in PLAIN


# --------------------------------------------------------------------------------------------------
# Words, YAML


@given(text=values)
@example(text="a b")
@example(text="#")
def test_a_hostfiles_word_is_one_word_or_refused(text: str) -> None:
    try:
        word = quote_word(text)
    except ConfigError:
        assert not text or any(character.isspace() or character == "#" for character in text)
    else:
        assert word == text
        assert word.split() == [text]


def is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


@given(value=st.recursive(values.filter(is_unicode), st.lists))
@example(value=list(filter(is_unicode, AWKWARD)))
@example(value="🎉 \\ud83c\\udf89 \\\\ud83c")
@example(value="\x7f\x85\u2028\ufeff\uffff")
def test_yaml_values(value: Any) -> None:
    assert yaml.safe_load(f"key: {quote_yaml(value)}\n") == {"key": value}
    assert quote_compose(value) == quote_yaml(value).replace("$", "$$")


# --------------------------------------------------------------------------------------------------
# Templates


def test_what_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError, match="nodes"):
        render("mpirun/hostfile.j2", {})
    with pytest.raises(jinja2.UndefinedError, match="peers"):
        render("ssh/ssh_config.j2", {"origin": ""})
    with pytest.raises(jinja2.UndefinedError, match="address"):
        render("ssh/ssh_config.j2", {"origin": "", "peers": [{"host": "a"}]})


def test_values_are_no_templates() -> None:
    text = render("mpirun/hostfile.j2", {"nodes": [("{{nodes}}", "slots=1")]})
    assert text.splitlines()[1] == "{{nodes}} slots=1"
    context = {"origin": "", "run_dir": "", "user": "u", "port": 1, "alive_interval": 1}
    text = render(
        "ssh/ssh_config.j2",
        {**context, "peers": [{"host": "{{peers}}", "address": "b", "port": 1}]},
    )
    assert text.splitlines()[1] == 'Host "{{peers}}"'
