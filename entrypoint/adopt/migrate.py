"""Turns a script of ModelArts' documents, with a user's edits, into a job.yaml that does the same.

The scripts are run_mpi.sh ("Boot File of a Preset Image"), torchrun.sh and torchlaunch.sh
("Example: Creating a DDP Distributed Training Job (PyTorch + GPU)"). What they do themselves and
the toolkit does for every job (sshd, names, hostfile, waiting) is known statement by statement, by
its digest; everything else is carried over, or listed as lost.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from entrypoint.adopt.documented import DOCUMENTED
from entrypoint.adopt.shell import ARGUMENTS, DOLLAR, Statement, Variables, statements
from entrypoint.errors import NoInputError
from entrypoint.secret import is_secret
from entrypoint.values import dataclass

_OPENING = {"if", "while", "until", "for", "case", "select", "function", "{", "("}
_CLOSING = {"fi", "done", "esac", "}", ")"}
_PASSED = {"then", "else", "do", "!"}  # before a command
_PREFIXES = {"exec", "time", "nohup", "command"}
_SILENT = {"set", "shopt", "exit", ":", "true", "wait"}
_FOLDER = "${MA_JOB_DIR}/"  # which the toolkit replaces itself, at the beginning of a word
_NODES = "${MA_NUM_HOSTS}"
_LEADER = "${VC_WORKER_HOSTS%%,*}"
_SLOTS = "${MA_NUM_GPUS}"
_PORT = re.compile(r"\s*-p\s*(\d{1,5})\s*")

# What mpirun's options are: -> how many words follow, and the field for them.
_MPI_OPTIONS: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("bind-to", "map-by", "rank-by", "cpu-set", "npernode", "N"), (1, "bind_args")),
    **dict.fromkeys(("report-bindings", "bynode", "byslot"), (0, "bind_args")),
    **dict.fromkeys(("mca", "gmca"), (2, "mca_args")),
    **dict.fromkeys(
        ("tag-output", "timestamp-output", "display-map", "display-allocation", "v", "verbose"),
        (0, "extra_args"),
    ),
    **dict.fromkeys(("q", "quiet", "oversubscribe", "nooversubscribe"), (0, "extra_args")),
    **dict.fromkeys(("output-filename", "timeout", "prefix", "path"), (1, "extra_args")),
}
_BINDING = "bind-to none map-by slot"  # as the toolkit's own
# torch's options without a value
_TORCH_FLAGS = {"standalone", "no_python", "run_path", "use_env", "module", "m"}
# What the toolkit gives torch by itself -> the values of the documents for the same.
_TORCH_OURS = {
    "nnodes": (_NODES,),
    "node_rank": ("${VC_TASK_INDEX}", "${MA_TASK_INDEX}"),
    "nproc_per_node": (_SLOTS, "gpu", "auto"),
    "master_addr": (_LEADER,),
}
_WHOLE = {
    "nproc_per_node": "slots",
    "master_port": "torch.port",
    "max_restarts": "torch.max_restarts",
}
_HINTS = (
    (r"\b(pip3?|apt|apt-get|yum|conda)\b", "install it in the image, or in ma-pre-start.sh"),
    (r"ssh", "the toolkit starts sshd itself, with keys of its own: docs/how-to/secrets.md"),
    (r"hostfile|\bping\b|\bnetstat\b|\bpkill\b", "the roll call does it"),
    (r"TUNE_FILE", "every rank gets its node's whole environment"),
    (r"^(>|2>|\||&)", "docs/how-to/logs.md has files of ranks' output"),
    ("", "do it in ma-pre-start.sh, which runs on every node before the program"),
)


@dataclass(frozen=True)
class Lost:
    """Something of the script that the job.yaml does not do."""

    line: int
    text: str
    hint: str


@dataclass(frozen=True)
class Migrated:
    """What a script was found to do."""

    values: dict[str, Any]  # field -> value
    lines: dict[str, int]  # field -> the line that it comes from
    lost: tuple[Lost, ...]


def digest(statement: str) -> str:
    """Return what identifies a statement, whose white space is single spaces."""
    return hashlib.sha256(statement.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def migrate(text: str, name: str, arguments: Sequence[str] = ()) -> Migrated:
    """Return the settings of the job that a script starts with these arguments.

    Raises NoInputError if it cannot be read, or starts no training by mpirun or torch.
    """
    script = _Script(arguments)
    found = statements(text, name)
    for statement in found:
        script.take(statement)
    if not script.launched:
        raise NoInputError(
            f"EP133 {name} starts no training that is known",
            "neither mpirun nor torchrun nor python -m torch.distributed.run or .launch",
            "write the job.yaml yourself: entrypoint init",
        )
    used = set(re.findall(r"\$\{?(\w+)", text))
    for variable, statement in script.assigned.items():
        if variable not in used:
            script.lose(statement.line, statement.text, "nothing uses it; export it, or remove it")
    return Migrated(
        script.values, script.lines, tuple(sorted(script.lost, key=lambda lost: lost.line))
    )


class _Script:
    """The script, statement by statement, and what it has come to."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.values: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.lost: list[Lost] = []
        self.launched = False
        self.assigned: dict[str, Statement] = {}  # not exported, and not of the documents
        self._arguments = arguments
        self._variables = Variables()
        self._blocks: list[bool] = []  # the open ones: whether the documents have them
        self._line = 0

    def lose(self, line: int, text: str, hint: str = "") -> None:
        """List a part of the script as not carried over."""
        hint = hint or next(hint for pattern, hint in _HINTS if re.search(pattern, text))
        self.lost.append(Lost(line, _plain(text.replace(ARGUMENTS, '"$@"')), hint))

    def take(self, statement: Statement) -> None:
        """Carry a statement over, or list it."""
        self._line = statement.line
        words = list(statement.words)
        while words and words[0].text in _PASSED:
            words.pop(0)
        if not words:
            return
        first = words[0].text
        is_documented = digest(statement.text) in DOCUMENTED
        if first in _CLOSING:
            self._blocks[-1:] = []
        elif first in _OPENING or first.endswith("()"):
            self._blocks.append(is_documented)
            if not is_documented:
                self.lose(statement.line, statement.text, "the job has no conditions: choose one")
        elif first == "elif":
            self._blocks[-1:] = [is_documented]
        elif self._assign(statement, words, is_documented) or is_documented or first in _SILENT:
            return
        elif not self._launch(statement, words):
            self.lose(statement.line, statement.text)

    def _assign(self, statement: Statement, words: list[Any], is_documented: bool) -> bool:
        """Perform assignments and exports. Returns whether the statement is nothing else."""
        exported = words[0].text == "export"
        parts = words[1:] if exported else words
        if not exported and not all(re.match(r"[A-Za-z_]\w*\+?=", word.text) for word in parts):
            return False
        if not is_documented and (not all(self._blocks) or self.launched):
            self.lose(statement.line, statement.text)
            return True
        for word in parts:
            name = self._variables.assign(word, keep=bool(self._blocks))
            if exported:
                self._export(name or word.text)
            elif name and not is_documented:
                self.assigned[name] = statement
        return True

    def _export(self, name: str) -> None:
        value = self._variables.values.get(name)
        if value is not None and is_secret(name):
            self.lose(self._line, f"export {name}=...", "a secret: give it to the containers")
        elif value is not None and "$" not in value:
            self._set_env(name, value)
        elif value is not None:
            self.lose(self._line, f"export {name}={value}")

    def _set(self, path: str, value: Any) -> None:
        is_list = isinstance(value, list)
        self.values[path] = [_plain(part) for part in value] if is_list else _plain(value)
        self.lines[path] = self._line

    def _set_env(self, name: str, value: str) -> None:
        self.values.setdefault("env", {})[name] = _plain(value)
        self.lines.setdefault("env", self._line)

    # -- what starts the training

    def _launch(self, statement: Statement, words: list[Any]) -> bool:
        """Carry over the statement that starts the training. Returns whether it is one."""
        at = next((at for at, word in enumerate(words) if word.operator), len(words))
        line = [part for word in words[:at] for part in self._variables.split(word)]
        env = []
        while line and (line[0] in _PREFIXES or re.match(r"[A-Za-z_]\w*=", line[0])):
            env += [line[0]] if "=" in line[0] else []
            line.pop(0)
        if line and line[0] == "cd" and len(line) == 2 and at == len(words) and not self.launched:
            return self._change_folder(line[1])
        take = _launcher(line)
        if take is None or self.launched:
            return False
        self.launched = True
        for name, _, value in (pair.partition("=") for pair in env):
            self._set_env(name, value)
        take(self, line)
        if at < len(words):
            self.lose(statement.line, " ".join(word.text for word in words[at:]))
        return True

    def _change_folder(self, folder: str) -> bool:
        whole = f"{folder}/"
        rest = whole.removeprefix(_FOLDER)
        if "$" in rest or not (rest != whole or folder.startswith("/")):
            return False
        self._set("workdir", folder if folder.startswith("/") else whole)
        return True

    def mpirun(self, line: list[str]) -> None:
        """Carry over mpirun's options and its program."""
        self._set("launcher", "mpirun")
        slots = self._variables.values.get("MY_MPI_SLOTS", _SLOTS)
        if slots.isdecimal():
            self._set("slots", int(slots))
        elif slots != _SLOTS:
            self.lose(self._line, f"MY_MPI_SLOTS={slots}", "give slots, or hosts with slots")
        groups: dict[str, list[str]] = {}
        words = line[1:]
        while words and words[0].startswith("-"):
            option = words.pop(0)
            self._mpi_option(option, words, slots, groups)
        for field, options in groups.items():
            if " ".join(option.lstrip("-") for option in options) != _BINDING:
                self._set(f"mpi.{field}", " ".join(options))
        self._set_command(words)

    def _mpi_option(
        self, option: str, words: list[str], slots: str, groups: dict[str, list[str]]
    ) -> None:
        name = option.lstrip("-")
        if name == "allow-run-as-root":
            return
        follow, field = _MPI_OPTIONS.get(name, (1, "extra_args"))
        values = [words.pop(0) for _ in range(min(follow, len(words)))]
        text = " ".join([option, *values])
        own = self._variables.values
        if name in ("np", "n", "c"):
            self._take_np(values[0] if values else "", slots)
        elif name in ("hostfile", "machinefile"):
            self._take_path("mpi.hostfile", text, values, f"{own.get('MY_HOME')}/hostfile")
        elif name in ("tune", "am"):
            self._take_path("mpi.tune_file", text, values, own.get("MY_MPI_TUNE_FILE"))
        elif name in ("wdir", "wd"):
            self._take_path("workdir", text, values, None)
        elif values[:1] == ["plm_rsh_args"]:
            self._take_ssh(values[-1])
        elif name == "x":
            self._take_variable(values[0] if values else "", text, groups)
        elif "$" in text or any(len(value.split()) != 1 for value in values):
            self.lose(self._line, text, f"add it to mpi.{field}, with its value")
        else:
            groups.setdefault(field, []).extend([option, *values])
            if name not in _MPI_OPTIONS:
                self.lose(self._line, text, "an option unknown here: look at mpi.extra_args")

    def _take_np(self, value: str, slots: str) -> None:
        factors = sorted(value[3:-2].split("*")) if value.startswith("$((") else []
        if value.isdecimal():
            self._set("mpi.np", int(value))
        elif factors != sorted((_NODES, slots)):
            self.lose(self._line, f"-np {value}", "give mpi.np, or slots")

    def _take_path(self, path: str, text: str, values: list[str], ours: str | None) -> None:
        value = "".join(values)
        if value == ours:
            return
        if "$" in value:
            self.lose(self._line, text, f"give {path}")
        else:
            self._set(path, value)

    def _take_ssh(self, value: str) -> None:
        if port := _PORT.fullmatch(value):
            if int(port[1]) != 36666:
                self._set("ssh.port", int(port[1]))
        else:
            self.lose(self._line, f"-mca plm_rsh_args {value!r}")

    def _take_variable(self, pair: str, text: str, groups: dict[str, list[str]]) -> None:
        """-x NAME passes what every rank has anyway: its own node's environment."""
        name, assigned, value = pair.partition("=")
        if "$" in value:
            self.lose(self._line, text, f"give {name} in env")
        elif any(char.isspace() for char in value):
            self._set_env(name, value)
        elif assigned:
            groups.setdefault("x_args", []).extend(["-x", pair])

    def torch(self, line: list[str]) -> None:
        """Carry over the options of torch's launchers, and their program."""
        is_module = "-m" in line and not line[0].endswith("torchrun")
        at = line.index("-m") if is_module else 0
        python = line[:at] or ["python"]
        launch = is_module and line[at + 1].endswith("launch")
        self._set("launcher", "torchlaunch" if launch else "torchrun")
        words = line[at + 2 if is_module else 1 :]
        flags: set[str] = set()
        extra: list[str] = []
        while words and words[0].startswith("-"):
            option, assigned, value = words.pop(0).partition("=")
            name = option.lstrip("-").replace("-", "_")
            if name in _TORCH_FLAGS and not assigned:
                flags.add(name)
                continue
            if not assigned:
                value = words.pop(0) if words else ""
            extra += self._torch_option(name, option, value)
        if launch and "use_env" not in flags:
            self._set_env("TORCHLAUNCH_USE_ENV", "0")
        if "run_path" in flags:
            self.lose(self._line, "--run_path", "start the program by `python`")
        if extra:
            self._set("torch.extra_args", extra)
        if "standalone" in flags:
            self.lose(self._line, "--standalone", "one node needs no option; more need hosts")
        if {"m", "module"} & flags:
            python = [*python, "-m"]
        self._set_command(words if "no_python" in flags else [*python, *words])

    def _torch_option(self, name: str, option: str, value: str) -> list[str]:
        """Carry over one option with a value. Returns it if torch has to get it as it is."""
        address, _, port = value.rpartition(":")
        if value in _TORCH_OURS.get(name, ()) or name == "rdzv_id":
            return []
        if name in _WHOLE and value.isdecimal():
            self._set_unless_default(_WHOLE[name], int(value))
        elif name == "rdzv_backend" and value in ("c10d", "static"):
            self._set("torch.rdzv_backend", value)
        elif name == "rdzv_endpoint" and address == _LEADER and port.isdecimal():
            self._set_unless_default("torch.port", int(port))
        elif name == "rdzv_conf" and "$" not in value:
            rest = [part for part in value.split(",") if part and not part.startswith("is_host=")]
            return [f"--rdzv_conf={','.join(rest)}"] if rest else []
        elif name == "nnodes" and re.fullmatch(r"\d+:\d+", value):
            self._set("nodes", value)
        elif name in (*_TORCH_OURS, *_WHOLE, "rdzv_backend", "rdzv_endpoint") or "$" in value:
            self.lose(self._line, f"{option}={value}", "the toolkit has its own: entrypoint plan")
        else:
            return [f"{option}={value}"]
        return []

    def _set_unless_default(self, path: str, value: int) -> None:
        if (path, value) not in (("torch.port", 6060), ("torch.max_restarts", 0)):
            self._set(path, value)

    def _set_command(self, words: list[str]) -> None:
        """Carry over the program and its arguments; those that only the node knows by a shell."""
        if ARGUMENTS in words and not self._arguments and len(words) > 1:
            self.lose(self._line, '"$@"', "give the script's arguments to migrate, after --")
        command: list[str] = []
        for word in words:
            command += self._arguments if word == ARGUMENTS else [word]
        if any("$(" in word or "`" in word for word in command):
            self.lose(self._line, " ".join(command), "write command yourself")
        elif any("$" in word.removeprefix(_FOLDER) for word in command):
            line = " ".join(map(_for_shell, command))
            self._set("command", ["bash", "-c", f"exec {line}"])
        elif command:
            self._set("command", command)


def _plain(value: Any) -> Any:
    return value.replace(DOLLAR, "$") if isinstance(value, str) else value


def _for_shell(word: str) -> str:
    """Return a word for a shell, which replaces its variables."""
    if "$" not in word:
        return shlex.quote(_plain(word))
    return '"' + re.sub(r'(["\\])', r"\\\1", word).replace(DOLLAR, "\\$") + '"'


def _launcher(line: list[str]) -> Callable[[_Script, list[str]], None] | None:
    """Return what carries a command line over; None if it starts no training."""
    program = line[0].rpartition("/")[2] if line else ""
    if program.startswith("python") and "-m" in line[:-1]:
        program = line[line.index("-m") + 1]
    return _TAKERS.get(program)


_TAKERS = {
    **dict.fromkeys(("mpirun", "mpiexec", "orterun"), _Script.mpirun),
    **dict.fromkeys(
        ("torchrun", "torch.distributed.run", "torch.distributed.launch"), _Script.torch
    ),
}
