"""Variables for an MPI that is not on PATH, or that was moved: as its own script would set them."""

from __future__ import annotations

from entrypoint.model import EnvVar, Facts


def variables(facts: Facts, program: str) -> tuple[EnvVar, ...]:
    """Return the variables with which this program runs; none if it runs without."""
    place = facts.installed.get(program)
    if place is None:
        return ()
    origin = f"{program} in {place.folder}"
    env = facts.env
    path = env.get("PATH", "").split(":")
    known = [folder for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder]
    added = [folder for folder in place.libraries if folder not in known]
    found = []
    if place.folder not in path:
        found.append(EnvVar("PATH", ":".join(filter(None, (*path, place.folder))), origin))
    if added:
        found.append(EnvVar("LD_LIBRARY_PATH", ":".join((*added, *known)), origin))
    if place.prefix:
        found.append(EnvVar("OPAL_PREFIX", place.prefix, origin, default=True))
    return tuple(found)


def with_installed(facts: Facts, program: str) -> dict[str, str]:
    """Return the environment in which this program runs."""
    return {**facts.env, **{var.name: var.value for var in variables(facts, program)}}
