"""Reads a shell script without running it: its statements, and what their words expand to.

It knows quotes, continued lines, comments, here-documents, `$NAME`, `${NAME:-default}` and
`$((2 * 4))`. Everything else stays as it is written, with a `$` that tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import NoReturn

from entrypoint.errors import NoInputError
from entrypoint.values import dataclass, field

LONGEST = 1 << 18  # characters of a script
ARGUMENTS = "\0"  # the word "$@", the script's own arguments
DOLLAR = "\1"  # a `$` that stands for itself
_LONGEST_VALUE = 1 << 16  # characters; each line could double the value of the one before
_DEEPEST = 20  # defaults in defaults
_OPERATOR = re.compile(r"\d{0,4}(&>>?|>>?&?\d?|<<<|<<-?|<&?\d?)|\|\|?&?|&&?|[()]")
_HEREDOC = re.compile(r"<<-?$")
_NAME = re.compile(r"\w+")
_DEFAULTED = re.compile(r"(\w+)(?::?-(.*))?", re.DOTALL)
_PRODUCT = re.compile(r"\d{1,9}(\*\d{1,9})*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")


@dataclass(frozen=True)
class Word:
    """One word of a statement, as pieces of text with the quotes that they stood in."""

    pieces: tuple[tuple[str, str], ...] = ()  # text, and `'`, `"` or nothing
    operator: bool = False  # such as `|` or `2>&1`

    @property
    def text(self) -> str:
        """The word without its quotes, nothing expanded."""
        return "".join(text for text, _ in self.pieces)


@dataclass(frozen=True)
class Statement:
    """One command of the script."""

    line: int  # where it begins, the first is 1
    text: str  # as written, with single spaces
    words: tuple[Word, ...]


class _Scanner:
    """Reads statements, one character after the other."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._at = 0
        self._code_end = 0  # of the last statement, without its comment
        self._line = 1  # of `_counted`
        self._counted = 0

    def statements(self) -> Iterator[Statement]:
        """Yield all statements that have words."""
        while self._at < len(self._text):
            begin = self._at
            words = self._words()
            text = " ".join(self._text[begin : self._code_end].split())
            end = self._at
            for here in (words[at + 1] for at in range(len(words) - 1) if _is_heredoc(words[at])):
                self._skip_document(here.text)
            self._at = max(end, self._at)
            if words:
                lead = len(self._text[begin:end]) - len(self._text[begin:end].lstrip("; \t\n"))
                yield Statement(self._line_of(begin + lead), text.strip("; "), tuple(words))
            self._at += 1  # the line's end or semicolon

    def _line_of(self, at: int) -> int:
        self._line += self._text.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def _words(self) -> list[Word]:
        words: list[Word] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                self._code_end = self._at
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
                return words
            elif char in "\n;":
                break
            elif self._text.startswith("((", self._at):
                begin = self._at
                self._skip_parentheses()
                words.append(Word(((self._text[begin : self._at], "'"),)))
            elif operator := _OPERATOR.match(self._text, self._at):
                self._at = operator.end()
                words.append(Word(((operator[0], ""),), operator=True))
            else:
                words.append(Word(tuple(self._pieces())))
        self._code_end = self._at
        return words

    def _pieces(self) -> Iterator[tuple[str, str]]:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r\n;|&<>()":
                return
            if char == "'":
                end = self._find("'", self._at + 1)
                yield self._text[self._at + 1 : end], "'"
                self._at = end + 1
            elif char == '"':
                self._at += 1
                yield "", '"'
                yield from self._quoted()
            elif char == "\\":
                if self._text[self._at + 1 : self._at + 2] != "\n":
                    yield self._text[self._at + 1 : self._at + 2], "'"
                self._at += 2
            else:
                yield self._run(" \t\r\n;|&<>()'\"\\"), ""

    def _quoted(self) -> Iterator[tuple[str, str]]:
        while True:
            if self._at >= len(self._text):
                self._unclosed('"')
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return
            if char == "\\":
                after = self._text[self._at + 1 : self._at + 2]
                if after in '"$`\\' and after:
                    yield after, "'"
                elif after != "\n":
                    yield "\\" + after, "'"
                self._at += 2
            else:
                yield self._run('"\\'), '"'

    def _run(self, ends: str) -> str:
        """Return the text up to one of `ends`; a substitution is passed over as a whole."""
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] not in ends:
            if self._text.startswith("$(", self._at):
                self._at += 1
                self._skip_parentheses()
            elif self._text.startswith("${", self._at):
                self._skip_braces(begin)
            elif self._text[self._at] == "`":
                self._at = self._find("`", self._at + 1) + 1
            else:
                self._at += 1
        return self._text[begin : self._at]

    def _skip_braces(self, begin: int) -> None:
        """Go behind the brace that closes the one of the `${` here."""
        depth = 0
        for at in range(self._at + 1, len(self._text)):
            depth += {"{": 1, "}": -1}.get(self._text[at], 0)
            if not depth:
                self._at = at + 1
                return
        self._at = begin
        self._unclosed("${")

    def _skip_parentheses(self) -> None:
        """Go behind the parenthesis that closes the one here."""
        begin = self._at
        depth = 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "'\"`":
                self._at = self._find(char, self._at + 1)
            elif char == "\\":
                self._at += 1
            depth += {"(": 1, ")": -1}.get(char, 0)
            self._at += 1
            if not depth:
                return
        self._at = begin
        self._unclosed("(")

    def _skip_document(self, delimiter: str) -> None:
        """Go to the end of a here-document."""
        while self._at < len(self._text):
            begin = self._at + 1
            end = self._text.find("\n", begin)
            self._at = len(self._text) if end < 0 else end
            if self._text[begin : self._at].strip() == delimiter:
                return

    def _find(self, char: str, begin: int) -> int:
        found = self._text.find(char, begin)
        if found < 0:
            self._unclosed(char)
        return found

    def _unclosed(self, what: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise NoInputError(
            f"EP132 {self._name} is not a shell script that can be read",
            f"`{what}` is not closed, at line {line}",
            "try: bash -n on the script",
        )


def _is_heredoc(word: Word) -> bool:
    return word.operator and bool(_HEREDOC.search(word.text))


def _braces(text: str) -> dict[int, int]:
    """Return the place of each closed brace -> that of the brace that closes it."""
    open_ones: list[int] = []
    pairs = {}
    for at, char in enumerate(text):
        if char == "{":
            open_ones.append(at)
        elif char == "}" and open_ones:
            pairs[open_ones.pop()] = at
    return pairs


def statements(text: str, name: str) -> list[Statement]:
    """Return the statements of a script.

    Raises NoInputError if it is too long, or if a quote is not closed.
    """
    if len(text) > LONGEST:
        raise NoInputError(
            f"EP132 {name} is not a shell script that can be read",
            f"{len(text)} characters, at most {LONGEST} are read",
            "name the script that starts the training",
        )
    return list(_Scanner(text, name).statements())


@dataclass(frozen=True)
class Variables:
    """The script's variables so far; a value may have a `$` for what is known only on the node."""

    values: dict[str, str] = field(default_factory=dict)

    def assign(self, word: Word, keep: bool = False) -> str | None:
        """Perform `NAME=VALUE` or `NAME+=VALUE` and return the name; None if it is something else.

        With `keep` a variable that has a value keeps it.
        """
        match = _ASSIGNMENT.match(word.text) if word.pieces and not word.pieces[0][1] else None
        if not match or not word.pieces[0][0].startswith(match[0]):
            return None
        first = word.pieces[0][0][match.end() :]
        value = self.expand(((first, ""), *word.pieces[1:]))
        if match[2]:
            value = self.values.get(match[1], "") + value
        if not (keep and match[1] in self.values):
            self.values[match[1]] = value[:_LONGEST_VALUE]
        return match[1]

    def expand(self, pieces: tuple[tuple[str, str], ...]) -> str:
        """Return the pieces' text with variables replaced."""
        return "".join(
            text.replace("$", DOLLAR) if quote == "'" else self._replace(text, _DEEPEST)
            for text, quote in pieces
        )

    def split(self, word: Word) -> list[str]:
        """Return the words that one word of the script becomes: outside of quotes, a variable's
        value is split at white space."""
        out = [""]
        is_word = False
        for text, quote in word.pieces:
            value = self.expand(((text, quote),))
            is_word = is_word or bool(quote)
            if quote or "$" not in text:
                out[-1] += value
                continue
            parts = re.split(r"[ \t\n]+", value) if len(value.split()) > 1 else [value.strip()]
            if value and value[0] not in " \t\n":
                out[-1] += parts.pop(0)
            out += parts
        return [part for part in out if part] or ([""] if is_word else [])

    def _replace(self, text: str, depth: int) -> str:
        out = []
        at = 0
        closed_by = _braces(text)
        last_product = text.rfind("))")
        while (dollar := text.find("$", at)) >= 0:
            out.append(text[at:dollar])
            at = dollar + 1
            if text.startswith(("@", "*"), at) or text.startswith(("{@}", "{*}"), at):
                out.append(ARGUMENTS)
                at += 3 if text[at] == "{" else 1
            elif at in closed_by:
                out.append(self._braced(text[at + 1 : closed_by[at]], depth))
                at = closed_by[at] + 1
            elif text.startswith("((", at) and at < last_product:
                end = text.find("))", at)
                out.append(self._product(text[at + 2 : end], depth))
                at = end + 2
            elif name := _NAME.match(text, at):
                out.append(self.values.get(name[0], f"${{{name[0]}}}"))
                at = name.end()
            else:
                out.append(DOLLAR)
        return "".join([*out, text[at:]])[:_LONGEST_VALUE]

    def _braced(self, inner: str, depth: int) -> str:
        match = _DEFAULTED.fullmatch(inner)
        if match and self.values.get(match[1]):
            return self.values[match[1]]
        if match and match[2] is not None and depth:
            default = match[2]
            if len(default) > 1 and default[0] == default[-1] == '"':
                default = default[1:-1]
            return self._replace(default, depth - 1)
        if match and match[1] in self.values:
            return ""
        return f"${{{inner}}}"

    def _product(self, inner: str, depth: int) -> str:
        text = "".join(self._replace(inner, depth - 1).split()) if depth else inner
        if _PRODUCT.fullmatch(text):
            return str(prod(map(int, text.split("*"))))
        return f"$(({text}))"
