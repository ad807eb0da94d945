"""The job's command as words: where its own arguments begin, and what a launcher puts there."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from entrypoint.errors import Problem, SpecError
from entrypoint.launchers._nested import is_python, is_shell, launcher_of, starts_own_job, unwrapped
from entrypoint.spec import JobSpec
from entrypoint.text import brief

_VALUED = {"python": "WX", "shell": "oO"}  # options whose value is the rest of their word, or the next word


def with_python(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command; a script alone is for Python, as it is for torchrun."""
    return ("python", *command) if command[0].endswith(".py") else command


def refuse_launcher(spec: JobSpec, launcher: str) -> None:
    """Refuse a command that is a launcher itself: each of our ranks would start a job of its own.

    Raises SpecError that names the launcher of ours that does it right.
    """
    command = spec.command or ("",)
    ours, name = _launcher(command)
    if ours:
        summary = f"EP118 the command is a launcher itself, and launcher {launcher} would start it once a rank or node"
        program = "the program alone, such as: -- train.py"
        hint = (
            f"give it {program}" if ours == launcher else f"set launcher: {ours} (ENTRYPOINT_LAUNCHER), with {program}"
        )
        behind = "" if launcher_of(command)[0] else f" behind `{command[0]}`"
        raise SpecError([Problem(spec.source("command").where, "command", summary, f"`{name}`{behind}", hint)])


def _launcher(words: Sequence[str], by_shell: bool = False) -> tuple[str, str]:
    """The launcher of ours for the launcher that this command starts, and its name; "" where it starts none.

    What a shell starts may differ from rank to rank, and so may join what others start.
    """
    words = unwrapped(words)
    ours, name = launcher_of(words)
    if ours:
        return (ours, name) if not by_shell or starts_own_job(words) else ("", "")
    inner = (_launcher(each, by_shell=True) for each in _simple_commands(_shell_text(words)))
    return next((found for found in inner if found[0]), ("", ""))


def _shell_text(words: Sequence[str]) -> str:
    """What a shell is given by its option -c."""
    if not words or not is_shell(words[0]):
        return ""
    at, is_text = 1, False
    while at < len(words) and words[at][:1] in ("-", "+") and words[at] != "--":
        word = words[at]
        is_text = is_text or ("c" in word and not word.startswith("--"))
        at += 2 if word[-1] in _VALUED["shell"] and not word.startswith("--") else 1
    return "".join(words[at : at + 1]) if is_text else ""


_TEXT = 1 << 14  # characters; shlex takes time with their square
_JOINED = (";", "&&", "&", "|", "|&")  # what stands between commands that a shell runs all
_CHOICES = ("if", "for", "while", "until", "case", "select", "function", "{", "[", "[[", "test")


def _simple_commands(text: str) -> list[list[str]]:
    """The commands of a shell's text; none where it decides itself which of them it runs, or is a whole program."""
    if len(text) > _TEXT:
        return []
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split, lexer.commenters = True, ""
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in _JOINED:
                commands.append([])
            elif word in ("||", "(", ")") or (not commands[-1] and word in _CHOICES):
                return []
            else:
                commands[-1].append(word)
    except ValueError:  # a quote that does not end
        return []
    return [command for command in commands if command]


def split_python(command: tuple[str, ...]) -> tuple[str, Literal["script", "module", "program"], tuple[str, ...]]:
    """The interpreter, what it is to run, and the words from that on: for a launcher that starts interpreters itself.

    A command that such a launcher could not repeat, such as one with options of Python's own, is a program.
    """
    first, *others = with_python(command)
    if not is_python(first):
        return "python", "program", command
    if others[:1] == ["-u"]:  # launchers give it themselves
        del others[0]
    if others[:1] == ["-m"] and others[1:]:
        return first, "module", tuple(others[1:])
    if others and not others[0].startswith("-"):
        return first, "script", tuple(others)
    return first, "program", command


def refuse_env(spec: JobSpec, settled: Mapping[str, str]) -> None:
    """Refuse variables in the spec's `env` that the launcher sets.

    `settled` says what to set instead: the fields that those values come from. Raises SpecError.
    """
    problems = []
    for name in filter(spec.env.__contains__, settled):
        summary, detail = f"EP119 {name} is set by the launcher", f"`{brief(spec.env[name])}`"
        where, hint = spec.source(f"env.{name}").where, f"remove it, and set {settled[name]}"
        problems.append(Problem(where, f"env.{name}", summary, detail, hint))
    if problems:
        raise SpecError(problems)


def with_options(spec: JobSpec, added: Mapping[str, str], settled: Mapping[str, str]) -> tuple[str, ...]:
    """The spec's command with these options right after the script.

    `settled` names the fields that each option's value comes from. Raises SpecError when the command has one already.
    """
    command = with_python(spec.command)
    after = _after_script(command)
    where, problems = spec.source("command").where, []
    for word in command[after:]:
        name = _option(word)
        if name is not None and name in added:
            hint = f"remove it; its value comes from {settled[name]}"
            problems.append(
                Problem(where, "command", f"EP119 --{name} is added by the launcher", f"`{brief(word)}`", hint)
            )
    if problems:
        raise SpecError(problems)
    words = [word for name, value in added.items() for word in (f"--{name}", value)]
    return (*command[:after], *words, *command[after:])


def refuse_options(spec: JobSpec, path: str, words: Sequence[str], settled: Mapping[str, str], setter: str) -> None:
    """Refuse a launcher's own option that `setter` sets already, where the spec's field `path` has it.

    `settled` names the fields that each option's value comes from. argparse takes any beginning of an option for the
    option. Raises SpecError.
    """
    where, problems = spec.source(path).where, []
    for word in words:
        name = _option(word)
        option = next((option for option in settled if name is not None and option.startswith(name)), None)
        if option:
            summary = f"EP119 --{option} is set by {setter}"
            problems.append(Problem(where, path, summary, f"`{brief(word)}`", f"set {settled[option]}"))
    if problems:
        raise SpecError(problems)


def _option(word: str) -> str | None:
    """The name of an option as argparse keeps it; None where the word is no option."""
    return word.partition("=")[0][2:].replace("-", "_") if word.startswith("--") else None


def _after_script(command: Sequence[str]) -> int:
    """How many words come before the program's own arguments: an interpreter, its options, and what it runs."""
    if is_python(command[0]):
        valued, ends = _VALUED["python"], "mc"
    elif is_shell(command[0]):
        valued, ends = _VALUED["shell"], ""
    else:
        return 1
    at = 1
    while at < len(command):
        word = command[at]
        at += 1
        if word == "--":
            return min(at + 1, len(command))
        if word == "-" or not word.startswith(("-", "+")):
            return at
        if word == "--check-hash-based-pycs":
            at += 1
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], start=2):
            if letter in ends:  # -m and -c: what they name is the program
                return min(at + (place == len(word)), len(command))
            if letter in valued:
                at += place == len(word)
                break
    return len(command)
