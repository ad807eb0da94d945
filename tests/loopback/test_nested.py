"""A launcher inside the ranks of a job of two nodes: one training must not silently become several,
each with 0."""

from __future__ import annotations

import pytest

from tests.cluster import RUN, Make

# As root, Open MPI starts only where it is allowed to; a rank has the variables of the mpirun that
# started it.
INNER = (
    "cd /tmp\nmpirun --allow-run-as-root --oversubscribe -np 2 -host localhost:2 sh -c 'echo"
    " training; sleep 3'\n"
)


@pytest.mark.promise("a nested launcher is refused by name, in the command and in a rank's script")
def test_an_mpirun_in_the_ranks_script_ends_the_job_by_name(cluster: Make) -> None:
    job = cluster(2, slots=1)
    script = job.folder / "train.sh"
    script.write_text(
        "for name in $(env | grep -oE '^(OMPI|PMIX|ORTE)_[A-Za-z_]*'); do unset $name; done\n"
        + INNER
    )
    for node in (1, 0):
        job.start(node, argv=(*RUN, "--launcher", "mpirun", "--", "bash", str(script)))
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert "EP118 `mpirun` started inside rank 1 of several" in job.both()
    assert job.survivors() == []


@pytest.mark.control("a nested launcher is refused by name, in the command and in a rank's script")
def test_a_launcher_that_is_asked_its_version_is_the_control(cluster: Make) -> None:
    job = cluster(2, slots=1)
    script = job.folder / "train.sh"
    script.write_text("mpirun --version\nsleep 0.5\necho trained\n")
    for node in (1, 0):
        job.start(node, argv=(*RUN, "--launcher", "jax", "--", "bash", str(script)))
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert "trained" in job.out(0)
