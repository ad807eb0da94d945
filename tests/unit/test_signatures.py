"""The judge on single lines: every pattern is a regular expression, counts of zero are no errors, and
all nodes have the same lines."""

from __future__ import annotations

import json
import re
import sys

import pytest

from entrypoint.base.cause import Cause
from entrypoint.base.wire import read, to_json
from entrypoint.causes import table
from entrypoint.causes.judge import judge
from entrypoint.causes.table import read_kinds, read_signatures, signatures
from tests import table as table_of
from tests.backtracking import Matcher, parsed, worst_lines
from tests.extending import blocks

TABLE = table_of("tests/tables/signatures.yaml")

NEW = pytest.mark.skipif(sys.version_info < (3, 11), reason="a part of patterns since Python 3.11")


def test_every_pattern_is_a_regular_expression() -> None:
    """One that is not would cost the diagnosis of every output with its needle."""
    for signature in signatures():
        re.compile(signature.pattern)


HEAD = "# a table\n\ncause\tneedle\tpattern\tsays\tother\n"


def test_the_row_of_the_recipe_is_one() -> None:
    (row,) = blocks("cause")
    assert read_signatures(HEAD + row, "own.tsv") == (
        table.of_kind(
            "licence",
            needle="Failed to acquire licence",
            says="no licence was free",
            certainty="low",
            weight=table._WEIGHTS["likely"],
        ),
    )


@pytest.mark.parametrize(
    ("row", "problem"),
    [*TABLE["bad_rows"], (f"gpu-ecc\tx\t\t{'x' * 401}", "says: ")],
)
def test_a_bad_row_is_named_with_its_file_and_line(row: str, problem: str) -> None:
    with pytest.raises(ValueError, match=rf"^own\.tsv:5: .*{re.escape(problem)}"):
        read_signatures(f"{HEAD}gpu-ecc\ty\n{row}\n", "own.tsv")


@pytest.mark.parametrize(
    "row",
    [
        "a\tnamed\tnode\tno\troot\thigh\tm\ts",
        "a\tnamed\tnode\tno\troot\thigh\tm\ts\tf\nb\tnamed\tnobody\tno\troot\thigh\tm\ts\tf",
        "a\tnamed\tnode\tno\troot\thigh\tm\ts\tf\na\tnamed\tnode\tno\troot\thigh\tm\ts\tf",
    ],
)
def test_a_bad_kind_is_named_with_its_file_and_line(row: str) -> None:
    head = "cause\tweight\tblame\tretry\trole\tcertainty\tmeaning\tsays\tfix\n"
    with pytest.raises(ValueError, match=r"^own\.tsv:[23]: "):
        read_kinds(head + row, "own.tsv")
    with pytest.raises(ValueError, match=r"^own\.tsv:1: the columns are cause, weight"):
        read_kinds(row, "own.tsv")


@pytest.mark.parametrize(
    "line",
    [
        "health check: 0 uncorrectable ECC errors, 0 Xid errors",
        "GPU 0: uncorrectable ECC errors: 0",
        "no uncorrectable ECC errors",
        "uncorrectable ECC errors = none",
        "Detected 0 oom_kill events",
        "No space left on device warnings: 0",
        "CUDA out of memory count=0",
        "no NVLink fatal error events",
    ],
)
def test_errors_that_did_not_happen(line: str) -> None:
    assert judge([line], 7).slug == "user-code"


@pytest.mark.parametrize(
    "line",
    ["2 uncorrectable ECC errors", "uncorrectable ECC errors: 10", "uncorrectable ECC error"],
)
def test_errors_that_did(line: str) -> None:
    """The control."""
    assert judge([line], 7).slug == "gpu-ecc"


@pytest.mark.parametrize(
    ("line", "slug"),
    [
        ("Detected 1 oom_kill event", "host-oom"),
        ("Detected 10 oom_kill events", "host-oom"),
        ("CUDA out of memory count=20", "gpu-oom"),
        ("FlexNet Licensing error:-15,570. System Error: 115", "licence"),
        ("CommError: user is not logged in (<Response [401]>)", "permission"),
        ("NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory", "setup"),
    ],
)
def test_the_cause_that_one_line_names(line: str, slug: str) -> None:
    assert judge([line], 7).slug == slug


def test_two_ranks_of_one_gpu() -> None:
    """As torch 2.11 prints it on an H200."""
    usage = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."
    backend = "NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details)"
    end = "destroy_process_group() was not called before program exit"
    lines = [
        f"[rank1]: torch.distributed.DistBackendError: NCCL error in: {backend}",
        f"[rank1]: {usage}",
        "[rank1]: Last error:",
        "[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60",
        f"[rank1]:[W1126 01:59:48.605885558 ProcessGroupNCCL.cpp:1575] Warning: WARNING: {end}",
    ]
    cause = judge(lines, 1)
    assert (cause.says, cause.retry) == ("two ranks use the same GPU", "no")


def test_the_lines_of_a_cause_are_not_cut_again_on_the_way_to_other_nodes() -> None:
    """Ray colours its lines, and they are long."""
    end = "Worker unexpectedly exits with a connection error code 2."
    line = f"\x1b[33m(raylet)\x1b[0m A worker died. {'Worker ID: 6bd742af ' * 20} {end}"
    cause = judge([line], 1)
    assert cause.lines[0].startswith("(raylet) A worker died")
    assert read(Cause, json.loads(to_json(cause))) == cause


@pytest.mark.parametrize("comes", ["before", "after"])
@pytest.mark.parametrize(
    "end",
    [
        "Worker unexpectedly exits with a connection error code 2. End of file. There are some",
        "The leased worker has unrecoverable failure. RPC error: Socket closed",
    ],
)
def test_the_node_of_a_killed_ray_worker(end: str, comes: str) -> None:
    """Only Ray's own line names it, which comes by another way than the driver's exception. How it
    describes the end depends on which part of Ray has noticed it first."""
    lines = [
        "(raylet) A worker died or was killed while executing a task by an unexpected system error."
        " To troubleshoot the problem, check the logs for the dead worker. Lease ID: 0100"
        " Worker IP address: 10.77.0.2 Worker port: 12338 Worker PID: 31765"
        f" Worker exit type: SYSTEM_ERROR Worker exit detail: {end}",
        "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.",
    ]
    cause = judge(lines if comes == "before" else lines[::-1], 1)
    assert (cause.slug, cause.certainty, cause.node) == ("killed-unknown", "low", "10.77.0.2")


SITE = "/opt/lib/python3.11/site-packages"
DIST = "/usr/lib/python3/dist-packages"


@pytest.mark.parametrize(("line", "slug", "retry"), TABLE["numbers"])
def test_an_exception_that_no_row_names_is_judged_by_its_number(
    line: str, slug: str, retry: str
) -> None:
    cause = judge(["Traceback (most recent call last):", '  File "a.py", line 3, in f', line], 1)
    assert (cause.slug, cause.retry) == (slug, retry)
    assert not cause.is_infrastructure


@pytest.mark.parametrize(
    ("files", "slug"),
    [
        (("/usr/local/bin/torchrun", f"{SITE}/torch/distributed/run.py"), "setup"),
        (("torch/distributed/run.py", "torch/distributed/elastic/agent/server/api.py"), "setup"),
        (("<frozen runpy>", f"{DIST}/accelerate/commands/launch.py"), "setup"),
        # the user's own frame, no launcher, no frame at all
        (("torch/distributed/run.py", "train.py"), "user-code"),
        (("/job/train.py",), "user-code"),
        ((f"{SITE}/trainer/main.py",), "user-code"),
        ((), "user-code"),
    ],
)  # fmt: skip
def test_a_launcher_that_cannot_start(files: tuple[str, ...], slug: str) -> None:
    """No rank had started, and no frame is the user's."""
    frames = [line for file in files for line in (f'  File "{file}", line 8, in f', "    main()")]
    end = "RuntimeError: the agent has no plan for this group"  # which no row names
    assert judge(["Traceback (most recent call last):", *frames, end], 1).slug == slug


@pytest.mark.promise("no row of a site holds a node")
@pytest.mark.parametrize(
    "pattern",
    [
        r"(\w+\s?)*\.$", r"(a+)+$", r"(a|a)*$", r"(a|aa){1,60}$", r"(?:(?:a?){9}b?){9}$",
        r"(?=(a+)+$)x", r"(?<!x)(a{1,9}){1,9}$", r"(\w*)(?(1)(a*b*)*|c)$", r"x.*y.*z",
        r"(a{0,900}b?){0,900}", r".*.*", pytest.param(r"(a++b?)*+c*d*", marks=NEW),
        pytest.param(r"(?>(a*)*)b", marks=NEW),
    ],
)  # fmt: skip
def test_a_pattern_that_may_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^own\.tsv:5: pattern: it may take too long: give each"):
        read_signatures(f"{HEAD}gpu-ecc\ty\ngpu-ecc\tx\t{pattern}\n", "own.tsv", are_compiled=True)


@pytest.mark.control("no row of a site holds a node")
@pytest.mark.parametrize(
    ("pattern", "cost"),
    [
        ("", 1),
        (r"lease of (?P<volume>/[\w/]{1,80})", 1),
        (r"(?i)lost|gone|(?:un)?mounted\b", 1),
        (r"volume (\S{1,80}) on (\S{1,80})$", 64),
        (r".{0,99}\.{0,99}$", 100),
        (r"lost .* of", 11),
    ],
)
def test_a_usual_pattern_of_a_site_is_used(pattern: str, cost: int) -> None:
    (row,) = read_signatures(f"{HEAD}gpu-ecc\tx\t{pattern}\n", "own.tsv", are_compiled=True)
    assert row.cost == cost


@pytest.mark.promise("no row of a site holds a node")
def test_no_pattern_takes_more_steps_than_its_ways() -> None:
    length = 60
    patterns = {row.pattern for row in signatures() if row.pattern}
    patterns |= {r"(a{0,3}b?){0,4}c", r"a{0,99}a{0,99}x", r"(?:a|ab|b){0,6}$", r"\w{1,30}\.{0,30}$"}
    for pattern in patterns:
        items = parsed(pattern)
        most = table._ways(items) * length * 4 + 9 * length
        matcher = Matcher(items, most)
        for line in dict.fromkeys(worst_lines(items, length)):
            matcher.finds(line)
