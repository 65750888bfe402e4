"""GET requests to the Hugging Face Hub with a timeout and a limited number of attempts; a failure is one line.

The client library sends them, with its token and its offline mode. Why its own downloads do not suffice: CONTRIBUTING.md.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import httpx2
from huggingface_hub import constants, errors, get_session, hf_raise_for_status
from huggingface_hub.utils import build_hf_headers, parse_ratelimit_headers

from toposcale.io.errors import NO_ROOM, DownloadError, SharedError, UserError, one_line
from toposcale.io.files import parse_json

logger = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_WAIT = 1.0  # seconds before the second attempt, doubled before each further one
LONGEST_WAIT = 300.0  # the Hub's rate limits are counted over five minutes
LONGEST_JSON = 1 << 25  # bytes; the list of 10,000 files has 3 MB
PATIENCE = 30.0  # timeouts that an answer may take in all, plus its size at the slowest rate
SLOWEST = 50_000.0  # bytes a second
LONGEST_DOWNLOAD = 1e6  # seconds
# 416: the requested range begins after the end of a file that is shorter than the Hub states.
_RETRIED_STATUS = (408, 416, 429, 500, 502, 503, 504)
_NOT_WRITABLE = (*NO_ROOM, errno.EACCES, errno.EROFS)
_T = TypeVar("_T")


class HubUnreachableError(SharedError):
    """Missing answer of the Hub: offline mode, no connection, or every attempt failed."""


class WrongLengthError(OSError):
    """Download of another length than the Hub states."""


# Errors that no further attempt can change; the first class that matches counts.
_FINAL: dict[type[Exception], tuple[type[UserError], str]] = {
    errors.OfflineModeIsEnabled: (HubUnreachableError, "offline mode is on (HF_HUB_OFFLINE)"),
    errors.GatedRepoError: (SharedError, "gated; accept its terms on the Hub and log in (hf auth login)"),
    errors.RepositoryNotFoundError: (SharedError, "no such repository, or a private one (then: hf auth login)"),
    errors.RevisionNotFoundError: (UserError, "no such revision"),
}


def get(
    subject: str,
    path: str,
    receive: Callable[[int, Iterator[bytes]], _T],
    *,
    timeout: float,
    size: int = 0,
    received: Callable[[], int] = lambda: 0,
) -> _T:
    """Return the result of `receive` on status and content of the response for a path, from byte `received()` on.

    An attempt ends after `timeout` seconds without data; one in which `received()` grows has not failed. All attempts
    together may take `PATIENCE` timeouts plus the time of `size` bytes at the slowest rate, without waits. Errors are one
    line about `subject`: HubUnreachableError in offline mode, after the last attempt or after that time; SharedError for a
    missing or gated repository or a full disk; DownloadError if the server does not give this path, or never in the stated
    length; UserError for a missing revision.
    """
    failures, reached, seconds_left = 0, received(), PATIENCE * timeout + min(size / SLOWEST, LONGEST_DOWNLOAD)

    def attempt(ends: float) -> _T:
        headers = build_hf_headers() | {"Accept-Encoding": "identity"}
        if start := received():
            headers["Range"] = f"bytes={start}-"
        request = get_session().build_request("GET", f"{endpoint()}/{path}", headers=headers, timeout=timeout)
        with closing(_answer(request)) as response:
            return receive(response.status_code, _blocks(response, ends))

    while True:
        started = time.monotonic()
        try:
            return _within(seconds_left, partial(attempt, started + seconds_left))
        except TimeoutError as error:
            raise HubUnreachableError(
                f"{subject}: too slow, not complete in the time allowed, at {endpoint()}"
            ) from error
        except (httpx2.HTTPError, OSError, ValueError) as error:
            _raise_if_final(subject, error)
            cause, (reason, requested_wait) = error, _passing_reason(error, timeout)
        seconds_left -= time.monotonic() - started
        if received() > reached:
            failures, reached = 0, received()
        else:
            failures += 1
        wait = max(FIRST_WAIT * 2.0 ** max(failures - 1, 0), requested_wait)
        if wait > LONGEST_WAIT:
            raise HubUnreachableError(f"{subject}: {reason} and asked to wait {wait:.0f} s, at {endpoint()}") from cause
        if failures >= ATTEMPTS:
            line = f"{subject}: {reason}, after {failures} attempts"
            # The file is shorter than stated: 416 answers a request beyond the end.
            refused = isinstance(cause, errors.HfHubHTTPError) and cause.response.status_code == 416
            if refused or isinstance(cause, WrongLengthError):
                raise DownloadError(line) from cause
            progress = " without progress" if reached else ""
            raise HubUnreachableError(f"{line}{progress} at {endpoint()}") from cause
        logger.info("%s: %s; next attempt in %g s", subject, reason, wait)
        time.sleep(wait)


def _answer(request: httpx2.Request) -> httpx2.Response:
    """Return the response to a request with its content unread; raise the error of the client library that it states."""
    session = get_session()
    for _ in range(session.max_redirects + 1):
        # The client would read the content of a redirection or an error, which may not end, and decode it.
        response = session.send(request, stream=True, follow_redirects=False)
        with ExitStack() as stack:
            stack.callback(response.close)
            if response.next_request is not None:
                request = response.next_request
                continue
            if response.is_error:
                headers = [pair for pair in response.headers.items() if not pair[0].startswith("content-")]
                hf_raise_for_status(httpx2.Response(response.status_code, headers=headers, request=request))
            if (coding := response.headers.get("content-encoding", "identity")) != "identity":
                raise ValueError(f"its content is encoded ({coding}), which was not asked for")
            stack.pop_all()
            return response
    raise httpx2.TooManyRedirects("too many redirections", request=request)


def _blocks(response: httpx2.Response, ends: float) -> Iterator[bytes]:
    """Yield the content of a response as it comes; raise TimeoutError after the time `ends`."""
    for block in response.iter_raw():
        if time.monotonic() > ends:
            raise TimeoutError
        yield block


def _within(seconds: float, attempt: Callable[[], _T]) -> _T:
    """Return the result of an attempt; raise TimeoutError if it takes longer.

    It runs in a thread, since no timeout of the client ends a response whose headers never arrive (status 103).
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(attempt())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result(timeout=max(seconds, 0.0))


def get_json(subject: str, path: str, parse: Callable[[Any], _T], *, timeout: float) -> _T:
    """Return the result of `parse` on a response in JSON; errors as in `get`."""

    def receive(_: int, blocks: Iterator[bytes]) -> _T:
        try:
            content = b""
            for block in blocks:
                content += block
                if len(content) > LONGEST_JSON:
                    raise ValueError(f"longer than {LONGEST_JSON >> 20} MB")
            return parse(parse_json(content))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    return get(subject, path, receive, timeout=timeout)


def endpoint() -> str:
    """Return the address of the Hub: the current HF_ENDPOINT, otherwise that of the client library."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT


def _raise_if_final(subject: str, error: Exception) -> None:
    for kind, (raised, reason) in _FINAL.items():
        if isinstance(error, kind):
            raise raised(f"{subject}: {reason}") from error
    if isinstance(error, errors.HfHubHTTPError) and error.response.status_code not in _RETRIED_STATUS:
        raise DownloadError(f"{subject}: the server answered {error.response.status_code} ({_text(error)})") from error
    if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
        raise SharedError(f"{subject}: the cache cannot be written ({_text(error)})") from error


def _passing_reason(error: Exception, timeout: float) -> tuple[str, float]:
    """Return the reason of a temporary failure, and the seconds that the server asks to wait before the next attempt."""
    if isinstance(error, errors.HfHubHTTPError):
        return f"the server answered {error.response.status_code}", _requested_wait(error.response)
    if isinstance(error, httpx2.TimeoutException):
        return f"no answer within {timeout:g} s", 0.0
    if isinstance(error, ValueError):
        return f"the answer is not that of a Hub ({_text(error)})", 0.0
    if isinstance(error, WrongLengthError):
        return str(error), 0.0
    if isinstance(error, OSError | httpx2.ReadError | httpx2.RemoteProtocolError):
        return f"the download broke off ({_text(error)})", 0.0
    return f"the connection failed ({_text(error)})", 0.0


def _requested_wait(response: httpx2.Response) -> float:
    """Return the seconds that the server asks to wait before the next request; 0 if it does not ask."""
    rate = parse_ratelimit_headers(response.headers)
    if response.status_code == 429 and rate is not None and rate.remaining == 0:
        return rate.reset_in_seconds + 1.0
    stated = response.headers.get("retry-after", "")
    if stated.isdecimal():
        return float(stated)
    # A date refers to the server's clock.
    until, now = _date(stated), _date(response.headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds()) if until else 0.0


def _date(text: str) -> datetime | None:
    """Parse a date of HTTP; return None for anything else."""
    try:
        return parsedate_to_datetime(text).replace(tzinfo=UTC)  # it is always GMT
    except ValueError:
        return None


def _text(error: Exception) -> str:
    return one_line(error) or type(error).__name__
