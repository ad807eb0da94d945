"""The table of settings, and which settings of a job may be written into a script. What each
annotation of the model becomes is in docs/reference/spec.md, which test_golden.py holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from entrypoint.base import registry
from entrypoint.spec import Override, for_launcher, load, settings_in
from entrypoint.spec.items import Item, Place, ProblemList
from entrypoint.spec.rules import adapter, checked, nearest
from entrypoint.spec.table import carried, fields, for_script, given

ROOT = Path(__file__).resolve().parents[2]


def test_a_field_that_names_an_adapter_takes_its_name_alone() -> None:
    rule = adapter("launchers")
    assert rule.text == "name of a launcher"
    assert rule.check
    assert rule.check("mpirun") is None
    assert rule.check("openmpi") == ("there is no such launcher", "did you mean `mpirun`?")
    names = ", ".join(registry.names("launchers"))
    assert rule.check("xyz") == ("there is no such launcher", f"use one of {names}")


@pytest.mark.parametrize(
    ("name", "text", "value"), [("A", "x", {"A": "x"}), ("A", None, None), ("1A", "x", None)]
)
def test_a_mapping_with_a_wrong_entry_has_no_value(
    name: str, text: str | None, value: dict[str, str] | None
) -> None:
    env = next(field for field in fields() if field.path == "env")
    report, place = ProblemList(), Place(0, 1, 1, "job.yaml:1:1")
    assert checked(env, Item({name: Item(text, place)}, place), report) == value
    assert bool(report) == (value is None)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tor", "torch_port"),  # the only one that begins so, although it is much longer
        ("ssh", None),  # two begin so
        ("slotz", "slots"),
        ("t", None),
    ],
)
def test_a_beginning_stands_for_a_name_if_it_is_the_only_one(text: str, meant: str | None) -> None:
    assert nearest(text, ["ssh_host_key", "ssh_known_hosts", "torch_port", "slots"]) == meant


def test_only_set_variables_that_describe_a_job_are_settings() -> None:
    env = {
        "ENTRYPOINT_HOSTS": "a b",
        "ENTRYPOINT_NAME": "",
        "ENTRYPOINT_CACHE": "/cache",
        "ENTRYPOINT_API_SERVICE_HOST": "10.96.7.1",  # Kubernetes sets it for a Service
        "OTHER": "x",
    }
    assert settings_in(env) == {"ENTRYPOINT_HOSTS"}


SPEC = "name: a\nhosts: [a, b]\nenv: {WRITTEN_TOKEN: t}\n"
TOKENS = Override(["MODE=fast", "HF_TOKEN=hf_0123"], "--env")


@pytest.mark.parametrize(
    ("text", "env", "flags", "expected", "kept"),
    [
        (SPEC, {}, {}, {"ENTRYPOINT_SPEC": "jobs/a:1.yaml"}, []),
        (None, {"ENTRYPOINT_SPARES": "2"}, {}, {"ENTRYPOINT_SPARES": "2"}, []),
        (None, {"ENTRYPOINT_NODE_RANK": "0"}, {}, {}, []),
        (None, {"MASTER_PORT": "2000"}, {}, {"MASTER_PORT": "2000"}, []),
        (None, {}, {"env": TOKENS}, {"ENTRYPOINT_ENV": '{"MODE": "fast"}'}, ["HF_TOKEN"]),
        (None, {}, {"env": Override(["HF_TOKEN=hf_0123"], "--env")}, {}, ["HF_TOKEN"]),
        # the spec's own secrets are in its file
        (SPEC, {}, {"env": TOKENS}, {"ENTRYPOINT_SPEC": "jobs/a:1.yaml", "ENTRYPOINT_ENV": '{"MODE": "fast"}'}, ["HF_TOKEN"]),
    ],
)  # fmt: skip
def test_a_container_gets_the_settings_but_for_secrets_and_this_node_s_index(
    text: str | None,
    env: dict[str, str],
    flags: dict[str, Any],
    expected: dict[str, str],
    kept: list[str],
) -> None:
    spec = load(text, "jobs/a:1.yaml", env, flags)
    assert given(spec) == (expected, kept)


WHOLE = """
name: demo
launcher: mpirun
hosts: [a, "b:2"]
node_rank: 1
command: [python, train.py]
workdir: /work
env: {MODE: fast, HF_TOKEN: hf_0123, UID: "5"}
ssh: {port: 2022}
launcher_args: [--display-map]
timeouts: {peers: 60}
"""


@pytest.mark.promise("a rendered script carries what the spec says, but for secrets")
def test_a_script_carries_what_the_spec_says() -> None:
    """As the content of a spec file, over which variables win; what is one node's is not in it."""
    spec = load(WHOLE, "jobs/a.yaml", {"MY_MPI_SLOTS": "4"}, {})
    env = {"MODE": "fast", "UID": "5"}
    command = ("python", "train.py")
    assert for_script(spec) == (
        {
            "command": command, "env": env, "name": "demo", "workdir": "/work",
            "hosts": ("a", "b:2"), "slots": 4, "ssh": {"port": 2022},
            "launcher_args": ("--display-map",), "timeouts": {"peers": 60.0},
        },
        [],
    )  # fmt: skip
    assert carried(spec) == {"env": env, "workdir": "/work", "command": command}


def test_run_mpi_sh_has_no_settings_of_other_launchers() -> None:
    """`nodes` would even be refused when the script is started."""
    text = (ROOT / "examples/spec/full.yaml").read_text()
    spec = load(f"{text}\njax: {{port: 1}}\n", "full.yaml", {}, {})
    content = for_script(for_launcher(spec, "mpirun"))[0]
    assert {"mpi", "ssh", "stall", "restarts"} <= set(content)
    # Those of the spec's own launcher, too: it has torchrun.
    others = {"launcher_args", "port", "nodes", "torch", "ascend", "jax", "ray", "tensorflow"}
    assert not others & set(content)


@pytest.mark.control("a rendered script carries what the spec says, but for secrets")
def test_a_script_carries_no_secret() -> None:
    text = "command: [train.py, --api-key, hf_0123]\nmpi: {x_args: -x API_TOKEN=abcdef}"
    spec = load(text, "jobs/a.yaml", {}, {})
    assert for_script(spec) == ({}, ["mpi.x_args"])
    assert for_script(for_launcher(spec, "mpirun")) == ({}, ["env.OPENMPI_X_ARGS"])
    assert carried(spec)["command"] == ()
