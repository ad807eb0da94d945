"""The job spec: every mistake in plain words at its place, and the order in which values win."""

from __future__ import annotations

import json
import operator
import secrets
from collections.abc import Mapping
from pathlib import Path
from shlex import split
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from entrypoint import registry, spec
from entrypoint.errors import SpecError
from entrypoint.spec import JobSpec, Override, Source, check_host, fields, load
from entrypoint.spec.schema import schema
from tests import apis

ROOT = Path(__file__).parents[2]
ADAPTERS = {
    "launchers": ["mpirun", "plain", "torchlaunch", "torchrun"],
    "platforms": ["local", "modelarts"],
    "devices": ["cpu", "nvidia"],
}


@pytest.fixture(autouse=True)
def _known_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "names", ADAPTERS.__getitem__)


def job(
    text: str | None = None, env: Mapping[str, str] | None = None, /, **flags: Override
) -> JobSpec:
    return load(
        text, "job.yaml", env or {}, {path.replace("__", "."): flag for path, flag in flags.items()}
    )


def problems(
    text: str | None = None, env: Mapping[str, str] | None = None, /, **flags: Override
) -> list[str]:
    with pytest.raises(SpecError) as caught:
        job(text, env, **flags)
    assert caught.value.status == 65
    return caught.value.lines()


def at(spec: JobSpec, path: str) -> Any:
    return spec.value(path)


# --------------------------------------------------------------------------------------------------
# Messages

SIX_MISTAKES = """\
name: demo
comand: [python, train.py]
slots: four
hosts:
  - worker-0
  - worker_1-
ssh:
  port: 70000
env:
  VERSION: [1.10]
launcher: mpirum
"""


@pytest.mark.promise("all mistakes of a spec are told at once, each with its place")
def test_six_mistakes_are_six_lines() -> None:
    assert problems(SIX_MISTAKES) == [
        "job.yaml:2:1: comand: EP102 unknown key | `comand` | did you mean `command`?",
        (
            'job.yaml:3:8: slots: EP100 a whole number from 1 to 4096 is needed | "four" | write'
            " for example 1"
        ),
        (
            "job.yaml:6:5: hosts.1: EP100 this is no host name: a label of it begins or ends with"
            ' `-` | "worker_1-" | rename the host, or write NAME=ADDRESS'
        ),
        (
            "job.yaml:8:9: ssh.port: EP100 a whole number from 1 to 65535, or `auto` is needed |"
            " 70000 | write for example 36666"
        ),
        "job.yaml:10:12: env.VERSION: EP100 text is needed | a list | write one value",
        (
            'job.yaml:11:11: launcher: EP100 there is no such launcher | "mpirum" | did you mean'
            " `mpirun`?"
        ),
    ]


NUMBER = "EP100 a whole number from 1 to 65535, or `auto` is needed"
UNSHARED = (
    "EP105 a secret does not belong in a file that is shared | use secret_file or ENTRYPOINT_SECRET"
)
NO_HOST = "EP100 this is no host name"
RENAME = "rename the host, or write NAME=ADDRESS"
NUL = "EP100 text cannot hold a NUL byte"
NAME = "EP100 a variable's name is letters, digits and `_`, not a digit first"
LONG = "a" * 64
SEEN = "a" * 59 + "…"
NO_SLOTS = "EP100 the slots of a host are a whole number from 1 to 4096"
WRITE_SLOTS = (
    "write NAME:SLOTS, such as worker-0:8; a port is no part of it, see ssh.port and torch.port"
)
ALL_SSH = "port, client_key, host_key, known_hosts, client, compat"
RUN_DIR = "EP100 white space, quotes, `:`, `$`, `%` and `\\` are not allowed in this path"
LABEL = "EP100 a DNS label (a-z, 0-9 and -, up to 63) is needed"

NOTHING = 'EP100 text is needed | nothing | write text in quotes ("" for empty text), or remove it'

BAKED = "ssh:\n  compat: baked-keys\n  client_key: /k"
BAD = [
    ("slotz: 2", "1:1: slotz: EP102 unknown key | `slotz` | did you mean `slots`?"),
    ("ssh: {prot: 22}", "1:7: ssh.prot: EP102 unknown key | `prot` | did you mean `port`?"),
    ("ssh: {qqqq: 22}", f"1:7: ssh.qqqq: EP102 unknown key | `qqqq` | use one of {ALL_SSH}"),
    ("grace: 5", "1:1: grace: EP102 unknown key | `grace` | did you mean `timeouts.grace`?"),
    ("ssh_port: 5", "1:1: ssh_port: EP102 unknown key | `ssh_port` | did you mean `ssh.port`?"),
    ("kubernetes: {patch: []}", "1:1: kubernetes: EP102 unknown key | `kubernetes` | adapt the manifests with kustomize, as docs/how-to/kustomize.md shows"),
    ("secret_fil: x", "1:1: secret_fil: EP102 unknown key | (not shown) | did you mean `secret_file`?"),
    ("secret: hunter2", f"1:1: secret: {UNSHARED}"),
    ("ssh: {password: hunter2}", f"1:7: ssh.password: {UNSHARED}"),
    ("slots: 1\nslots: 2", "2:1: slots: EP103 this key is given twice | first at job.yaml:1:1 | keep one of them"),
    ("ssh: 22", '1:6: ssh: EP100 a mapping of keys to values is needed | "22" | indent its keys under `ssh:`'),
    ("- a", "1:1: EP100 a mapping of keys to values is needed | a list | write one `key: value` a line"),
    ("mpirun", '1:1: EP100 a mapping of keys to values is needed | "mpirun" | write one `key: value` a line'),
    ("ssh: {port: 22:22}", f'1:13: ssh.port: {NUMBER} | "22:22" | write for example 36666'),
    ("ssh: {port: 0x16}", f'1:13: ssh.port: {NUMBER} | "0x16" | write for example 36666'),
    ("ssh: {port: yes}", f'1:13: ssh.port: {NUMBER} | "yes" | write for example 36666'),
    ("ssh: {port: [22]}", f"1:13: ssh.port: {NUMBER} | a list | write for example 36666"),
    ("ssh: {port: 2.5}", f'1:13: ssh.port: {NUMBER} | "2.5" | write for example 36666'),
    ("ssh: {port: 0}", f"1:13: ssh.port: {NUMBER} | 0 | write for example 36666"),
    ("node_rank: -1", "1:12: node_rank: EP100 a whole number of at least 0 is needed | -1 | write for example 0"),
    ("timeouts: {peers: 0}", "1:19: timeouts.peers: EP100 a number above 0 is needed | 0.0 | write for example 600"),
    ("netcheck: {seconds: 0}", "1:21: netcheck.seconds: EP100 a number above 0, up to 60 is needed | 0.0 | write for example 0.5"),
    ("netcheck: {seconds: 61}", "1:21: netcheck.seconds: EP100 a number above 0, up to 60 is needed | 61.0 | write for example 0.5"),
    ("netcheck: {port: 7000}", "1:12: netcheck.port: EP102 unknown key | `port` | remove it: the network check uses the roll call's connections, and free ports between pairs of nodes"),
    ("cpu: {bind: numa}", "1:1: cpu: EP102 unknown key | `cpu` | leave it out: torchrun and MPI bind by their own options (torch.extra_args, mpi.bind_args)"),
    ("cpu.bind: core", "1:1: cpu.bind: EP102 unknown key | `cpu.bind` | leave it out: torchrun and MPI bind by their own options (torch.extra_args, mpi.bind_args)"),
    ("cpu_bind: core", "1:1: cpu_bind: EP102 unknown key | `cpu_bind` | leave it out: torchrun and MPI bind by their own options (torch.extra_args, mpi.bind_args)"),
    ("timeouts: {grace: .inf}", '1:19: timeouts.grace: EP100 a number of at least 0 is needed | ".inf" | write for example 30'),
    ("name: My_Job", f'1:7: name: {LABEL} | "My_Job" | write for example job'),
    ("name: [a]", f"1:7: name: {LABEL} | a list | write one value"),
    ("torch: {version: 2.1}", "1:9: torch.version: EP102 unknown key | `version` | remove it: the launcher asks the installed torch"),
    ("torch: {rdzv_backend: c10}", '1:23: torch.rdzv_backend: EP100 one of auto, c10d, static is needed | "c10" | did you mean `c10d`?'),
    ("torch: {rdzv_backend: etcd}", '1:23: torch.rdzv_backend: EP100 one of auto, c10d, static is needed | "etcd" | use one of auto, c10d, static'),
    ("device: gpu", '1:9: device: EP100 there is no such device | "gpu" | did you mean `nvidia`?'),
    ("platform: aws", '1:11: platform: EP100 there is no such platform | "aws" | use one of local, modelarts'),
    ("launcher: xyz", '1:11: launcher: EP100 there is no such launcher | "xyz" | use one of mpirun, plain, torchlaunch, torchrun'),
    ("command: python train.py", '1:10: command: EP100 a list of texts is needed | "python train.py" | write a list: ["python", "train.py"]'),
    ("hosts: a,b", '1:8: hosts: EP100 a list of texts is needed | "a,b" | write a list: ["a", "b"]'),
    ("command: {a: b}", "1:10: command: EP100 a list of texts is needed | a mapping | write it as a list, one entry for each word"),
    ("command: [a, [b]]", "1:14: command.1: EP100 text is needed | a list | write one value"),
    ("command: [a, ~]", f"1:14: command.1: {NOTHING}"),
    ('command: ["a\\0b"]', f'1:11: command.0: {NUL} | "a\\x00b" | remove it'),
    ('workdir: "/a\\0b"', f'1:10: workdir: {NUL} | "/a\\x00b" | remove it'),
    ('workdir: "/a\\ud800"', '1:10: workdir: EP100 text must be valid UTF-8 | "/a\\ud800" | fix the encoding'),
    ('workdir: ""', '1:10: workdir: EP100 a path is needed | "" | write one, or remove it'),
    ("env: [A=1]", "1:6: env: EP100 a mapping of names to texts is needed | a list | write it as a mapping"),
    ("env: {A: }", f"1:9: env.A: {NOTHING}"),
    ("env: {A: null}", f"1:10: env.A: {NOTHING}"),
    ("env: {MY_TOKEN: [12345]}", "1:17: env.MY_TOKEN: EP100 text is needed | (not shown) | write one value"),
    ("env: {1: x}", f'1:7: env.1: {NAME} | "1" | rename it'),
    ("env: {1A: x}", f'1:7: env.1A: {NAME} | "1A" | rename it'),
    ("env: {A-B: x}", f'1:7: env.A-B: {NAME} | "A-B" | rename it'),
    ("env: {ENTRYPOINT_SECRET: x}", "1:7: env.ENTRYPOINT_SECRET: EP105 a secret does not belong among the job's variables | set ENTRYPOINT_SECRET on the container, or use secret_file"),
    (f"hosts: [{LONG}]", f'1:9: hosts.0: {NO_HOST}: a label of it has 64 characters, DNS allows 63 | "{SEEN}" | {RENAME}'),
    ("hosts: [a, b, A]", '1:15: hosts.2: EP100 this host is hosts.0 too | "A" | name each node once'),
    ("hosts: [a:6666]", f'1:9: hosts.0: {NO_SLOTS} | "a:6666" | {WRITE_SLOTS}'),
    ("hosts: [a:0=10.0.0.1]", f'1:9: hosts.0: {NO_SLOTS} | "a:0=10.0.0.1" | {WRITE_SLOTS}'),
    ("hosts: ['a:']", f'1:9: hosts.0: {NO_SLOTS} | "a:" | {WRITE_SLOTS}'),
    ("hosts: [a:two]", f'1:9: hosts.0: {NO_SLOTS} | "a:two" | {WRITE_SLOTS}'),
    ("hosts: [a:1, A:2]", '1:14: hosts.1: EP100 this host is hosts.0 too | "A:2" | name each node once'),
    ("hosts: ['fe80::1']", f'1:9: hosts.0: {NO_HOST}: it holds ":"; letters, digits, `-`, `_` and `.` are allowed | "fe80::1" | {RENAME}'),
    ("hosts: [a=10.0.0.300]", '1:9: hosts.0: EP100 an address is an IP address or a host name | "a=10.0.0.300" | write NAME=ADDRESS, such as worker-0=10.0.0.7'),
    ("hosts: [a=]", '1:9: hosts.0: EP100 an address is an IP address or a host name | "a=" | write NAME=ADDRESS, such as worker-0=10.0.0.7'),
    ("hosts: [a, b]\nnode_rank: 2", "2:12: node_rank: EP104 the last of 2 hosts is number 1 | 2 | count from 0, or add hosts"),
    ("run_dir: /a/../", '1:10: run_dir: EP100 a directory of its own is needed | "/a/../" | end it with a name, such as /tmp/job'),
    ("run_dir: tmp", '1:10: run_dir: EP100 an absolute path is needed | "tmp" | begin it with /'),
    ("run_dir: /my dir", f'1:10: run_dir: {RUN_DIR} | "/my dir" | use another directory'),
    ("run_dir: /my:dir", f'1:10: run_dir: {RUN_DIR} | "/my:dir" | use another directory'),
    ("ssh: {host_key: /k}", "1:17: ssh.host_key: EP104 ssh.client_key is needed too | set ssh.client_key, or remove ssh.host_key"),
    (f"{BAKED}\n  host_key: /h", "2:11: ssh.compat: EP104 ssh.host_key is given too | spec job.yaml:4:13 | remove ssh.compat, or ssh.host_key"),
    (f"{BAKED}\nsecret_file: /s", "2:11: ssh.compat: EP104 secret_file is given too | spec job.yaml:4:14 | remove ssh.compat, or secret_file"),
    ("restarts: {most: 3, progress: /ckpt}", "1:31: restarts.progress: EP104 restarts.without_progress is needed too | set it to 3, or remove restarts.progress"),
    ("restarts: {most: 3, minutes: 5}", "1:30: restarts.minutes: EP104 restarts.without_progress is needed too | set it to 3, or remove restarts.minutes"),
    ("ssh:\n\tport: 22", "2:1: EP101 a tab in the indentation | use spaces, YAML allows no tabs here"),
]  # fmt: skip


@pytest.mark.control("all mistakes of a spec are told at once, each with its place")
@pytest.mark.parametrize(("text", "expected"), BAD)
def test_one_mistake_is_one_line(text: str, expected: str) -> None:
    assert problems(text) == [f"job.yaml:{expected}"]


BAD_VARIABLES = [
    ({"ENTRYPOINT_SLOTS": "four"}, 'slots: EP100 a whole number from 1 to 4096 is needed' ' | "four" | write for example 1'),
    ({"ENTRYPOINT_SSH_PORT": "99999"}, f"ssh.port: {NUMBER} | 99999 | write for example 36666"),
    ({"SSHD_PORT": "10.0.0.1:22"}, f'ssh.port: {NUMBER} | "10.0.0.1:22" | write for example 36666'),
    ({"ENTRYPOINT_TIMEOUTS_PEERS": "inf"}, 'timeouts.peers: EP100 a number above 0 is needed' ' | "inf" | write for example 600'),
    ({"ENTRYPOINT_TIMEOUTS_PEERS": "1e999"}, 'timeouts.peers: EP100 a number above 0 is needed | "1e999" | write for example 600'),
    ({"ENTRYPOINT_SLOT": "4"}, "EP102 no such setting | did you mean `ENTRYPOINT_SLOTS`?"),
    ({"ENTRYPOINT_SECRT": "hunter2hunter2hunter2"}, "EP102 no such setting | did you mean `ENTRYPOINT_SECRET`?"),
    ({"ENTRYPOINT_KUBERNETES_PATCH": "[]"}, "EP102 no such setting | adapt the manifests with kustomize, as docs/how-to/kustomize.md shows"),
    ({"ENTRYPOINT_QQ": "4"}, "EP102 no such setting | use one of the names in docs/reference/spec.md"),
    ({"ENTRYPOINT_SECRET": "hunter2"}, "EP301 a secret has at least 16 bytes | 7 bytes | make one with: openssl rand -hex 32"),
    ({"ENTRYPOINT_SECRET": secrets.token_hex(8), "ENTRYPOINT_SECRET_FILE": "/s"}, "EP103 one secret is needed, ENTRYPOINT_SECRET_FILE is set too | unset one of them"),
    ({"ENTRYPOINT_COMMAND": "a 'b"}, 'command: EP100 a list of texts is needed: No closing quotation | "a \'b" | write shell words, or a list: ["python", "train.py"]'),
    ({"ENTRYPOINT_COMMAND": '["a", null]'}, f"command.1: {NOTHING}"),
    ({"ENTRYPOINT_ENV": "A=1"}, 'env: EP100 a mapping of names to texts is needed: this is not JSON at character 1 | write NAME=VALUE for a flag, a JSON object for a variable: {"NAME": "VALUE"}'),
    ({"ENTRYPOINT_ENV": '{"A": "1", "A": "2"}'}, 'env: EP100 a mapping of names to texts is needed: "A" is given twice | write NAME=VALUE for a flag, a JSON object for a variable: {"NAME": "VALUE"}'),
    ({"ENTRYPOINT_ENV": '["A=1"]'}, 'env: EP100 a mapping of names to texts is needed | a list | write NAME=VALUE for a flag, a JSON object for a variable: {"NAME": "VALUE"}'),
    ({"ENTRYPOINT_ENV": '{"A": null}'}, f"env.A: {NOTHING}"),
    ({"ENTRYPOINT_HOSTS": "a b a"}, 'hosts.2: EP100 this host is hosts.0 too | "a" | name each node once'),
]  # fmt: skip


@pytest.mark.parametrize(("env", "expected"), BAD_VARIABLES)
def test_a_variable_is_judged_like_the_file(env: dict[str, str], expected: str) -> None:
    assert problems(None, env) == [f"{next(iter(env))}: {expected}"]


def test_a_list_in_a_variable_tells_where_in_it() -> None:
    assert problems(None, {"ENTRYPOINT_COMMAND": "[a, ~]"}) == [
        f"ENTRYPOINT_COMMAND:1:5: command.1: {NOTHING}"
    ]
    assert problems(None, {"ENTRYPOINT_COMMAND": "[a, !x b]"}) == [
        "ENTRYPOINT_COMMAND:1:5: command.1: EP101 this tag is not allowed here | `!x` | remove"
        " the tag"
    ]


def test_problems_of_all_three_come_sorted() -> None:
    lines = problems(
        "slots: 0\nname: A\nhosts: [b-, a-]",
        {"ENTRYPOINT_ZZ": "1", "ENTRYPOINT_NAME": "-", "ENTRYPOINT_TORCH_PORT": "x"},
        slots=Override("-1", "--slots"),
        env=Override(["A"], "--env"),
    )
    assert [line.split(": ")[0] for line in lines] == [
        *("job.yaml:1:8", "job.yaml:2:7", "job.yaml:3:9", "job.yaml:3:13"),
        *("ENTRYPOINT_NAME", "ENTRYPOINT_TORCH_PORT", "ENTRYPOINT_ZZ", "--env", "--slots"),
    ]


def test_problems_of_variables_come_in_the_order_of_their_names() -> None:
    """Also where a place within a variable is known."""
    lines = problems(None, {"ENTRYPOINT_SLOTS": "x", "ENTRYPOINT_COMMAND": "[a, ~]"})
    assert [line.split(": ")[0] for line in lines] == ["ENTRYPOINT_COMMAND:1:5", "ENTRYPOINT_SLOTS"]


def test_a_long_path_of_a_file_is_cut() -> None:
    with pytest.raises(SpecError) as caught:
        load("slots: 0", "x" * 300, {}, {})
    (line,) = caught.value.lines()
    assert line.startswith("x" * 199 + "…: slots: EP100 ")


def test_a_file_that_is_no_yaml_hides_no_other_mistake() -> None:
    lines = problems("a: [", {"ENTRYPOINT_SLOTS": "x", "ENTRYPOINT_SSH_HOST_KEY": "/k"})
    assert [line.split(": ")[0] for line in lines] == ["job.yaml:1:5", "ENTRYPOINT_SLOTS"]


@pytest.mark.parametrize(
    ("text", "env", "flags"),
    [
        ("secret: hunter2hunter2", {}, {}),
        ("password: {hunter2hunter2: 1}", {}, {}),
        ("secret: 'hunter2hunter2", {}, {}),
        ("secret: *hunter2hunter2", {}, {}),
        ("secret: !hunter2hunter2 x", {}, {}),
        ("ssh: {secret: hunter2hunter2}", {}, {}),
        ("env: {ENTRYPOINT_SECRET: hunter2hunter2}", {}, {}),
        ("env: {DB_PASSWORD: [hunter2hunter2]}", {}, {}),
        (None, {"ENTRYPOINT_SECRET": "hunter2hunter2"}, {}),
        (
            None,
            {
                "ENTRYPOINT_SECRET": "hunter2hunter2" * 2,
                "ENTRYPOINT_SECRET_FILE": "/s",
                "ENTRYPOINT_SLOTS": "x",
            },
            {},
        ),
        (None, {"ENTRYPOINT_SECRT": "hunter2hunter2"}, {}),
        (None, {"ENTRYPOINT_ENV": '{"PASSWORD": hunter2hunter2}'}, {}),
        (None, {"ENTRYPOINT_COMMAND": "train.py --password 'hunter2hunter2"}, {}),
        (None, {}, {"env": Override(["ENTRYPOINT_SECRET=hunter2hunter2"], "--env")}),
        (None, {}, {"env": Override(["MY_TOKEN hunter2hunter2"], "--env")}),
    ],
)
def test_no_message_shows_a_secret(
    text: str | None, env: dict[str, str], flags: dict[str, Override]
) -> None:
    assert "hunter2" not in "\n".join(problems(text, env, **flags))


# --------------------------------------------------------------------------------------------------
# Which value counts

ENV = {"ENTRYPOINT_SSH_PORT": "3", "MY_SSHD_PORT": "4", "SSHD_PORT": "5"}
SPEC_PORT = "\nssh:\n  port: 6\n"


@pytest.mark.promise(
    "a flag wins over a variable, a variable over the file", control="its own cases"
)
@pytest.mark.parametrize(
    ("text", "env", "flag", "port", "source"),
    [
        (SPEC_PORT, ENV, "2", 2, Source("flag", "--ssh-port")),
        (SPEC_PORT, ENV, None, 3, Source("env", "ENTRYPOINT_SSH_PORT")),
        (SPEC_PORT, {**ENV, "ENTRYPOINT_SSH_PORT": ""}, None, 4, Source("env", "MY_SSHD_PORT")),
        (SPEC_PORT, {"MY_SSHD_PORT": "", "SSHD_PORT": "5"}, None, 5, Source("env", "SSHD_PORT")),
        (SPEC_PORT, {"SSHD_PORT": ""}, None, 6, Source("spec", "job.yaml:3:9")),
        ("ssh: {port: ~}", {}, None, 36666, Source("default")),
        ("ssh: {port: }", {}, None, 36666, Source("default")),
        ("ssh: {port: null}", {}, None, 36666, Source("default")),
        ("ssh:", {}, None, 36666, Source("default")),
        ("", {}, None, 36666, Source("default")),
        (None, {}, None, 36666, Source("default")),
    ],
)
def test_precedence(
    text: str | None, env: dict[str, str], flag: str | None, port: int, source: Source
) -> None:
    result = job(text, env, **({"ssh__port": Override(flag, "--ssh-port")} if flag else {}))
    assert result.ssh.port == port
    assert result.source("ssh.port") == source


def test_a_mistake_in_the_file_is_reported_although_a_flag_overrides_it() -> None:
    assert problems("slots: x", slots=Override("2", "--slots")) == [
        'job.yaml:1:8: slots: EP100 a whole number from 1 to 4096 is needed | "x" | write for'
        " example 1"
    ]


def test_what_another_tool_left_does_not_matter_where_our_own_variable_is_set() -> None:
    assert job(None, {"SSHD_PORT": "10.0.0.1:22", "ENTRYPOINT_SSH_PORT": "22"}).ssh.port == 22


# What Kubernetes 1.37 set in a Pod beside Services named entrypoint, entrypoint-api, entrypoint-ssh
# and sshd.
SERVICES = {
    **dict.fromkeys(("ENTRYPOINT_SERVICE_HOST", "ENTRYPOINT_API_SERVICE_HOST"), "10.96.7.1"),
    **dict.fromkeys(("ENTRYPOINT_SERVICE_PORT", "ENTRYPOINT_API_SERVICE_PORT_HTTP"), "8080"),
    **dict.fromkeys(
        ("ENTRYPOINT_PORT", "ENTRYPOINT_API_PORT", "ENTRYPOINT_API_PORT_8080_TCP"),
        "tcp://10.96.7.1:8080",
    ),
    **{"ENTRYPOINT_API_PORT_8080_TCP_PROTO": "tcp", "ENTRYPOINT_API_PORT_8080_TCP_PORT": "8080"},
    **{
        "ENTRYPOINT_API_PORT_8080_TCP_ADDR": "10.96.7.1",
        "ENTRYPOINT_API_PORT_53_UDP": "udp://10.96.7.1:53",
    },
    **{"ENTRYPOINT_SSH_PORT": "tcp://10.96.7.2:22", "SSHD_PORT": "tcp://10.96.7.3:22"},
}


def test_variables_of_kubernetes_services_are_no_settings() -> None:
    made = job(None, SERVICES)
    assert (made.ssh.port, made.source("ssh.port")) == (36666, Source("default"))
    assert spec.load(None, "", {**SERVICES, "ENTRYPOINT_SSH_PORT": "22"}, {}).ssh.port == 22


@pytest.mark.parametrize(
    "name", ["ENTRYPOINT_PORT", "ENTRYPOINT_API_PORT_8080", "ENTRYPOINT_SERVICE_NAME"]
)
def test_what_has_not_their_form_is_a_mistake_still(name: str) -> None:
    with pytest.raises(SpecError, match="EP102 no such setting"):
        job(None, {name: "8080"})


@pytest.mark.parametrize("path", ["run_dir", "log_dir", "workdir", "secret_file", "mpi.hostfile"])
def test_a_path_has_one_spelling(path: str) -> None:
    """Names are put after it: `-state.json`, `/rank.env`."""
    for text in ("/x/run", "/x/run/", "//x//run", "/x/./run//"):
        made = job(None, {f"ENTRYPOINT_{path.upper().replace('.', '_')}": text})
        assert operator.attrgetter(path)(made) == "/x/run"


def test_variables_for_the_job_are_laid_over_each_other() -> None:
    result = job(
        "env:\n  A: spec\n  B: spec\n  C: spec\n",
        {"ENTRYPOINT_ENV": '{"B": "env", "C": "env", "D": "\\ud83d\\ude00"}'},
        env=Override(["C=flag=1", "E="], "--env"),
    )
    assert result.env == {"A": "spec", "B": "env", "C": "flag=1", "D": "😀", "E": ""}
    assert {name: str(result.source(f"env.{name}")) for name in result.env} == {
        "A": "spec job.yaml:2:6",
        "B": "env ENTRYPOINT_ENV",
        "C": "flag --env",
        "D": "env ENTRYPOINT_ENV",
        "E": "flag --env",
    }


WRITTEN = """\
name: 5
nodes: 2:4
slots: 08
command: [prog, 5, on, 1.10]
torch: {extra_args: [2.10]}
timeouts: {grace: 1e1, peers: "60"}
env: {A: no, B: 8, C: 1.10, D: 22:22, E: 0755, F: 2024-01-01, G: "null", H: ~/data}
"""


def test_a_value_means_what_is_written() -> None:
    result = job(WRITTEN, {"ENTRYPOINT_ENV": '{"I": 1.50, "J": true, "K": 8}'})
    expected = ("5", "2:4", 8, ("2.10",))
    assert (result.name, result.nodes, result.slots, result.torch.extra_args) == expected
    assert result.command == ("prog", "5", "on", "1.10")
    assert (result.timeouts.grace, result.timeouts.peers) == (10, 60)
    file = {
        "A": "no",
        "B": "8",
        "C": "1.10",
        "D": "22:22",
        "E": "0755",
        "F": "2024-01-01",
        "G": "null",
        "H": "~/data",
    }
    assert result.env == {**file, "I": "1.50", "J": "true", "K": "8"}
    apis.validator(schema()).validate(
        {
            "env": {"A": False, "B": 8, "C": 1.1},
            "torch": {"extra_args": [2.1]},
            "command": ["prog", 5, True],
        }
    )


def test_no_file_at_all_is_a_job() -> None:
    result = job(command=Override(["python", "train.py", "--lr", "1.0"], "--"))
    assert result.command == ("python", "train.py", "--lr", "1.0")
    assert str(result.source("command")) == "flag --"
    assert result.name == "job"


SECRET_TEXT = secrets.token_hex(8)


@pytest.mark.parametrize(
    ("text", "env", "flag", "secret", "file"),
    [
        (None, {"ENTRYPOINT_SECRET": SECRET_TEXT}, None, SECRET_TEXT, None),
        (None, {"ENTRYPOINT_SECRET": ""}, None, None, None),
        ("secret_file: s", {}, None, None, "s"),
        ("secret_file: s", {"ENTRYPOINT_SECRET": SECRET_TEXT}, None, SECRET_TEXT, None),
        ("secret_file: s", {"ENTRYPOINT_SECRET": SECRET_TEXT}, "f", None, "f"),
        (None, {"ENTRYPOINT_SECRET": "éàüöçñøå"}, None, "éàüöçñøå", None),
    ],
    ids=[
        "variable",
        "empty",
        "file",
        "variable over spec",
        "flag over variable",
        "bytes, not letters, count",
    ],
)
def test_one_secret_counts(
    text: str | None, env: dict[str, str], flag: str | None, secret: str | None, file: str | None
) -> None:
    result = job(text, env, **({"secret_file": Override(flag, "--secret-file")} if flag else {}))
    assert (result.secret.value if result.secret else None) == secret
    assert result.secret_file == file
    assert SECRET_TEXT not in f"{result!r} {result} {vars(result)} {result.secret!r}"


# --------------------------------------------------------------------------------------------------
# Values as text

TEXTS = {
    "name": ("resnet", "resnet"),
    "command": ("python 'a b' \"c\"", ("python", "a b", "c")),
    "launcher": ("torchrun", "torchrun"),
    "platform": ("modelarts", "modelarts"),
    "device": ("cpu", "cpu"),
    "env": ('{"A": "no"}', {"A": "no"}),
    "hosts": ("a, b:3=10.0.0.1\tc=fe80::1\nd=e.f", ("a", "b:3=10.0.0.1", "c=fe80::1", "d=e.f")),
    "run_dir": ("/run/x", "/run/x"),
    "pre_start": ("skip", "skip"),
    "roll_call": ("none", "none"),
    "prefix": ("job", "job"),
    "torch.rdzv_backend": ("c10d", "c10d"),
    "network.interface": ("ib", "ib"),
    "network.ports": ("21000-21999", "21000-21999"),
    "ssh.client": ("files", "files"),
    "ssh.compat": ("none", "none"),
    "torch.rank_args": ("always", "always"),
    "stall.action": ("stop", "stop"),
    "stall.line": ("step {step}/", "step {step}/"),
    "stall.stacks": ("signal", "signal"),
    "restarts.on": ("any", "any"),
    "failures.status": ("class", "class"),
    "netcheck.when": ("before", "before"),
    "netcheck.action": ("stop", "stop"),
    "logs.format": ("json", "json"),
    "logs.level": ("warning", "warning"),
    "logs.timestamps": ("utc", "utc"),
    "logs.files": ("ranks", "ranks"),
    "logs.max_size": (" 4096 ", 4096),
    "tensorflow.chief": ("worker-0", "worker-0"),
    "metrics.address": ("::1", "::1"),
    "nodes": ("2:4", "2:4"),
    "ray.port": ("7000", 7000),
    "ray.dashboard": ("local", "local"),
    "ray.extra_args": ('["--a", "b c"]', ("--a", "b c")),
    "ascend.rank_table": ("none", "none"),
    "gate.cards": ("always", "always"),
    "torch.extra_args": ('["--a", "b c"]', ("--a", "b c")),
    "accelerate.extra_args": ("[--use_fsdp]", ("--use_fsdp",)),
    "deepspeed.extra_args": ("[--quiet]", ("--quiet",)),
    "mindspore.extra_args": ("[--bind_core=True]", ("--bind_core=True",)),
}
OTHERS = {
    "text": ("some text, as is ", "some text, as is "),
    "integer": (" 7 ", 7),
    "number": ("2.5", 2.5),
}


@pytest.mark.parametrize("field", fields(), ids=lambda field: str(field.path))
def test_every_field_has_its_variables(field: spec.FieldInfo) -> None:
    text, value = TEXTS.get(field.path, OTHERS.get(field.kind, ("", None)))
    assert field.env == "ENTRYPOINT_" + field.path.upper().replace(".", "_")
    for variable in (field.env, *field.aliases):
        env = {variable: text}
        if field.path in ("ssh.client_key", "ssh.host_key"):
            env = {"ENTRYPOINT_SSH_CLIENT_KEY": text, "ENTRYPOINT_SSH_HOST_KEY": text}
        if field.path in ("restarts.progress", "restarts.minutes"):
            env |= {"ENTRYPOINT_RESTARTS_WITHOUT_PROGRESS": "3"}
        result = job(None, env)
        assert at(result, field.path) == value
        assert result.source(field.path) == Source("env", variable)
    assert field.description
    assert field.default == at(JobSpec(), field.path)


def test_variables_are_all_different() -> None:
    names = [name for field in fields() for name in (field.env, *field.aliases, *field.flags)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("python train.py", ("python", "train.py")),
        ('["python", "a \\ud83d\\ude00"]', ("python", "a 😀")),
        ("[python, 'a b', \"5\"]", ("python", "a b", "5")),
        ("[]", ()),
        ("sh -c 'exit 3'", ("sh", "-c", "exit 3")),
    ],
)
def test_a_command_as_text(text: str, command: tuple[str, ...]) -> None:
    assert job(None, {"ENTRYPOINT_COMMAND": text}).command == command


def test_every_byte_of_a_value_survives() -> None:
    value = 'a \'b\' "c" $HOME; `d`\n\t= {"e": 1} é =' + "x" * 100_000
    text = yaml.safe_dump({"env": {"A": value}, "command": [value]})
    assert job(text).env["A"] == value
    assert job(text).command == (value,)
    assert job(None, {"ENTRYPOINT_ENV": json.dumps({"A": value})}).env["A"] == value
    assert job(None, {"ENTRYPOINT_COMMAND": json.dumps([value])}).command == (value,)
    assert job(env=Override([f"A={value}"], "--env")).env["A"] == value


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("worker-0", None),
        ("worker_0.job.svc", None),
        ("10.0.0.1", None),
        ("a" * 63 + "." + "b" * 63, None),
        ("a" * 64, "a label of it has 64 characters, DNS allows 63"),
        (".".join(["a" * 50] * 4 + ["a" * 49]), None),
        (".".join(["a" * 50] * 5), "the name has 254 characters, DNS allows 253"),
        ("", "the name is empty"),
        ("a..b", "a part between dots is empty"),
        ("-a", "a label of it begins or ends with `-`"),
        ("a.b-", "a label of it begins or ends with `-`"),
        ("a b", 'it holds " "; letters, digits, `-`, `_` and `.` are allowed'),
        ("wörker", 'it holds "ö"; letters, digits, `-`, `_` and `.` are allowed'),
        ("a\n", 'it holds "\\n"; letters, digits, `-`, `_` and `.` are allowed'),
        *(
            (name, "it is a number, which resolvers take for an address")
            for name in (
                "100",
                "007",
                "3000000000",
                "1.2",
                "0x7f",
                "0x7f.1",
                "010.0.0.1",
                "1.2.3.4.5",
            )
        ),
        ("0a", None),
        ("1-2", None),
        ("1.2.3.a", None),
        ("0xg", None),
    ],
)
def test_host_names(name: str, wrong: str | None) -> None:
    assert check_host(name) == wrong


# --------------------------------------------------------------------------------------------------
# The rest of the promise


def test_a_spec_is_frozen() -> None:
    result = job("slots: 2")
    with pytest.raises(AttributeError):
        result.slots = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        result.ssh.port = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        result._sources["slots"] = Source("default")  # type: ignore[index]


EXAMPLES = sorted((ROOT / "examples/spec").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.name))
def test_the_examples_are_right_and_the_schema_says_so(path: Path) -> None:
    text = path.read_text()
    load(text, path.name, {}, {})
    apis.validator(schema()).validate(yaml.safe_load(text))


def test_the_full_example_sets_every_field() -> None:
    result = load((ROOT / "examples/spec/full.yaml").read_text(), "full.yaml", {}, {})
    assert [field.path for field in fields() if result.source(field.path).origin != "spec"] == []


@pytest.mark.parametrize(
    "document",
    [
        {"slotz": 1},
        {"ssh": {"prot": 1}},
        {"secret": "x"},
        {"slots": "1"},
        {"slots": 0},
        {"launcher": "mpirum"},
        {"env": {"1A": "x"}},
        {"env": {"A": None}},
        {"env": {"A": [1]}},
        {"command": "python"},
    ],
)
def test_the_schema_refuses(document: object) -> None:
    assert not apis.validator(schema()).is_valid(document)


def test_the_schema_is_one_an_editor_can_use() -> None:
    result = schema()
    apis.validator(result).check_schema(result)
    assert result["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert result["title"] == "entrypoint job spec"
    assert result["properties"]["name"]["default"] == "job"
    assert result["properties"]["slots"]["description"].startswith("Processes (ranks) on each node")
    assert result["properties"]["launcher"]["anyOf"][0]["enum"] == split(
        "mpirun plain torchlaunch torchrun"
    )
    assert result["properties"]["restarts"]["default"]["most"] == 0
    assert '"x-' not in json.dumps(result, allow_nan=False)


KEYS = st.sampled_from([*vars(JobSpec()), "port", "np", "secret", "x", "a b", "1"])
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["a", "no"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.one_of(
    st.text(),
    st.binary().map(lambda data: data.decode(errors="surrogateescape")),
    st.dictionaries(KEYS, VALUES).map(
        lambda document: yaml.safe_dump(document, allow_unicode=True)
    ),
    st.dictionaries(KEYS, VALUES).map(json.dumps),
)
VARIABLES = st.dictionaries(
    st.sampled_from([field.env for field in fields()]), st.one_of(st.text(), VALUES.map(str))
)


@given(DOCUMENTS, VARIABLES, st.lists(st.text()))
@example(
    "", {"ENTRYPOINT_SLOTS": "4\x1f", "ENTRYPOINT_TIMEOUTS_GRACE": "\x1c.5"}, []
)  # white space, but not to int()
def test_nothing_but_a_spec_error_comes_out(
    text: str, env: dict[str, str], words: list[str]
) -> None:
    flags = {"command": Override(words, "--"), "env": Override(words, "--env")}
    lines = ["fine"]
    try:
        load(text, "job.yaml", env, flags)
    except SpecError as error:
        lines = error.lines()
    assert lines
    assert all(line and "\n" not in line for line in lines)
