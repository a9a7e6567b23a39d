"""The way to a JobManager: requests over HTTP, and its refusals as errors of Weir.

A token goes to the address that it was given for and nowhere else: neither redirects nor proxies
are followed.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import IO, Any

from weir.cli.notice import notice
from weir.errors import (
    CorruptStateError,
    IncompatibleStateError,
    JobExecutionError,
    StorageError,
    UsageError,
    WeirError,
)
from weir.tls import TlsFiles

TIMEOUT_S = 30.0
_BY_NAME = {
    kind.__name__: kind
    for kind in (
        UsageError,
        IncompatibleStateError,
        CorruptStateError,
        StorageError,
        JobExecutionError,
    )
}


class UnreachableError(WeirError):
    """No JobManager answers at the address; whether the job runs is not known."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Lets a redirect be the error that it is here."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        """Follow nothing."""


class RestClient:
    """One JobManager; every call is one request with a time limit."""

    def __init__(
        self,
        url: str,
        token: str = "",
        tls: TlsFiles | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Remember where it is; nothing is sent yet.

        Raises:
            UsageError: a file for TLS is missing or no good.
        """
        self.url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.url.startswith("https:"):
            context = (tls or TlsFiles()).client_context()
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers, _NoRedirects())

    def get(self, path: str) -> Any:
        """Return the answer to a question."""
        return self._request("GET", path)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Ask for something to be done."""
        return self._request("POST", path, body)

    def patch(self, path: str) -> Any:
        """Ask for a change; what to change is in the path."""
        return self._request("PATCH", path)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send one request and return its JSON; None when the answer is empty.

        Raises:
            UnreachableError: nothing answers, or it is no JobManager.
            UsageError: the JobManager refuses the request.
            WeirError: the JobManager failed.
        """
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Accept", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with (
                notice(f"Waiting for the JobManager at {self.url}"),
                self._opener.open(request, timeout=self._timeout_s) as answer,
            ):
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise _refusal(self.url, error) from None
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(_silence(self.url, error)) from None
        return _decode(self.url, text)


def _silence(url: str, error: Exception) -> str:
    """Say why nothing came back, and what to look at."""
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"the JobManager at {url} is not trusted ({reason.verify_message}): name the "
            "certificate of its authority as weir.ssl.ca, in weir-conf.yaml or as WEIR_SSL_CA, and "
            "use an address that its certificate names"
        )
    hint = "look with 'weir list' whether the job still runs"
    if isinstance(reason, ssl.SSLError):
        hint = "if it speaks no TLS, write http://; if it asks for a certificate, set weir.ssl.*"
    elif url.startswith("http:") and isinstance(
        reason, ConnectionError | http.client.BadStatusLine
    ):
        hint += ", and write https:// if it speaks TLS"
    return f"the JobManager at {url} does not answer ({reason}): {hint}"


def _decode(url: str, text: bytes) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError:
        msg = f"what answers at {url} is no JobManager: it sent {text[:40]!r}, expected JSON"
        raise UnreachableError(msg) from None


def _refusal(url: str, error: urllib.error.HTTPError) -> WeirError:
    with error:
        text = error.read()
    try:
        said = "; ".join(json.loads(text)["errors"])
    except (ValueError, KeyError, TypeError):
        return UnreachableError(f"what answers at {url} is no JobManager: HTTP {error.code}")
    if error.code == 401:
        return UsageError(f"{said} (at {url}): give the token with WEIR_TOKEN or --token")
    if error.code == 409:
        return JobExecutionError(said)
    if error.code < 500:
        return UsageError(said)
    return WeirError(f"the JobManager at {url} failed: {said}")


def operation_error(cause: Any) -> WeirError:
    """Return the error of an asynchronous operation, of the class that the job gave it."""
    if not isinstance(cause, Mapping):
        return JobExecutionError(str(cause))
    kind = _BY_NAME.get(str(cause.get("class", "")).rpartition(".")[2], JobExecutionError)
    return kind(str(cause.get("stack-trace") or cause.get("class") or "no reason was given"))


def jobmanager_url(address: str) -> str:
    """Read HOST:PORT, or a whole URL, as the address of a JobManager.

    Raises:
        UsageError: it is neither.
    """
    url = address if "://" in address else f"http://{address}"
    parts = urllib.parse.urlsplit(url)
    try:
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment:
        msg = f"{address!r} is no address of a JobManager: write HOST:PORT"
        raise UsageError(msg)
    return url.rstrip("/")
