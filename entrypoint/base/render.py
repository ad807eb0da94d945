"""Template name + context -> text: strict undefined, and every value quoted for the language of the
result.

Quoting is not a filter that a template may forget: every `{{ value }}` passes through the quoting
of its file's language. `{{ value | raw }}` is for text that is already of that language. A list is
its words, each quoted; in a hostfile it is its lines, each a list of words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from os.path import dirname, isdir, realpath
from typing import TYPE_CHECKING, Any

from entrypoint import __version__
from entrypoint.base.errors import ConfigError

if TYPE_CHECKING:
    import jinja2

_HERE = dirname(dirname(realpath(__file__)))
# In a wheel the templates lie inside the package, in a checkout next to it.
TEMPLATES = next(filter(isdir, (f"{_HERE}/templates", f"{dirname(_HERE)}/templates")))


class Raw(str):
    """Text that is already quoted for the language it goes into."""


def quote_sh(value: object) -> str:
    """One word of a POSIX shell, whatever it holds but NUL."""
    return shlex.quote(str(value))


def quote_ssh(value: object) -> str:
    """One argument in a file of OpenSSH's (sshd_config, ssh_config), which cannot hold a line end.

    Raises ConfigError for a line end.
    """
    text = str(value)
    if re.search(r"[\n\r\0]", text):
        raise ConfigError(
            "EP127 a value for ssh's configuration contains a line end",
            repr(text[:60]),
            "remove the line end",
        )
    if re.fullmatch(r"[\w@%+=:,./*!?^-]+", text, re.ASCII):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def quote_word(value: object) -> str:
    """One word of a file whose fields are split at white space (hostfile, known_hosts).

    Raises ConfigError for white space or a comment sign.
    """
    text = str(value)
    if not re.fullmatch(r"[^\s#]+", text):
        raise ConfigError(
            "EP127 an entry of a hostfile cannot contain white space or #",
            repr(text[:60]),
            "use another name",
        )
    return text


def quote_yaml(value: object) -> str:
    """One YAML scalar, list or mapping, as JSON but for characters beyond 16 bits: YAML has no
    pairs of surrogates."""

    import json  # no file that a node writes for itself is YAML

    def joined(found: re.Match[str]) -> str:
        high, low = found.groups()
        if high is None:
            return found[0]  # an escaped backslash
        return f"\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00):08x}"

    return re.sub(r"\\\\|\\u(d[89ab]..)\\u(d[c-f]..)", joined, json.dumps(value))


def quote_compose(value: object) -> str:
    """As YAML, with `$` doubled, since compose would expand it."""
    return quote_yaml(value).replace("$", "$$")


def quote_html(value: object) -> str:
    """Text of an HTML page, or the value of an attribute in quotes."""
    import html  # no node writes a page

    return html.escape(str(value))


_LANGUAGES: Mapping[str, Callable[[object], str]] = {
    "sh": quote_sh,
    "sshd_config": quote_ssh,
    "ssh_config": quote_ssh,
    "hostfile": quote_word,
    "compose.yaml": quote_compose,
    "yaml": quote_yaml,
    "py": repr,
    "html": quote_html,
}


def _language(name: str) -> str:
    file = name.rsplit("/", 1)[-1].removesuffix(".j2")
    return file if file in _LANGUAGES else file.rsplit(".", 1)[-1]


def comment(value: object) -> Raw:
    """Text inside a comment: it can't leave its line, so it can't become code."""
    return Raw(re.sub(r"[\x00-\x1f\x7f\x85\u2028]+", " ", str(value)))


_FILTERS: Mapping[str, Callable[[object], Raw]] = {"raw": Raw, "comment": comment}
# A value as a template names it: {{ name }}, {{ name + "text" }}, {{ name | filter }}
_VALUE = re.compile(r'\{\{ (\w+)(?: \+ "([^"\\]*)")?(?: \| (\w+))? \}\}')


def _written(language: str, value: object) -> str:
    """A value as the file's language writes it. For a shell and for ssh a list is its words, a
    mapping NAME=VALUE.

    For a hostfile a list is its lines.
    """
    if isinstance(value, Raw):
        return value
    quote = _LANGUAGES[language]
    if quote in (quote_sh, quote_ssh):
        if isinstance(value, Mapping):
            value = [f"{name}={entry}" for name, entry in value.items()]
        if isinstance(value, (list, tuple)):
            return " ".join(map(quote, value))
    if quote is quote_word and isinstance(value, (list, tuple)):
        return "\n".join(" ".join(map(quote, words)) for words in value)
    return quote(value)


def holds_only_values(text: str) -> bool:
    """Return whether a template needs no Jinja: it has no statement, no comment and no other
    expression."""
    return not re.search(r"\{[{%#]", _VALUE.sub("", text))


def _filled(text: str, language: str, context: Mapping[str, Any]) -> str:
    """The text of a template that holds values and nothing else of Jinja's."""

    def value(found: re.Match[str]) -> str:
        name, suffix, filtered = found.groups()
        value = context[name] if suffix is None else context[name] + suffix
        return _written(language, _FILTERS[filtered](value) if filtered else value)

    return _VALUE.sub(value, text)


@cache
def _environment(language: str) -> jinja2.Environment:
    import jinja2  # slow to import, and a worker's own files do without

    quote = _LANGUAGES[language]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: (
            value if isinstance(value, jinja2.Undefined) else _written(language, value)
        ),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # quoting is `finalize`'s, for shells and not for HTML
    )
    environment.filters.update(_FILTERS, quote=lambda value: Raw(quote(value)))
    environment.globals["version"] = __version__
    return environment


def render(template: str, context: Mapping[str, Any]) -> str:
    """The text of `templates/<template>` with `context` in it.

    Raises ConfigError when a value cannot be written in the file's language.
    """
    language = _language(template)
    with open(f"{TEMPLATES}/{template}", encoding="utf-8") as file:
        text = file.read()
    if holds_only_values(text):
        return _filled(text, language, {"version": __version__, **context})
    return _environment(language).get_template(template).render(context)
