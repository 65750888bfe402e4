"""Calls to the Hugging Face Hub within limits: a bounded time, a bounded number of attempts, one line when it fails.

The client library waits and retries for very different times from call to call (6.5 minutes for a stalled HEAD, for
ever for a list of revisions, no second attempt at all for a GET that is answered 500). Every call goes through `ask`.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from huggingface_hub import HfApi, constants, get_session, set_client_factory
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (
    build_hf_headers,
    disable_progress_bars,
    hf_raise_for_status,
    parse_ratelimit_headers,
)

from toposcale.io.errors import PassingError, UserError

logger = logging.getLogger(__name__)

_RETRIED_STATUS = (408, 429, 500, 502, 503, 504)
_LONGEST_WAIT = 300.0  # the Hub's rate limits are counted over five minutes
_T = TypeVar("_T")


@dataclass(frozen=True)
class Limits:
    """How long a call may take.

    `timeout`: seconds of silence before an attempt is given up. `attempts`: how many there are. `wait`: seconds before
    the second one, doubled before each further one; a server that asks for more, up to five minutes, gets it.
    `resumes`: how often a small file that breaks off goes on from there within an attempt; a large one goes on from
    there at every attempt, and attempts that brought some of it do not count.
    """

    timeout: float = 20.0
    attempts: int = 4
    wait: float = 1.0
    resumes: int = 2


USUAL = Limits()


class HubUnreachableError(PassingError):
    """The Hub did not answer: offline mode, no connection, or every attempt failed."""


class RevisionUnusableError(UserError):
    """There is no such revision, or no checkpoint in it that could be read; others of the repository may do."""


def ask(
    repo: str,
    revision: str | None,
    limits: Limits,
    call: Callable[[], _T],
    *,
    progress: Callable[[], int] = lambda: 0,
) -> _T:
    """`call()`, repeated within the limits. Attempts count from 0 again whenever `progress()` has grown.

    UserError: what can only fail again (no such repository, gated, no disk); its subclasses RevisionUnusableError: no
    such revision, and HubUnreachableError: offline mode, or the last attempt failed as well. Each is one line with the
    cause.
    """
    what = repo if revision is None else f"{repo}, revision {revision}"
    _prepare_client()
    cause: _AttemptFailed | None = None
    made, reached = 0, progress()
    while made < max(1, limits.attempts):
        if cause is not None:
            wait = max(limits.wait * 2.0 ** max(made - 1, 0), cause.wait)
            if wait > _LONGEST_WAIT:
                cause = _AttemptFailed(f"{cause} and asked to wait {wait:g} s")
                break
            logger.info("%s: %s; next attempt in %g s", what, cause, wait)
            time.sleep(wait)
        made += 1
        token = _attempt.set(_Attempt(1 + limits.resumes, limits.timeout))
        try:
            return call()
        except OfflineModeIsEnabled as error:
            raise HubUnreachableError(f"{what}: offline mode is on (HF_HUB_OFFLINE)") from error
        except _AttemptFailed as error:
            cause = error
        except (httpx2.HTTPError, OSError, ValueError) as error:
            if reason := _final_reason(error):
                final = RevisionUnusableError if isinstance(error, RevisionNotFoundError) else UserError
                raise final(f"{what}: {reason}") from error
            cause = _AttemptFailed(_passing_reason(error))
            cause.__cause__ = error
        finally:
            _attempt.reset(token)
        if (now := progress()) > reached:
            made, reached = 0, now
    attempts = f"{made} attempt{'s' if made > 1 else ''}" + (" without progress" if reached else "")
    raise HubUnreachableError(f"{what}: {cause}, after {attempts} at {endpoint()}") from cause


def endpoint() -> str:
    """Address of the Hub: HF_ENDPOINT as it is now, else the client library's."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT


def api() -> HfApi:
    """The client library's interface to that address."""
    return HfApi(endpoint=endpoint())


def download(url: str, path: Path) -> None:
    """Append to a file what it lacks of the content at a URL, from where it ends. To be called within `ask`."""
    with path.open("ab") as file:
        done = file.tell()
        headers = build_hf_headers() | {"Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        with get_session().stream("GET", url, headers=headers) as response:
            hf_raise_for_status(response)
            if done and response.status_code != 206:  # it sends all of it again
                file.truncate(0)
            for block in response.iter_raw():  # as it comes, so that a break loses nothing
                file.write(block)


class _AttemptFailed(Exception):
    """An attempt failed in a way that may pass. No type that the client library would wait for on its own terms.

    `wait`: seconds that the server asked for.
    """

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass
class _Attempt:
    """The attempt in progress: how many GET requests it may still make, and how long each may be silent."""

    gets: int
    timeout: float


_attempt: ContextVar[_Attempt | None] = ContextVar("_attempt", default=None)


class _BoundedClient(httpx2.Client):
    """The client library's HTTP client with the limits of the attempt in place of those that its calls bring."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if constants.is_offline_mode():
            raise OfflineModeIsEnabled(f"{request.url}: offline mode is on")
        attempt = _attempt.get()
        if attempt is None:
            return super().send(request, **options)
        if request.method == "GET":
            if attempt.gets == 0:
                raise _AttemptFailed("the download broke off")
            attempt.gets -= 1
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), attempt.timeout)
        try:
            response = super().send(request, **options)
        except httpx2.TimeoutException as error:
            raise _AttemptFailed(f"no answer within {attempt.timeout:g} s") from error
        except httpx2.HTTPError as error:
            raise _AttemptFailed(f"the connection failed ({_text(error)})") from error
        if response.status_code in _RETRIED_STATUS:
            response.close()
            raise _AttemptFailed(f"the server answered {response.status_code}", _requested_wait(response))
        return response


def _requested_wait(response: httpx2.Response) -> float:
    """Seconds that the server asks to wait before the next request; 0 where it does not."""
    stated = response.headers.get("retry-after", "")
    rate = parse_ratelimit_headers(response.headers)
    if response.status_code == 429 and rate is not None and rate.remaining == 0:
        return rate.reset_in_seconds + 1.0
    return float(stated) if stated.isdecimal() else 0.0


@cache
def _prepare_client() -> None:
    """Make the client library use `_BoundedClient`, and plain HTTP for large files, which its limits reach."""
    set_client_factory(lambda: _BoundedClient(follow_redirects=True, timeout=USUAL.timeout))
    constants.HF_HUB_DISABLE_XET = True
    disable_progress_bars()


def _final_reason(error: Exception) -> str | None:
    """Why no further attempt can help; None where one may."""
    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # wrapped as "not in the cache either"
    if isinstance(error, GatedRepoError):
        return "gated; accept its terms on the Hub and log in (hf auth login)"
    if isinstance(error, RepositoryNotFoundError):
        return "no such repository, or a private one (then log in: hf auth login)"
    if isinstance(error, RevisionNotFoundError):
        return "no such revision"
    if isinstance(error, HFValidationError):
        return "not a valid name; a repository is written owner/name"
    if isinstance(error, HfHubHTTPError):
        return f"the server answered {error.response.status_code} ({_text(error)})"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT):
        return f"the cache cannot be written ({_text(error)})"
    return None


def _passing_reason(error: Exception) -> str:
    if isinstance(error, ValueError):
        return f"the answer is not that of a Hub ({_text(error)})"
    return f"the download broke off ({_text(error)})"


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
