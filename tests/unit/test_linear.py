"""Regular expressions that read foreign text take a time that grows with its length alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from inspect import ismodule
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base import interfaces, render, secret, text
from entrypoint.causes import clean, judge, measured, verdict
from entrypoint.causes import table as causes
from entrypoint.features import explain
from entrypoint.features.health import cards
from entrypoint.features.health.probes import accelerators, image
from entrypoint.launchers import _nested, mpirun
from entrypoint.output import steps
from entrypoint.platforms import _slurm, volcano
from entrypoint.platforms._clues import by_number
from entrypoint.ranks import command_line
from entrypoint.ranks.stall import reader
from entrypoint.ranktable import make, read, table
from entrypoint.spec import jobspec, logs, rules
from entrypoint.spec import table as fields
from entrypoint.system import smi
from entrypoint.tools.adopt import init
from entrypoint.tools.deploy import slurm
from entrypoint.tools.local import faults
from tests import table as table_of
from tests.failures import score
from tests.growth import grows_too_fast

TABLE = table_of("tests/tables/linear.yaml")

LONG = 1_500  # characters of the shorter one of two texts

# What is repeated, and how the text begins and ends: nearly what the expression looks for, many
# times.
REPEATED = (
    "a", "1", " ", ".", "_", "-", "/", "=", ":", "[", "\\", "\n", "\x1b[", "\x1b]", "{a", "//",
    "step 7", "step", '  File "', '", line 1', "://a", "://a:b", "a=b ", "token", "data/tokens_00000.bin,", "token_file", "token ", "token_", "tokens ",
    "max_", "max_tokens.", "aws_batch_", "aws_batch_.",
    "cred", "_SERVICE_PORT", "a_PORT_1", "1.1", "1-1,", "[1,", "address_1 = ", "EP10", "x/",
    "MPICH Version: ", "version=", "Version: ", "<nvidia_smi_log ",
    "infoROM is corrupted at gpu ", "MPICH 3 ucx", "${", "\\u", "\\ud800",
)  # fmt: skip
ENDS = (("", ""), ("", "!"), ("", "="), ("token", "=x"), ("[", "\n"), ("x/", "tokens=\n"))


class NoFile(steps.StepWatch):
    """A watch without a file."""

    def __init__(self) -> None:
        super().__init__(steps.pattern_of(" step  {step} x"), -1)


EXPRESSIONS: dict[str, Callable[[str], Any]] = {
    "masked": secret.masked,
    "masked_words": lambda text: secret.masked_words([text, text[:-1], *text[:2000].split(" ")]),
    "is_secret": secret.is_secret,
    "hides": lambda it: secret.hides("secret_file", f"/{it}"),
    "weakness": lambda text: secret.weakness(text.encode()),
    "step of a line": lambda text: NoFile().take(text.encode() + b"\n"),
    "text of a line": lambda text: jobspec._check_line(text),
    "stack of faulthandler": lambda text: reader.parsed_dump(f"Thread 1\n{text}"),
    "library of a stack": lambda text: reader.frame_of("main", text, 1),
    "line of mpirun": lambda text: command_line.shown(text.replace(" ", "\0").encode()),
    "escaped": lambda it: text.escaped(it, len(it)),
    "one_line": lambda it: text.one_line(it, len(it)),
    "number": lambda text: re.fullmatch(rules._DECIMAL, text),
    "service": lambda text: fields.is_service(text, text),
    "variable": rules.VARIABLE.fullmatch,
    "job name": lambda text: re.fullmatch(rules.JOB_NAME, text),
    "host": rules.check_host,
    "run_dir": rules._run_dir,
    "plain path": rules.plain_path,
    "interface": rules._interface,
    "nodes": lambda text: re.fullmatch(jobspec._NODES, text),
    "prefix": logs._check_prefix,
    "training script": lambda it: init.launcher_of(it),
    "utf-16": text.is_utf16,
    "quote_sh": lambda text: render.quote_sh(text.replace("\n", "")),
    "template": lambda text: render._VALUE.sub("", text),
    "python": _nested.is_python,
    "shell": _nested.is_shell,
    "wrapped command": lambda text: _nested.unwrapped(text.split(" ")),
    "fault": faults._FAULT.fullmatch,
    "time of a fault": lambda text: re.fullmatch(faults._TIME, text),
    "time of Slurm": slurm._TIME.fullmatch,
    "ids": explain.find,
    "words of nodes": lambda text: [_slurm._TOKEN.match(text, at) for at in (0, 1, len(text) // 2)],
    "volcano's tasks": lambda text: (volcano._LISTED.fullmatch(text), by_number(text)),
    "addresses of a rank table": lambda text: [
        make._ADDRESS.fullmatch(line) for line in text.splitlines()
    ],
    "number of a pod": table._POD_NUMBER.fullmatch,
    "number of a rank table": read._NUMBER.fullmatch,
    "version of a program": image.version_in,
    "version of MPICH": image._OLD_MPICH.match,
    "version of CANN": accelerators.CANN_VERSION.search,
    "nvidia-smi": lambda text: _quiet(smi.nvidia, text),
    "npu-smi": lambda text: _quiet(smi.npu, f"npu-smi {text}"),
    "device files": lambda text: cards._FILES.search(text),
    "interface in variables": lambda text: re.match(mpirun._INTERFACES, text),
    "address": lambda text: interfaces._plain(text),
    "output of a failure": lambda text: judge.judge(text.split("\n")),
    "line of a failure": lambda text: clean.compiled(judge._EXCEPTION).match(text),
    "prefix of a line": lambda text: clean.compiled(clean._PREFIX).match(text),
    "device of a failure": lambda text: measured.device(text, "gpu-ecc"),
    "a rank's own word": lambda text: verdict.stated(f"retry: no\nwhy: {text}"),
    "signature": lambda text: causes.of_kind("setup", pattern="x").match(text),
}


def _quiet(function: Callable[[str], Any], text: str) -> Any:
    try:
        return function(text)
    except ValueError:
        return None


def _texts(length: int) -> Iterator[tuple[str, str]]:
    for unit in REPEATED:
        for begin, end in ENDS:
            yield unit, begin + (unit * (length // len(unit) + 1))[:length] + end


def slow(function: Callable[[str], Any]) -> Iterator[str]:
    """The repeated texts for which the time grows faster than their length."""
    for (unit, short), (_, long) in zip(_texts(LONG), _texts(4 * LONG), strict=True):
        if grows_too_fast(function, short, long):
            yield unit


@pytest.mark.promise("the time of every regular expression grows with the text's length alone")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_time_grows_with_the_length_alone(name: str) -> None:
    assert next(slow(EXPRESSIONS[name]), None) is None


@pytest.mark.control("the time of every regular expression grows with the text's length alone")
def test_a_square_is_noticed() -> None:
    assert next(slow(re.compile(r"[0-9]*\.?[0-9]+").fullmatch)) == "1"
    assert (
        next(slow(re.compile(r"(?<![\w.-])[\w.-]*(?:secret|token)[^\s=:]*[=:]").search)) == "token"
    )


@pytest.mark.parametrize("unit", ["data/tokens_00000.bin,", "max_tokens.", "aws_batch_."])
def test_a_secret_behind_the_worst_words_is_hidden(unit: str) -> None:
    text = unit * (2_000_000 // len(unit))
    assert secret.masked(f"{text} A_TOKEN=x") == f"{text} A_TOKEN=(not shown)"


def test_the_output_of_many_failures() -> None:
    lines = [line for failure in score.failures("first") for line in failure.lines]
    repeated: list[Callable[[int], list[str]]] = [
        lambda times: lines * times,
        lambda times: ["RuntimeError: x"] * (1000 * times),
        lambda times: [" ".join(lines * times)],
    ]
    for output in repeated:
        assert not grows_too_fast(judge.judge, output(5), output(20))


def test_the_line_of_mpirun_is_cut_after_its_first_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's event loop waits until it is made: no more than these are looked at."""
    looked: list[str] = []

    def looking(words: list[str]) -> list[str]:
        looked.extend(words)
        return secret.masked_words(words)

    monkeypatch.setattr(command_line, "masked_words", looking)
    words = [
        "mpirun",
        "HF_TOKEN=abc",
        *(f"data/tokens_{number:05}.bin" for number in range(90_000)),
    ]
    line = "".join(f"{word}\0" for word in words).encode()
    text = command_line.shown(line)
    assert sum(map(len, looked)) < 40_000
    assert text.startswith("mpirun 'HF_TOKEN=(not shown)' data/tokens_00000.bin ")
    assert len(text) < 40_000
    shown = text.rpartition(" and ")[0].split(" ")
    assert shown[-1] in words
    assert text.endswith(
        f" and {len(line) - sum(len(word) + 1 for word in words[: len(shown) - 1])} bytes more"
    )
    assert command_line.shown(b"") == ""


def test_many_words_and_many_secrets() -> None:
    words = ["--data", "tokens_00000.bin"] * 10_000
    assert not grows_too_fast(secret.masked_words, words, words * 4)
    env = {f"TOKEN_{number}": f"{number:016}" for number in range(1000)}
    assert not grows_too_fast(lambda text: secret.scrubbed(text, env), "0" * 25_000, "0" * 100_000)


# Modules whose other expressions are not above, and why.
ELSEWHERE = TABLE["elsewhere"]


def test_every_module_with_expressions_is_listed() -> None:
    root = Path(explain.__file__).parents[2]
    used = {file for file in root.rglob("*.py") if re.search(r"\bre\.[a-z]+\(", file.read_text())}
    modules = [each for each in vars(sys.modules[__name__]).values() if ismodule(each)]
    above = {Path(str(getattr(each, "__file__", ""))) for each in modules}
    assert {str(file.relative_to(root)) for file in used - above} == ELSEWHERE.keys()
