"""Secrets: how their names look, how text is shown without them, and which values are too weak."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from entrypoint.base.text import escaped
from entrypoint.base.values import field, frozen

HIDDEN = "(not shown)"
MIN_BYTES = 16  # fewer can be guessed
_SURE = 8  # characters; a shorter value may be an ordinary word
_DIFFERENT = 5  # of its bytes; sixteen random hexadecimal digits have fewer once in two million

# `re` compiles each pattern when it is used first: all of them take 3 ms, and most starts need one.

# Names whose values are never shown; TOKENIZERS_PARALLELISM is not one of them.
# S3_SECRET_ACCESS_KEY and the like are platforms' names for credentials; AWS_ and CRED begin
# others.
_NAME = (
    r"secret|passw|passphrase|_pass(?![a-z])|_pwd|token(?!iz)|credential|authorization"
    r"|(?:api|access|private|account|auth)[_-]?key|sshpass|notify[._-]url"
    r"|(?<![a-z0-9])(?:aws_|cred(?![a-z])|creds)"
    # Names that end with these, such as OPENAI_KEY, GH_PAT, and `sig` in the URL of a storage.
    r"|(?:(?<=[a-z0-9][_-])key|(?<![a-z])(?:pass|pat|sk|jwt|auth|sig|signature))(?![\w.-])"
)
# Some of them are known to hold no secret but a place or a number. The repetitions are limited:
# otherwise the time for a long name would grow with the square of its length.
_HARMLESS = (
    r"[\w.-]{0,200}[_-](?:file|path|dir|region|profile|output)|google_application_credentials"
    r"|(?:[\w.-]{0,200}[._-])?(?:client|host|public|known|primary|foreign|sort|cache|group|index"
    r"|label|target|input|output|map|partition|feature|metric|image|text)[_-]?key"
    r"|(?:[\w.-]{0,200}[._-])?(?:max|min|num|total)_(?:\w{1,30}_)?tokens|tokens_per_\w{1,30}"
    r"|(?:[\w.-]{0,200}\.)?aws_(?:ca_bundle|pager|role_arn|role_session_name|endpoint_url\w{0,30}"
    r"|batch_\w{1,30}|execution_env|max_attempts|retry_mode|defaults_mode|sdk_load_config"
    r"|sts_regional_endpoints|ec2_metadata_\w{1,30})"
)
_NO_SECRET = f"(?i){_HARMLESS}"
# A word that ours may hold, too: as a password it is not worth a hole in them.
_COMMON = {
    "password", "disabled", "required", "optional", "undefined", "localhost",
    "anonymous", "entrypoint", "training", "standard", "internal", "external",
}  # fmt: skip
_SECRET = f"(?i){_NAME}"
# How the whole name of a file begins; and what a secret has, and names seldom have: many letters
# and digits in a row.
_FOLDERS = ("/", "./", "../", "~/", "$")
_RANDOM = r"(?<![a-zA-Z0-9+=])(?=[a-zA-Z+=]{0,40}\d)[a-zA-Z0-9+=]{%d,}"
# Base64 of 24 bytes and more, also with slashes in it: a path has other characters, or one case.
_BASE64 = r"(?=.*[a-z])(?=.*[A-Z])[a-zA-Z0-9+/]{32,}={0,2}"
# A password, or a token instead of the user's name, such as GitHub's.
_IN_URL = r"(://)(?:[^/\s:@]{20,}(?::[^/\s@]*)?|([^/\s:@]*:)[^/\s@]+)@"
# Values that are secrets whatever their name is: tokens of OpenAI, Hugging Face, GitHub, GitLab,
# Slack, AWS, Google, npm and PyPI by their documented prefixes, JSON web tokens, HTTP's bearers.
_TOKEN = (
    r"(?<![\w-])(?:sk-|hf_|gh[opusr]_|github_pat_|glpat-|xox[abeoprs]-|A[KS]IA|AIza|npm_|pypi-)"
    r"[\w-]{16,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{4,}\.?[\w-]*"
)
_BEARER = r"(?i)((?<![\w-])bearer\s{1,4}|hooks\.slack\.com/services/)[^\s\"']{8,}"
# What samples are made of. Of a good secret enough is left without it.
_SAMPLE = (
    rb"(?i)0123456789|1234567890|9876543210|abcdef|qwerty"
    rb"|change[-_]?me|example|placeholder|pass[-_]?word|secret|sample"
    rb"|dummy|letmein|hunter2|test|your|token"
)


@frozen
class Secret:
    """A secret that neither str() nor repr() shows."""

    value: str = field(repr=False)


@functools.lru_cache(maxsize=1024)  # the ranks of a node have the same variables
def is_secret(name: str) -> bool:
    """Return whether a value of that name may be a secret, so that nothing shows it."""
    return bool(re.search(_SECRET, name)) and not re.fullmatch(_NO_SECRET, name)


@functools.lru_cache(maxsize=1024)
def hides(name: str, value: str) -> bool:
    """Return whether nothing shows this value: it may be a secret, also one instead of its
    file's name: of a path, the part after `/./`."""
    value = value.rpartition("/./")[2]
    if is_secret(name) or "PRIVATE KEY-----" in value or _without_tokens(value) != value:
        return True
    if not name.lower().endswith(("file", "path")) or not re.search(_SECRET, name):
        return False
    if value.startswith(_FOLDERS):
        return bool(re.search(_RANDOM % 20, value))
    could_be_one = "/" not in value and weakness(value.encode(errors="surrogateescape")) is None
    is_base64 = value.endswith("=") or bool(re.fullmatch(_BASE64, value))
    return could_be_one or is_base64 or bool(re.search(_RANDOM % 12, value))


def _assigned(space: str, value: str) -> str:
    """Return the pattern of such a name, its sign and its value (the group), for text in lower
    case.

    It reads no text twice: a name begins only where a sign has ended the one before, and since it
    is checked first that its own sign and a value follow, its first match is the only one.
    """
    sign = rf"{space}[=:]{space}(?!//)"
    # What is before the last word of the name: as a group, it is looked for only once.
    before = rf"(?=(?P<before>[^\s=:]*(?<![\w.-])(?=[\w.-]+[\"']?{sign})))(?P=before)"
    return (
        rf"(?s)(?<![^\s=:])(?=[^\s=:]+{sign}{value})(?!{before}(?:{_HARMLESS})[\"']?{sign})"
        rf"[^\s=:]*?(?:{_NAME})[^\s=:]*{sign}(?P<value>{value}+)"
    )


_IN_TEXT, _IN_WORD = _assigned("", r"\S"), _assigned(r"\s?", ".")


def _without_tokens(text: str) -> str:
    return re.sub(_BEARER, rf"\1{HIDDEN}", re.sub(_TOKEN, HIDDEN, text))


@functools.lru_cache(maxsize=2048)  # also the words of those variables
def _without_values(pattern: str, text: str) -> str:
    parts, at = [], 0
    lower = text.replace("\u0130", "i").lower()  # of that character alone there would be two
    may_assign = ("=" in lower or ":" in lower) and re.search(_NAME, lower)  # most words do not
    for found in re.finditer(pattern, lower) if may_assign else ():
        if text.startswith(HIDDEN, found.start("value")):  # it was masked before
            continue
        parts += [text[at : found.start("value")], HIDDEN]
        at = found.end()
    kept = _without_tokens("".join((*parts, text[at:])))
    return re.sub(_IN_URL, rf"\1\2{HIDDEN}@", kept) if "://" in kept else kept


def masked(text: str) -> str:
    """A text of several words without what follows `NAME=` of a secret, and without a URL's
    password."""
    return _without_values(_IN_TEXT, text)


def masked_words(words: Sequence[str]) -> list[str]:
    """A command without `--password VALUE`, `--api-key=VALUE`, `NAME=VALUE` of a secret and a URL's
    password."""
    out: list[str] = []
    for before, word in pairwise(["", *words]):
        if (
            before.startswith("-")
            and "=" not in before
            and is_secret(before)
            and not word.startswith("-")
        ):
            out.append(HIDDEN)
        else:
            out.append(_without_values(_IN_WORD, word))
    return out


def scrubbed(text: str, env: Mapping[str, str]) -> str:
    """A text without the values of the environment's secrets, whatever brought them there, and
    without what looks like a secret: the last guard of all that is logged or outlives the job.
    Several texts are separated by NUL."""
    for value in _values(frozenset(env.items())):
        text = text.replace(value, HIDDEN)
    return "\0".join(map(masked, text.split("\0")))


@functools.lru_cache(maxsize=8)
def _values(env: frozenset[tuple[str, str]]) -> list[str]:
    """The environment's secrets as texts may show them, the longest first."""
    values = {
        value
        for name, value in env
        if len(value) >= _SURE and value.lower() not in _COMMON and hides(name, value)
    }
    return sorted(values | set(map(escaped, values)), key=len, reverse=True)


def weakness(secret: bytes) -> tuple[str, str] | None:
    """Return why this cannot be a job's secret: what is wrong and what was seen of it; None where
    nothing is."""
    if len(secret) < MIN_BYTES:
        return f"a secret has at least {MIN_BYTES} bytes", f"{len(secret)} bytes"
    if len(set(secret)) < _DIFFERENT:
        return "this secret can be guessed", f"{len(set(secret))} different bytes"
    if len(re.sub(_SAMPLE, b"", secret)) < MIN_BYTES:
        return "this secret can be guessed", "little but words and digits that samples are made of"
    return None
