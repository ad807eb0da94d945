"""Hostile values are data everywhere: they arrive as they are, through real shells, mpirun and
sshd, or are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from entrypoint.base import registry
from entrypoint.base.errors import EntrypointError
from entrypoint.base.model import Device, Facts, Site
from entrypoint.plan import settle
from entrypoint.plan import topology as topologies
from entrypoint.spec import load
from entrypoint.spec.rules import plain_path
from tests import slurm
from tests.cluster import Make, clean_environment
from tests.security.door import located, needs_ssh

BOMB = "/tmp/entrypoint-was-injected"  # what each of these would make, were it ever run
NASTY = [
    f"$(touch {BOMB})", f"`touch {BOMB}`", f"; touch {BOMB}", f"| touch {BOMB}", f"& touch {BOMB} &",
    f"\ntouch {BOMB}\n", f"' ; touch {BOMB} ; '", f'" ; touch {BOMB} ; "', f"${{IFS}}touch{BOMB}",
    f"-oProxyCommand=touch {BOMB}", "--", "-x", "-", "{{ 7 * 7 }}", "{% raw %}", "{{ ''.__class__ }}", "${HOME}",
    "$HOME", "~", "*", "a b", " lead", "tail ", "", "\t", "'", '"', "\\", "\\'", "%h", "%%", "#no", "!!", "a=b=c",
    "é\u2028\U0001f600", "yes", "0x10", "[]", "{}", "&a", "*a", "!tag", "a: b", "- a", "\r\n", "EOF", "\x1b[31m",
    "\x7f", "$$", "$((1+1))", "<(id)", ">file", "\\n", "a\\", ":", "\\:",
]  # fmt: skip
hostile = st.one_of(
    st.sampled_from(NASTY),
    st.lists(st.sampled_from(NASTY), min_size=2, max_size=3).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
)
# times as many examples; `make test-release` asks for three
MANY = settings.default.max_examples // 100
SLOW = settings(max_examples=4 * MANY, suppress_health_check=list(HealthCheck))

# Prints what it was given: arguments, then the asked variables, each ended by NUL.
TELL = r"""for word; do printf '%s\0' "$word"; done; for name in $SHOWN; do eval "printf '%s\\0' \"\$$name\""; done"""


@pytest.fixture(autouse=True)
def no_bomb() -> Iterator[None]:
    Path(BOMB).unlink(missing_ok=True)
    yield
    assert not Path(BOMB).exists(), "a value was run"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ep-") as path:
        yield Path(path)


class _Quoted(str):
    """Text that YAML gets in double quotes: N without them is a boolean."""


yaml.SafeDumper.add_representer(
    _Quoted,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"'),
)


def job(words: list[str], values: list[str], **more: object) -> str:
    """A spec, as YAML: TELL with these words, and the values as variables V0, V1, ..."""
    env = {f"V{number}": value for number, value in enumerate(values)}
    env = {name: _Quoted(value) for name, value in {**env, "SHOWN": " ".join(env)}.items()}
    return yaml.safe_dump(
        {
            "command": [_Quoted(word) for word in ("sh", "-c", TELL, "tell", *words)],
            "env": env,
            **more,
        }
    )


def run(folder: Path, spec: str, *flags: str) -> list[str]:
    (folder / "job.yaml").write_text(spec, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "entrypoint", "run", "--spec", "job.yaml", *flags],
        cwd=folder, env=clean_environment(), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@given(words=st.lists(hostile, max_size=6), values=st.lists(hostile, max_size=6))
@example(words=NASTY, values=NASTY)
@SLOW
def test_a_program_gets_what_the_spec_says(
    folder: Path, words: list[str], values: list[str]
) -> None:
    """Arguments and variables of random hostile specs reach the program as they are (one program,
    no launcher)."""
    assert run(folder, job(words, values)) == words + values


@pytest.mark.skipif(not shutil.which("mpirun"), reason="not on this machine: mpirun")
@given(words=st.lists(hostile, max_size=6), values=st.lists(hostile, max_size=6))
@example(words=NASTY, values=NASTY)
@settings(SLOW, max_examples=2 * MANY)
def test_a_rank_gets_what_the_spec_says(folder: Path, words: list[str], values: list[str]) -> None:
    """The same through mpirun: run_mpi.sh, its shell, the rank's wrapper."""
    out = run(folder, job(words, values, launcher="mpirun", slots=1, run_dir=f"{folder}/run"))
    assert out == words + values


@needs_ssh
@pytest.mark.skipif(not shutil.which("mpirun"), reason="not on this machine: mpirun")
def test_a_rank_of_another_node_gets_what_the_spec_says(cluster: Make) -> None:
    """The same on two nodes through ssh: every rank has every hostile value of worker-0's spec."""
    both = cluster(2, 2)
    # worker-1 has the values from worker-0
    for file, values in (("job.yaml", NASTY), ("other.yaml", [])):
        spec = yaml.safe_load(job(NASTY, values))
        spec["command"][2] = f'{{ {TELL}; }} >"$FOLDER/told-$OMPI_COMM_WORLD_RANK"'
        (both.folder / file).write_text(yaml.safe_dump(spec), encoding="utf-8")
    for rank, file in ((1, "other.yaml"), (0, "job.yaml")):
        argv = (sys.executable, "-m", "entrypoint", "run", "--launcher", "mpirun", "--spec", file)
        both.start(rank, argv=argv, env={"FOLDER": str(both.folder)})
    assert both.ends() == {0: 0, 1: 0}, both.both()
    told = [
        (both.folder / f"told-{rank}").read_bytes().decode().split("\0")[:-1] for rank in range(4)
    ]
    assert told == [NASTY + NASTY] * 4


@given(words=st.lists(hostile, min_size=1, max_size=6), value=hostile)
@settings(SLOW, max_examples=2 * MANY)
def test_a_rendered_script_says_again_what_was_given(
    folder: Path, words: list[str], value: str
) -> None:
    """`render` with hostile settings: bash hands each on to `entrypoint run` as it was given."""
    fake = folder / "bin/entrypoint"
    fake.parent.mkdir(exist_ok=True)
    fake.write_text(
        f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([sys.argv[1:],"
        " dict(os.environ)]))\n"
    )
    fake.chmod(0o755)
    # argparse takes a value of -- away, and then refuses the flag
    directory = value not in ("", "--")
    flags = ["--env", f"V={value}", "--slots", "2", *([f"--workdir={value}"] if directory else [])]
    subprocess.run(
        [sys.executable, "-m", "entrypoint", "render", "--out", str(folder / "out"), *flags],
        cwd=folder, env=clean_environment(), check=True, capture_output=True,
    )  # fmt: skip
    script = folder / "out/run_mpi.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    done = subprocess.run(
        ["bash", str(script), *words],
        env={"PATH": f"{fake.parent}:/usr/bin:/bin"},
        check=True,
        capture_output=True,
    )
    argv, env = json.loads(done.stdout)
    assert argv[:4] == ["run", "--launcher", "mpirun", "--spec"]
    assert argv[5:] == ["--", *words]
    assert "V" not in env
    spec = load(argv[4], "a test", {}, {})
    assert (spec.env, spec.slots) == ({"V": value}, 2)
    # a relative path starts at the folder that `render` was started in
    places = (
        [value]
        if value.startswith("/")
        else [plain_path(f"{folder}/{value}"), f"{folder}/./{value}"]
    )
    assert spec.workdir in (places if directory else [None])


# of targets, beside an image
NEEDS = {"modelarts": ["--flavor", "f"], "slurm": ["--runtime", "apptainer"]}


@given(words=st.lists(hostile.filter(str.isprintable), min_size=1, max_size=6))
@example(words=[word for word in NASTY if word.isprintable()])
@settings(SLOW, max_examples=2 * MANY)
@pytest.mark.parametrize("target", registry.names("deploy"))
def test_a_deployed_file_says_what_was_given(folder: Path, target: str, words: list[str]) -> None:
    """`deploy` with a hostile command: what reads the file has each word as it was given."""
    (folder / "job.yaml").write_text("name: job\nhosts: [job-0, job-1]\n")
    done = subprocess.run(
        [
            sys.executable, "-m", "entrypoint", "deploy", target, "--spec", "job.yaml", "--image", "i",
            *NEEDS.get(target, []), "--out", "made.yaml", "--", "prog", *words,
        ],
        cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made, found = (folder / "made.yaml").read_text(encoding="utf-8"), []
    if target == "slurm":
        (folder / "secret").touch()
        assert slurm.told(made)[0][-len(words) - 1 :] == ["prog", *words]
        return
    documents = list(yaml.safe_load_all(made))
    if target == "modelarts":
        documents = [json.loads(documents[0]["algorithm"]["environments"]["ENTRYPOINT_COMMAND"])]

    def look(value: object) -> None:
        if isinstance(value, list):
            texts = [text.replace("$$", "$") if isinstance(text, str) else text for text in value]
            found.append(texts[-len(words) - 1 :])
            found.append(value[-len(words) - 1 :])
        for child in (
            value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        ):
            look(child)

    look(documents)
    expected = ["prog", *words]
    doubled = [word.replace("$$", "$") for word in expected]
    assert expected in found or doubled in found


# --------------------------------------------------------------------------------------------------
# Names that go where words can be options: no quoting helps there, so they are refused


HOSTILE_NAMES = [word for word in NASTY if word not in ("", "yes", "0x10", "EOF")]
HOSTILE_NAMES += ["-a", "a-", "a..b", "a/b", "a:b", "a,b"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_host_name_is_refused(name: str) -> None:
    """A host or address with a leading dash, -oProxyCommand=, quotes, $(), a line end or {{ }} is
    refused."""
    facts = Facts(env={}, hostname="a", cwd="/", uid=1000, user="u", home="/home/u")
    device = Device("cpu", 0, "")
    for host in (name, f"worker={name}"):
        with pytest.raises(EntrypointError):
            load(yaml.safe_dump({"hosts": ["a", host], "node_rank": 0}), "j", {}, {})
    with pytest.raises(EntrypointError):
        topologies.build(
            load("node_rank: 0", "j", {}, {}),
            facts,
            Site("any", hosts=("a", name), index=0),
            device,
        )
    if name not in ("a,b",):
        with pytest.raises(EntrypointError):
            load(yaml.safe_dump({"name": name}), "j", {}, {})


@given(value=hostile)
@settings(max_examples=40 * MANY)
def test_a_run_directory_is_a_plain_path_or_refused(value: str) -> None:
    """Whatever the run directory is called, the ssh files either name it as it is, or it is
    refused."""
    job = "hosts: [a, b]\nnode_rank: 0\ncommand: [c]\nlauncher: mpirun\nssh: {client: files}\n"
    try:
        spec = load(job + yaml.safe_dump({"run_dir": f"/tmp/{value}"}), "j", {}, {})
        facts, topology = located(spec, mpi="4.1.4")
        files = settle(spec, facts, topology).files
    except EntrypointError:
        return
    config = next(file.text for file in files if file.name == "ssh_config")
    if not shutil.which("ssh"):
        pytest.skip("not on this machine: ssh")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".conf") as file:
        file.write(config)
        file.flush()
        done = subprocess.run(["ssh", "-G", "-F", file.name, "a"], capture_output=True, check=False)
    seen = dict(
        line.split(" ", 1)
        for line in done.stdout.decode("utf-8", "replace").splitlines()
        if " " in line
    )
    assert done.returncode == 0, done.stderr
    assert seen["identityfile"].strip('"') == f"{topology.run_dir}/client_key"
    assert "proxycommand" not in seen
    assert not any(sign in topology.run_dir for sign in "$%\"'\\ \t\n")
