"""No platform: docker run, compose or a bare machine. Our own variables say everything, so the site is empty."""

from __future__ import annotations

from entrypoint.model import Facts, Site


def matches(facts: Facts) -> bool:
    """Never by itself: it is what is left when nothing else matches."""
    return False


def site(facts: Facts) -> Site:
    """Nothing but this container's host name, by which topology finds it among the spec's hosts."""
    return Site(platform="local", hostname=facts.hostname)
