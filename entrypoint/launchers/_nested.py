"""Recognizes command lines that are launchers, by the name, also behind wrappers.

The keeper imports this: keep it fast.
"""

from __future__ import annotations

from entrypoint.base.tables import rows, table

if False:  # only for type checkers: importing it is slow
    from collections.abc import Sequence


# Launchers in a user's command -> our launcher that replaces them.
_MPI = table("""
    mpirun mpiexec orterun prterun srun mpirun.openmpi mpiexec.openmpi | mpirun
    mpiexec.hydra mpiexec.mpich mpirun.mpich                           | hydra
""")
_TRAINING = table("""
    torchrun                     | torchrun
    accelerate accelerate-launch | accelerate
    deepspeed                    | deepspeed
    horovodrun                   | mpirun
    msrun                        | msrun
""")
# The boot scripts of platforms' documents, which are rendered from templates/.
_SCRIPTS = {"torchrun.sh": "torchrun", "torchlaunch.sh": "torchlaunch", "run_mpi.sh": "mpirun"}
_LAUNCHERS = {**_MPI, **_TRAINING, **_SCRIPTS, "ray": "ray"}
# Python modules that are launchers: the beginnings of their names.
_PACKAGES = table("""
    torch.distributed.run torch.distributed.launch torch.distributed.launcher | torchrun
    accelerate.commands                                                       | accelerate
    deepspeed.launcher                                                        | deepspeed
    horovod.run horovod.runner                                                | mpirun
    mindspore.parallel.cluster.run                                            | msrun
    ray.scripts                                                               | ray
""")
# Launcher -> what it sets for the processes that it starts: the variables in which two jobs differ,
# that of the job's size, and whether a job of its own has the size 1: torch's is counted in nodes.
VARIABLES: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "torchrun": (("TORCHELASTIC_RUN_ID", "GROUP_RANK"), "GROUP_WORLD_SIZE", True),
    "horovodrun": (("HOROVOD_RANK", "HOROVOD_SIZE"), "HOROVOD_SIZE", False),
    "mpirun": (("PMIX_NAMESPACE",), "OMPI_COMM_WORLD_SIZE", False),
}
# The same -> the variables of the job's size, of its size on this node, and of a number there.
SIZES = {
    "torchrun": ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
    "horovodrun": ("HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE", "HOROVOD_LOCAL_RANK"),
    "mpirun": (
        "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    ),
}  # fmt: skip
# The launcher whose command line and variables alone say how many nodes it has: those of others may
# be in a file.
WITHOUT_FILE = "torchrun"
# Programs that start another one: the number of arguments before the program, and options with a
# value. The last two rows are shell builtins.
_WRAPPERS = {
    name: (valued, int(before))
    for names, before, valued in rows("""
        env                                  | 0 | -u --unset -C --chdir
        timeout                              | 1 | -s --signal -k --kill-after
        nice                                 | 0 | -n --adjustment
        nohup, setsid                        | 0 |
        stdbuf                               | 0 | -i -o -e --input --output --error
        ionice                               | 0 | -c -n --class --classdata
        chrt                                 | 1 | -T -P -D
        taskset, gosu, su-exec               | 1 |
        numactl                              | 0 | -i -p -P -N -C -m -w --interleave --preferred \
            --preferred-many --cpunodebind --physcpubind --membind
        time                                 | 0 | -f --format -o --output
        xvfb-run                             | 0 | -n -s -e -f -p -w --server-num --server-args
        sudo                                 | 0 | -u -g -C -D --user --group --chdir
        tini                                 | 0 | -p -e
        dumb-init                            | 0 | -r --rewrite
        conda run, mamba run, micromamba run | 0 | -n --name -p --prefix --cwd
        uv run, poetry run, pipenv run       | 0 | -p --python --with -e
        pixi run                             | 0 | -p --python --with -e
        exec                                 | 0 | -a
        command                              | 0 |
    """)
    for name in names.split(", ")
}
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_ASK = ("-h", "--help", "-V", "--version")
_ONE = ("-n", "-np", "--np", "--n", "-c")  # options of an MPI for the number of processes
# Options with which several launchers form one job, and the values with which they do not.
_JOINS = table("""
    nnodes       | 1 1:1
    num-machines | 1
    node-rank    | 0 -1
    machine-rank | 0
""")


def launcher_of(argv: Sequence[str]) -> tuple[str, str]:
    """Return our launcher that replaces this command line, and the name in it; "" if it is no
    launcher.

    A running console script has the argv `python /usr/bin/torchrun ...`, a module its file or its
    name.
    """
    return _parsed(argv)[:2]


def _parsed(argv: Sequence[str]) -> tuple[str, str, int]:
    """Return the same as `launcher_of`, and the number of entries before its arguments."""
    name = _name(argv[0]) if argv else ""
    if is_shell(name):
        option, program, at = program_of(argv)
        script = _name(program)
        return "" if option else _SCRIPTS.get(script, ""), script, at
    if not is_python(name):
        return _LAUNCHERS.get(name, ""), name, 1
    option, program, at = program_of(argv)
    if option == "m":
        return _of_module(program), f"{name} -m {program}", at
    script = _name(program)
    if program.endswith(".py"):
        return _of_module(program[:-3].replace("/", ".")), script, at
    return _LAUNCHERS.get(script, "") if "/" in program else "", script, at


def boot_script(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the launcher that replaces a boot script, and the command behind it; "" and the same
    command if it is none."""
    words = unwrapped(argv)
    launcher, name, at = _parsed(words)
    return (launcher, words[at:]) if name in _SCRIPTS and words[at:] else ("", argv)


def program_of(argv: Sequence[str]) -> tuple[str, str, int]:
    """Return what an interpreter, Python or a shell, runs: the letter of the option that names it
    (`m`, `c`, or "" for a file), its name, and the number of entries before its own arguments."""
    valued, naming = ("WX", "mc") if is_python(argv[0]) else ("oO", "")
    words = [*argv, ""]  # the last one for an option without its value
    at = 1
    while at < len(argv):
        argument = argv[at]
        at += 1
        if argument == "--":
            return "", words[at], min(at + 1, len(argv))
        if argument == "-" or not argument.startswith(("-", "+")):
            return "", argument, at
        if argument == "--check-hash-based-pycs":
            at += 1
        if argument.startswith("--"):
            continue
        for place, letter in enumerate(argument[1:], start=2):
            value = argument[place:]
            if letter in naming:
                return letter, value or words[at], min(at + (not value), len(argv))
            if letter in valued:
                at += not value
                break
    return "", "", len(argv)


def _of_module(name: str) -> str:
    dotted = f".{name}."
    return next(
        (launcher for package, launcher in _PACKAGES.items() if f".{package}." in dotted), ""
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def is_python(program: str) -> bool:
    """Return whether a program of this name is Python: python, python3, /usr/bin/python3.11."""
    name = _name(program)
    return name.startswith("python") and not name[6:].strip("0123456789.")


def is_shell(program: str) -> bool:
    """Return whether a program of this name is a shell; a login shell's own name begins with a
    dash."""
    return _name(program).lstrip("-") in _SHELLS


def unwrapped(argv: Sequence[str]) -> Sequence[str]:
    """Return the command line without wrappers (env, timeout, nice, ...) and assignments before its
    program."""
    start = 0  # of what is left; slicing once keeps the time linear
    while start < len(argv):
        if is_assignment(argv[start]):
            start += 1
            continue
        at = start + 1
        name = _name(argv[start])
        pair = f"{name} {''.join(argv[at : at + 1])}"
        if pair in _WRAPPERS:  # conda run
            at += 1
            name = pair
        if name not in _WRAPPERS:
            break
        valued, before = _WRAPPERS[name]
        while at < len(argv) and argv[at].startswith("-") and argv[at] != "--":
            at += 2 if argv[at] in valued.split() else 1
        at += argv[at : at + 1] in (["--"], ("--",))
        start = at + before
    return argv[start:]


def is_assignment(argument: str) -> bool:
    """Return whether the argument sets a variable, as `NAME=value`."""
    return "=" in argument and argument.partition("=")[0].isidentifier()


def only_starts_others(argv: Sequence[str]) -> bool:
    """Return whether the program is a shell or one of the wrappers."""
    return bool(argv) and (is_shell(argv[0]) or _name(argv[0]) in _WRAPPERS)


def patterns() -> tuple[str, str]:
    """Return the launchers' names, and those of their modules after `-m `, as patterns of a shell's
    `case`."""
    modules = (f'"-m {package}."*' for package in _PACKAGES)
    return " | ".join(_LAUNCHERS), " | ".join(modules)


def is_mpi(name: str) -> bool:
    """Return whether a launcher of this name starts any kind of program, not only training."""
    return name in _MPI


def starts_own_job(argv: Sequence[str]) -> bool:
    """Return whether this launcher starts a job of its own: it neither prints information nor joins
    a job of others.

    A single process of an MPI is no job, since a tool may need it; nor is a part of Ray's cluster.
    """
    launcher, name, at = _parsed(argv)
    arguments = argv[at:]
    if launcher == "ray" or not arguments or arguments[0] in _ASK or arguments[-1] in _ASK:
        return False
    if name == "accelerate" and "launch" not in arguments:
        return False
    program = next(
        (index for index, entry in enumerate(arguments) if entry.endswith(".py")), len(arguments)
    )
    arguments = arguments[:program]
    if name in _MPI:
        is_single = any(
            entry in _ONE and "".join(arguments[index + 1 : index + 2]) == "1"
            for index, entry in enumerate(arguments)
        )
        return not is_single or ":" in arguments
    following = [*arguments[1:], ""]
    return not any(map(_joins, arguments, following))


def _joins(argument: str, following: str) -> bool:
    """Return whether this option, with the argument `following` it, makes the launcher one of
    several of the same job."""
    option, has_value, value = argument.lstrip("-").replace("_", "-").partition("=")
    if not argument.startswith("-") or option not in _JOINS:
        return argument.startswith("-") and option == "no-ssh"
    return (value if has_value else following) not in _JOINS[option].split()
