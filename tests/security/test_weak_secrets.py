"""Which secrets are taken, and that none of those our own documents, examples and tests show is one
of them."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from shlex import split

import pytest

from entrypoint.base.errors import ConfigError, NoInputError, SpecError
from entrypoint.base.model import Device, Node, Topology
from entrypoint.base.secret import is_secret, masked, masked_words, scrubbed, weakness
from entrypoint.spec import Override, load
from entrypoint.system import keys
from tests import TREE
from tests.security.door import located

WEAK = [
    "",
    "fifteen-bytes..",
    "s" * 40,
    "abab" * 10,
    *split(
        "0123456789abcdef 0123456789abcdef0123456789abcdef loopback-tests-0123456789abcdef another-secret-0123456789 changeme-changeme-changeme your-secret-password-here MySecretPassword1234567890 password123456789012345"
    ),
]


def _by_variable(secret: str) -> str:
    with pytest.raises(SpecError) as caught:
        load(None, "", {"ENTRYPOINT_SECRET": secret}, {})
    return str(caught.value)


def _by_file(secret: str, folder: Path) -> keys.Keys:
    (folder / "secret").write_text(f"{secret}\n")
    file = Override(f"{folder}/secret", "--secret-file")
    spec = load("hosts: [a, b]\nnode_rank: 0", "j", {}, {"secret_file": file})
    return keys.load(spec, located(spec)[1])


@pytest.mark.parametrize("secret", WEAK)
def test_weak_secrets_are_refused(secret: str, tmp_path: Path) -> None:
    """A weak secret (under 16 bytes, few different bytes, a sample) is refused, given either way,
    and not shown."""
    said = [_by_variable(secret)] if secret else []
    with pytest.raises(ConfigError) as caught:
        _by_file(secret, tmp_path)
    said.append(str(caught.value))
    for message in said:
        assert (
            "EP301 a secret has at least 16 bytes" in message
            or "EP301 this secret can be guessed" in message
        )
        assert "openssl rand -hex 32" in message
        assert not secret or secret not in message


def test_good_secrets_are_taken(tmp_path: Path) -> None:
    """Control: what openssl, uuidgen, pwgen or a person with dice make is taken."""
    for _ in range(200):
        for good in (
            secrets.token_hex(32),
            secrets.token_hex(16),
            secrets.token_urlsafe(24),
            secrets.token_hex(8),
        ):
            assert weakness(good.encode()) is None, good
    assert weakness(b"correct horse battery staple") is None
    assert weakness(secrets.token_bytes(32)) is None
    assert _by_file(secrets.token_hex(32), tmp_path).known_hosts


# A value that somebody might copy: ENTRYPOINT_SECRET=..., ENTRYPOINT_SECRET: "...", SECRET = "..."
# in a test.
SHOWN = re.compile(
    r"""(?<!\w)(?:ENTRYPOINT_)?SECRET["']?\s*[=:]\s*["']?([A-Za-z0-9+/_.-]{16,})["'\s]"""
)


def _shown(text: str) -> list[str]:
    return [value for value in SHOWN.findall(text) if not value.startswith("secrets.token_")]


def test_no_secret_that_we_show_works() -> None:
    """No secret that our documents, examples, templates or tests show is taken by the toolkit."""
    files = [TREE / "README.md", TREE / "CONTRIBUTING.md", TREE / "CHANGELOG.md"]
    for folder in ("docs", "examples", "templates", "tests", "scripts"):
        files += [
            path for path in (TREE / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"
        ]
    found = [
        (path.name, value) for path in files for value in _shown(path.read_text(errors="replace"))
    ]
    assert [(name, value) for name, value in found if weakness(value.encode()) is None] == []
    # Control: the search does find one.
    good = secrets.token_hex(16)
    assert _shown(f'-e ENTRYPOINT_SECRET={good} \\\nSECRET = "{good}"\n') == [good] * 2


def test_a_secret_has_one_source() -> None:
    """ENTRYPOINT_SECRET and its twin ENTRYPOINT_SECRET_FILE, both set, are an error; one alone is
    not."""
    both = {
        "ENTRYPOINT_SECRET": secrets.token_hex(32),
        "ENTRYPOINT_SECRET_FILE": "/run/secrets/job",
    }
    with pytest.raises(
        SpecError, match="EP103 one secret is needed, ENTRYPOINT_SECRET_FILE is set too"
    ):
        load(None, "", both, {})
    for name in both:
        load(None, "", {name: both[name]}, {})


CREDENTIALS = (
    *split("S3_SECRET_ACCESS_KEY S3_ACCESS_KEY_ID AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_ANYTHING HF_TOKEN MY_PASSWORD DB_PASSWD DB_PWD WANDB_API_KEY OPENAI_KEY GH_PAT OBS_SK CI_JWT HTTP_AUTH SSHPASS CRED_A CREDENTIALS MY_CRED ENTRYPOINT_SECRET env.AWS_SECRET_ACCESS_KEY --api-key SSH_PASSPHRASE AZURE_ACCOUNT_KEY ssl_private_key"),
)  # fmt: skip
PLAIN = (
    *split("TOKENIZERS_PARALLELISM ssh.host_key public_key sort-key TASK MASK BYPASS_RATE slots KEYBOARD PWD OLDPWD NCCL_DEBUG CREDO PATH LAWS_OF_PHYSICS AWS_DEFAULT_REGION env.AWS_REGION AWS_BATCH_JOB_ID AWS_ENDPOINT_URL_S3 ENTRYPOINT_SECRET_FILE AWS_SHARED_CREDENTIALS_FILE GOOGLE_APPLICATION_CREDENTIALS HF_TOKEN_PATH --token-file MAX_NEW_TOKENS secret_file"),
)  # fmt: skip


def test_names_of_secrets() -> None:
    """Names with the platforms' credential prefixes and the common patterns count as secrets;
    others do not."""
    assert [name for name in CREDENTIALS if not is_secret(name)] == []
    assert [name for name in PLAIN if is_secret(name)] == []


def test_masked() -> None:
    """A printed command line loses the values of --password, --api-key=, NAME= of a secret and a
    URL's password."""
    words = [
        "python", "train.py", "--password", "v1", "--api-key=v2", "--lr", "0.1", "HF_TOKEN=v3 v3", "--token", "--quick",
        "https://me:v4@host/x", "--tokenizer", "bert", "sh -c 'export MY_SECRET=v5'", '{"password": "v6"}',
    ]  # fmt: skip
    assert masked_words(words) == [
        "python", "train.py", "--password", "(not shown)", "--api-key=(not shown)", "--lr", "0.1",
        "HF_TOKEN=(not shown)", "--token", "--quick", "https://me:(not shown)@host/x", "--tokenizer", "bert",
        "sh -c 'export MY_SECRET=(not shown)", '{"password": (not shown)',
    ]  # fmt: skip
    harmless = [
        "--token-file",
        "/x",
        "AWS_DEFAULT_REGION=eu-1",
        "sh -c 'AWS_REGION=eu-1 HF_TOKEN=v'",
    ]
    assert masked_words(harmless) == [*harmless[:-1], "sh -c 'AWS_REGION=eu-1 HF_TOKEN=(not shown)"]
    assert (
        masked("-x AWS_REGION=eu-1 -x HF_TOKEN=v") == "-x AWS_REGION=eu-1 -x HF_TOKEN=(not shown)"
    )
    assert (
        masked("-x HF_TOKEN=v -x NCCL_DEBUG=INFO -x A=http://u:v@h/")
        == "-x HF_TOKEN=(not shown) -x NCCL_DEBUG=INFO -x A=http://u:(not shown)@h/"
    )


def test_what_is_no_secret_stays_in_a_message() -> None:
    """A region, the path of a secret file, short and common words; and a secret is not."""
    env = {
        "AWS_DEFAULT_REGION": "node-example-1", "ENTRYPOINT_SECRET_FILE": "/run/secrets/job", "MY_PASSWORD": "training",
        "A_TOKEN": "short", "HF_TOKEN": "hf_0123456789",
    }  # fmt: skip
    text = "node-example-1: EP111 cannot read /run/secrets/job, training.py, short, hf_0123456789"
    assert (
        scrubbed(text, env)
        == "node-example-1: EP111 cannot read /run/secrets/job, training.py, short, (not shown)"
    )


def test_a_secret_given_for_its_file_is_not_shown() -> None:
    mistaken = secrets.token_hex(32)
    spec = load(None, "", {"ENTRYPOINT_SECRET_FILE": mistaken, "ENTRYPOINT_HOSTS": "a,b"}, {})
    node, device = (Node(0, "a", 1), Node(1, "b", 1)), Device("cpu", 0, "none")
    with pytest.raises(NoInputError) as caught:
        keys.load(spec, Topology("job", node, 0, "local", device, run_dir="/r", user="u"))
    assert mistaken not in str(caught.value)
