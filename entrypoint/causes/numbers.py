"""The causes of exceptions that no signature names: by the number or name of the error, and by
whose code has raised it."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from entrypoint.base.cause import Retry
from entrypoint.base.tables import table
from entrypoint.causes.clean import LONGEST, MOST_FRAMES, compiled
from entrypoint.causes.table import Signature, of_kind

# Errors of Linux, then statuses of gRPC, which JAX and TensorFlow use -> the kind of cause.
_SLUGS = table("""
    EIO EREMOTEIO EUCLEAN ENODATA EBADMSG ECOMM ESTALE EROFS ENOTCONN ESHUTDOWN | storage-io
    ENOLINK ENOLCK ENOMEDIUM DATA_LOSS                                          | storage-io
    ENOSPC EDQUOT                                                               | disk-full
    ENETDOWN ENETUNREACH ENETRESET EHOSTDOWN EHOSTUNREACH ETIMEDOUT             | net-unreachable
    ECONNREFUSED UNAVAILABLE                                                    | net-unreachable
    ECONNRESET ECONNABORTED EPIPE ABORTED CANCELLED                             | peer-lost
    EADDRINUSE                                                                  | addr-in-use
    EMFILE ENFILE                                                               | fd-limit
    ENOMEM                                                                      | host-oom
    EACCES EPERM ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED                    | permission
    PERMISSION_DENIED UNAUTHENTICATED                                           | permission
    ENOENT ENOTDIR                                                              | file-missing
    DEADLINE_EXCEEDED                                                           | collective-timeout
""")
# Statuses of HTTP below 500, which are of the client -> the kind of cause.
_HTTP = table("""
    408 425 429     | download
    401 403 407 451 | permission
    404 410         | file-missing
""")
_RETRIES: Mapping[str, Retry] = {
    "ENOTCONN": "elsewhere",
    "ESHUTDOWN": "elsewhere",
    "ESTALE": "same",
}
_NUMBER = r"(?i)\b(?:errno|os error)[ :=]{1,3}(\d{1,3})\b"
_NAME = r"\b(?:E[A-Z]{2,14}|[A-Z]{4,16}(?:_[A-Z]{4,8})?)\b"
_HTTP_STATUS = (
    r"(?i)\b(?:https?(?:/[\d.]{1,3})?(?: error| status)?|status(?:[ _]code)?|error occurred"
    r"|response)\W{1,4}([45]\d\d)\b|\b([45]\d\d) (?:client|server) error\b"
)
_LAUNCHER = (
    r"torch/distributed/(?:run|launch|launcher|elastic)\b|accelerate/commands/|deepspeed/launcher/"
    r"|ray/scripts/|bin/(?:torchrun|accelerate|deepspeed|ray)$"
)
_INSTALLED = r"(?:site|dist)-packages/|/lib/python3|^<frozen |^(?:torch|accelerate|deepspeed|ray)/"
_FRAME = r"^\s{0,20}File \"(.{1,400}?)\", line \d"


def by_number(line: str) -> Signature | None:
    """Return what the number or name of an error in the line of an exception stands for."""
    text = line[:LONGEST]
    found = compiled(_NUMBER).search(text)
    names = [errno.errorcode.get(int(found[1]), "")] if found else compiled(_NAME).findall(text)
    for name in names:
        if name in _SLUGS:
            signature = of_kind(_SLUGS[name], certainty="low")
            return signature._replace(retry=_RETRIES.get(name, signature.retry))
    found = compiled(_HTTP_STATUS).search(text)
    status = (found[1] or found[2]) if found else ""
    slug = "download" if status >= "500" else _HTTP.get(status, "")
    return of_kind(slug, certainty="low") if slug else None


def of_launcher(lines: Sequence[str], number: int) -> bool:
    """Return whether the traceback above the line of an exception has frames of a launcher, and
    none of the user's: then no rank had started."""
    files = []
    for line in reversed(lines[max(0, number - MOST_FRAMES) : number]):
        frame = compiled(_FRAME).match(line)
        if frame:
            files.append(frame[1])
        elif line.startswith("Traceback"):
            break
    installed, launcher = compiled(f"{_INSTALLED}|{_LAUNCHER}"), compiled(_LAUNCHER)
    return all(map(installed.search, files)) and any(map(launcher.search, files))
