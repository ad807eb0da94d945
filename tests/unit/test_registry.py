"""The registry: a folder's listing is the list of adapters; a name wins, else exactly one must
match."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint import platforms, spec
from entrypoint.base import registry
from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.model import Facts
from entrypoint.tools import deploy
from tests.unit.cases import ROOT

PACKAGE = Path(platforms.__file__).parents[1]
DEPLOY = Path(deploy.__file__).parent
PROMISES = {"platforms": "read", "devices": "device", "launchers": "plan", "deploy": "render"}
ADAPTER = """
def matches(facts):
    return "{mark}" in facts.env
"""


def facts(**env: str) -> Facts:
    return Facts(env=env, hostname="h", cwd="/", uid=1000, user="u", home="/home/u")


@pytest.fixture
def more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules are platforms too."""
    monkeypatch.setattr(platforms, "__path__", [*platforms.__path__, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("entrypoint.platforms."):
            delattr(platforms, name.rpartition(".")[2])
            del sys.modules[name]


@pytest.mark.parametrize("kind", PROMISES)
def test_names_are_the_folder(kind: str) -> None:
    files = [
        path.stem
        for path in {"deploy": DEPLOY}.get(kind, PACKAGE / kind).glob("*.py")
        if not path.stem.startswith("_")
    ]
    rows = platforms.rows() if kind == "platforms" else ()
    assert registry.names(kind) == sorted([*files, *rows])
    assert files


@pytest.mark.parametrize("kind", PROMISES)
def test_every_adapter_keeps_its_promise(kind: str) -> None:
    for name in registry.names(kind):
        module = registry.load(kind, name)
        if kind == "platforms" and name in platforms.rows():
            assert module.HOSTS, name
        else:
            assert callable(getattr(module, PROMISES[kind], None)), f"{kind}/{name}"


@pytest.mark.parametrize("kind", PROMISES)
def test_every_adapter_has_cases(kind: str) -> None:
    assert sorted(
        {case.parent.name for case in (ROOT / kind).glob("*/*") if any(case.iterdir())}
    ) == registry.names(kind)


def test_an_adapter_is_one_file_more(more: Path) -> None:
    before = registry.names("platforms")
    (more / "zeta.py").write_text(ADAPTER.format(mark="ZETA"))
    (more / "_shared.py").write_text("")
    assert registry.names("platforms") == [*before, "zeta"]
    found = registry.choose("platforms", None, facts(ZETA="1"), "local")
    assert found.__name__ == "entrypoint.platforms.zeta"
    both = facts(ZETA="1", MA_NUM_HOSTS="1")
    with pytest.raises(ConfigError, match=r"EP200 .* \| modelarts, zeta \| set platform"):
        registry.choose("platforms", None, both, "local")
    found = registry.choose("platforms", "zeta", both, "local")
    assert found.__name__ == "entrypoint.platforms.zeta"


@pytest.mark.parametrize(
    ("text", "env", "found"),
    [
        ('MARKS = ("ZETA",)\n', {"ZETA": "1"}, "zeta"),
        ('MARKS = ("ZETA",)\n', {"ZETA": ""}, "local"),
        ('MARKS = ("ZETA",)\ndef matches(facts): return False\n', {"ZETA": "1"}, "local"),
        ("def matches(facts): return True\n", {}, "zeta"),
    ],
)
def test_a_platform_that_no_index_names_is_recognised_by_its_own_marks(
    more: Path, text: str, env: dict[str, str], found: str
) -> None:
    (more / "zeta.py").write_text(text)
    chosen = registry.choose("platforms", None, facts(**env), "local")
    assert chosen.__name__ == f"entrypoint.platforms.{found}"


def test_all_that_is_known_of_a_platform_is_in_its_module() -> None:
    """No other module of the core names one, but `local`, which needs nothing."""
    known = set(registry.names("platforms")) - {"local", *registry.names("deploy")}
    tiers = {"features", "tools", "cli", "platforms"}
    named = [
        f"{file.relative_to(PACKAGE)}: {node.value}"
        for file in [PACKAGE / "platforms/__init__.py", *PACKAGE.rglob("*.py")]
        if file.name == "__init__.py" or file.relative_to(PACKAGE).parts[0] not in tiers
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value in known
    ]
    assert named == []


@pytest.mark.control("a new platform is one file and one folder of cases")
@pytest.mark.parametrize("kind", ["device", "platform", "launcher"])
def test_no_such_adapter(kind: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"EP117 no such {kind}: abacus \| use one of "
    ) as caught:
        registry.load(f"{kind}s", "abacus")
    assert caught.value.status == 78


@pytest.mark.parametrize("name", ["_torch", "__init__", "../cli", "local.x", ""])
def test_only_what_is_listed_is_loaded(name: str) -> None:
    with pytest.raises(ConfigError):
        registry.load("launchers", name)


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("device: gpu", "nvidia"),
        ("device: npu", "ascend"),
        ("launcher: pytorch-ddp", "torchrun"),
        ("launcher: horovod", "mpirun"),
        ("launcher: mindspore", "msrun"),
        ("launcher: torchrn", "torchrun"),
    ],
)
def test_what_else_people_call_an_adapter(setting: str, meant: str) -> None:
    with pytest.raises(SpecError, match=f"did you mean `{meant}`"):
        spec.load(setting, "job.yaml", {}, {})
