"""Who is recognised where the variables of several platforms are there at once."""

from __future__ import annotations

import pytest

from entrypoint import platforms
from entrypoint.base import registry
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Facts
from tests import table

TABLE = table("tests/tables/detection.yaml")

# A container of each platform, by the least that tells it.
ALONE = TABLE["alone"]
# What is of a higher layer may carry what is in an earlier one.
ORDER = [
    ("skypilot", "slurm"), ("skypilot", "kubernetes"), ("dstack", "kubernetes"), ("modelarts", "volcano"),
    ("azureml", "volcano"), ("sagemaker", "tfjob"), ("vertex", "tfjob"), ("mpijob", "kubernetes"),
    ("trainer", "kubernetes"), ("pytorchjob", "kubernetes"), ("tfjob", "volcano"), ("volcano", "kubernetes"),
    ("slurm", "kubernetes"),
]  # fmt: skip


def facts(*names: str, **more: str) -> Facts:
    env = {name: value for each in names for name, value in ALONE[each].items()} | more
    return Facts(env=env, hostname="j-0", cwd="/", uid=1000, user="u", home="/home/u")


def chosen(given: Facts) -> str:
    return registry.choose("platforms", None, given, "local").__name__.rpartition(".")[2]


def test_every_platform_has_marks_or_is_told_apart() -> None:
    """Every platform is in the table of marks, but `local`"""
    marked = [name for layer in platforms.MARKS.values() for name in layer]
    assert sorted([*marked, "local"]) == registry.names("platforms")
    assert len(marked) == len(set(marked))


@pytest.mark.control("a platform is recognised by its variables; an ambiguous one is an error")
@pytest.mark.parametrize("name", ALONE)
def test_empty_variables(name: str) -> None:
    """Variables that are empty recognise nobody"""
    assert chosen(facts(**dict.fromkeys(ALONE[name], ""))) == "local"


@pytest.mark.promise("a platform is recognised by its variables; an ambiguous one is an error")
@pytest.mark.parametrize(("above", "below"), ORDER, ids="-on-".join)
def test_the_one_above_wins(above: str, below: str) -> None:
    """A platform wins over the one that carries it"""
    assert chosen(facts(above, below)) == above


@pytest.mark.promise("a platform is recognised by its variables; an ambiguous one is an error")
@pytest.mark.parametrize(
    ("one", "other"), [("modelarts", "skypilot"), ("dstack", "sagemaker"), ("azureml", "vertex")]
)
def test_two_of_one_line(one: str, other: str) -> None:
    """Two that nobody can tell apart are an error that names both and the setting"""
    with pytest.raises(ConfigError) as caught:
        chosen(facts(one, other))
    said = f"EP200 more than one platform matches this container | {one}, {other}"
    assert str(caught.value) == f"{said} | set platform: in the spec, or ENTRYPOINT_PLATFORM"
    module = registry.choose("platforms", other, facts(one, other), "local")
    assert module.__name__ == f"entrypoint.platforms.{other}"


def test_rank_and_world_size_alone() -> None:
    """RANK, WORLD_SIZE and MASTER_ADDR alone recognise nobody: they have three meanings"""
    assert chosen(facts(RANK="1", WORLD_SIZE="2", MASTER_ADDR="a", MASTER_PORT="1")) == "local"


def test_only_the_winner_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start loads the module of one platform"""
    loaded: list[str] = []
    real = registry.load
    monkeypatch.setattr(
        registry, "load", lambda kind, name: loaded.append(name) or real(kind, name)
    )
    assert chosen(facts()) == "local"
    assert loaded == ["local"]
    assert chosen(facts("modelarts")) == "modelarts"
    assert set(loaded) == {"local", "modelarts"}
