"""Posts a document to a URL: a program of its own, without the package.

Its parent can end it at any moment, also while a name is looked up; and the node's process needs no
TLS, which takes 4 MB. stdin is a JSON object with the arguments of `post`, so that no command line
contains the URL. Prints why the document was not delivered, without the URL; nothing if it was.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

# The toolkit's own OpenSSL has no certificates: those of Debian, of Red Hat, of Alpine.
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: what is sent may be meant for this server alone."""

    def redirect_request(self, *_: Any) -> None: ...


def _request(url: str, body: Any, token: str) -> urllib.request.Request:
    """Return the POST. A user and password in the URL become a header, or the token in a file."""
    parts = urllib.parse.urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    headers = {"Content-Type": "application/json", "User-Agent": "training-entrypoint"}
    if at:
        word = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        headers["Authorization"] = f"Basic {word}"
    if token:
        with open(token) as file:
            headers["Authorization"] = f"Bearer {file.read().strip()}"
    url = parts._replace(netloc=place, fragment="").geturl()
    return urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")


def _context(ca: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca or None)
    if not ca and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
        file = next(filter(os.path.isfile, _CERTIFICATES), None)
        if file:
            context.load_verify_locations(file)
    return context


def post(url: str, body: Any, ca: str = "", token: str = "") -> str:
    """Return why it was not delivered, or "". `ca` and `token` are files."""
    try:
        https = urllib.request.HTTPSHandler(context=_context(ca))
        opener = urllib.request.build_opener(_NoRedirects, https)
        opener.open(_request(url, body, token)).close()  # whatever the answer contains
    except urllib.error.HTTPError as error:
        return f"status {error.code}"
    except urllib.error.URLError as error:
        return str(getattr(error.reason, "strerror", None) or error.reason)
    except Exception as error:  # its text may contain the URL
        return type(error).__name__
    return ""


if __name__ == "__main__":
    signal.alarm(6)  # if its parent is killed
    print(post(**json.load(sys.stdin)))
