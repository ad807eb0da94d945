"""No platform: docker run, compose or a bare machine. Only our own variables are used, so the site
is empty."""

from __future__ import annotations

from entrypoint.base.model import Facts, Site


def site(facts: Facts) -> Site:
    """Return this container's host name, by which topology finds it among the spec's hosts."""
    return Site(platform="local", hostname=facts.hostname)
