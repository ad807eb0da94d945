"""Recognizes a command line that is a launcher itself: by its name, behind wrappers, in a shell's command.

Each rank's supervisor imports this: keep it fast.
"""

from __future__ import annotations

if False:  # only for type checkers: importing it is slow
    from collections.abc import Sequence

# Launchers that people bring -> the launcher of ours that does what they do.
_MPI = {
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun", "srun"), "mpirun"),
    **dict.fromkeys(("mpirun.openmpi", "mpiexec.openmpi"), "mpirun"),
    **dict.fromkeys(("mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich"), "hydra"),
}
_TRAINING = {
    "torchrun": "torchrun",
    "accelerate": "accelerate",
    "accelerate-launch": "accelerate",
    "deepspeed": "deepspeed",
    "horovodrun": "mpirun",
    "msrun": "msrun",
}
_LAUNCHERS = {**_MPI, **_TRAINING, "ray": "ray"}
# Python modules that are launchers: the first words of their names.
_PACKAGES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.launcher": "torchrun",
    "accelerate.commands": "accelerate",
    "deepspeed.launcher": "deepspeed",
    "horovod.run": "mpirun",
    "horovod.runner": "mpirun",
    "mindspore.parallel.cluster.run": "msrun",
    "ray.scripts": "ray",
}
# Programs that start another one: options that take the next word, and how many words come before the program.
_WRAPPERS: dict[str, tuple[tuple[str, ...], int]] = {
    "env": (("-u", "--unset", "-C", "--chdir"), 0),
    "timeout": (("-s", "--signal", "-k", "--kill-after"), 1),
    "nice": (("-n", "--adjustment"), 0),
    "nohup": ((), 0),
    "stdbuf": (("-i", "-o", "-e", "--input", "--output", "--error"), 0),
    "setsid": ((), 0),
    "ionice": (("-c", "-n", "--class", "--classdata"), 0),
    "chrt": (("-T", "-P", "-D"), 1),
    "taskset": ((), 1),
    "numactl": (
        (
            *("-i", "-p", "-P", "-N", "-C", "-m", "-w", "--interleave", "--preferred"),
            *("--preferred-many", "--cpunodebind", "--physcpubind", "--membind"),
        ),
        0,
    ),
    "time": (("-f", "--format", "-o", "--output"), 0),
    "xvfb-run": (("-n", "-s", "-e", "-f", "-p", "-w", "--server-num", "--server-args"), 0),
    "sudo": (("-u", "-g", "-C", "-D", "--user", "--group", "--chdir"), 0),
    "gosu": ((), 1),
    "su-exec": ((), 1),
    "tini": (("-p", "-e"), 0),
    "dumb-init": (("-r", "--rewrite"), 0),
    "exec": (("-a",), 0),  # this and the next one are the shell's own
    "command": ((), 0),
    **dict.fromkeys(("conda run", "mamba run", "micromamba run"), (("-n", "--name", "-p", "--prefix", "--cwd"), 0)),
    **dict.fromkeys(("uv run", "poetry run", "pipenv run", "pixi run"), (("-p", "--python", "--with", "-e"), 0)),
}
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_ASK = ("-h", "--help", "-V", "--version")
_ONE = ("-n", "-np", "--np", "--n", "-c")  # an MPI's words for the number of processes
# Options by which a launcher makes one job of what several of it start, with the values by which it does not.
_JOINS = {
    "nnodes": ("1", "1:1"),
    "num-machines": ("1",),
    "node-rank": ("0", "-1"),
    "machine-rank": ("0",),
}
_PYTHON_VALUED = ("-W", "-X", "--check-hash-based-pycs")


def launcher_of(words: Sequence[str]) -> tuple[str, str]:
    """The launcher of ours that does what this command line does, and what it is called; "" where it is no launcher.

    Console scripts show as `python /usr/bin/torchrun ...` once they run, modules by their file or their name.
    """
    return _parsed(words)[:2]


def _parsed(words: Sequence[str]) -> tuple[str, str, int]:
    """As `launcher_of`, and how many words come before its arguments."""
    name = _name(words[0]) if words else ""
    if not is_python(name):
        return _LAUNCHERS.get(name, ""), name, 1
    at = 1
    while at < len(words) and words[at].startswith("-"):
        letters, is_module, module = words[at].partition("m")
        if is_module and not letters.strip("-uBEIOPsSqvxbdi") and not letters.startswith("--"):
            at += 1 if module else 2
            module = module or "".join(words[at - 1 : at])
            return _of_module(f".{module}."), f"{name} -m {module}", at
        at += 2 if words[at] in _PYTHON_VALUED else 1
    path = "".join(words[at : at + 1])
    script = _name(path)
    if path.endswith(".py"):
        return _of_module(f".{path[:-3].replace('/', '.')}."), script, at + 1
    return _LAUNCHERS.get(script, "") if "/" in path else "", script, at + 1


def _of_module(dotted: str) -> str:
    return next((ours for package, ours in _PACKAGES.items() if f".{package}." in dotted), "")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def is_python(program: str) -> bool:
    """Whether a program of this name is a Python: python, python3, /usr/bin/python3.11."""
    name = _name(program)
    return name.startswith("python") and not name[6:].strip("0123456789.")


def is_shell(program: str) -> bool:
    """Whether a program of this name is a shell; a login shell's own name begins with a dash."""
    return _name(program).lstrip("-") in _SHELLS


def unwrapped(words: Sequence[str]) -> Sequence[str]:
    """The command line without the wrappers before its program (env, timeout, nice, ...) and what they set."""
    while words:
        if is_assignment(words[0]):
            words = words[1:]
            continue
        at, name = 1, _name(words[0])
        two = f"{name} {''.join(words[1:2])}"
        if two in _WRAPPERS:  # conda run
            at, name = 2, two
        if name not in _WRAPPERS:
            break
        valued, before = _WRAPPERS[name]
        while at < len(words) and words[at].startswith("-") and words[at] != "--":
            at += 2 if words[at] in valued else 1
        at += words[at : at + 1] in (["--"], ("--",))
        words = words[at + before :]
    return words


def is_assignment(word: str) -> bool:
    """Whether the word sets a variable, as `NAME=value`."""
    return "=" in word and word.partition("=")[0].isidentifier()


def only_starts_others(words: Sequence[str]) -> bool:
    """Whether the program is a shell or one of the wrappers."""
    return bool(words) and (is_shell(words[0]) or _name(words[0]) in _WRAPPERS)


def is_mpi(name: str) -> bool:
    """Whether a launcher of this name starts any program, and not only training."""
    return name in _MPI


def starts_own_job(words: Sequence[str]) -> bool:
    """Whether this launcher starts a job of its own, rather than answer a question, or join what others start.

    One process of an MPI's is no job: a tool may need it. Nor is a part of Ray's cluster.
    """
    ours, name, at = _parsed(words)
    arguments = words[at:]
    if ours == "ray" or not arguments or arguments[0] in _ASK or arguments[-1] in _ASK:
        return False
    if name == "accelerate" and "launch" not in arguments:
        return False
    program = next((at for at, word in enumerate(arguments) if word.endswith(".py")), len(arguments))
    arguments = arguments[:program]
    if name in _MPI:
        one = any(word in _ONE and "".join(arguments[at + 1 : at + 2]) == "1" for at, word in enumerate(arguments))
        return not one or ":" in arguments
    return not any(_joins(word, arguments[at + 1 :]) for at, word in enumerate(arguments))


def _joins(word: str, rest: Sequence[str]) -> bool:
    """Whether this option, which `rest` follows, makes the launcher one of several of the same job."""
    option, has_value, value = word.lstrip("-").replace("_", "-").partition("=")
    if not word.startswith("-") or option not in _JOINS:
        return word.startswith("-") and option == "no-ssh"
    return (value if has_value else "".join(rest[:1])) not in _JOINS[option]
