"""Access: which key a request came with, whether its role is enough, and whether it asks too often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from deepmf.serve.keys import ApiKey, KeyRing, KeyRole
from deepmf.serve.rate_limit import RateLimit
from deepmf.serve.refusals import Refusal

_BEARER = HTTPBearer(auto_error=False, description="An API key; none is needed where the service has no file of keys.")

EVERYBODY = ApiKey("anyone", "admin", "")  # without a file of keys, on this machine alone


class Access:
    """Who may do what: the keys, and how often each may ask; without keys, everybody may do everything."""

    def __init__(self, keys: KeyRing | None, rate: RateLimit | None) -> None:
        self.keys = keys
        self._rate = rate

    def check(self, given: str | None, role: KeyRole) -> ApiKey:
        """Return the key of a request that is allowed, or refuse it."""
        if self.keys is None:
            return EVERYBODY
        key = self.keys.find(given) if given else None
        if key is None:
            reason = "an API key is needed: Authorization: Bearer ..." if not given else "this API key is not known"
            raise Refusal(401, "no_key", reason)
        if self._rate is not None and not self._rate.allows(key.name):
            wait = self._rate.retry_seconds
            said = f"too many requests with this API key; try again in {wait} second{'s' * (wait > 1)}"
            raise Refusal(429, "too_often", said, retry_after=wait)
        check_role(key, role)
        return key


def check_role(key: ApiKey, role: KeyRole) -> None:
    """Refuse what the role of a key does not allow."""
    if not key.allows(role):
        raise Refusal(403, "role", f"this needs an API key of the role {role}; this one has the role {key.role}")


def needs(role: KeyRole) -> Callable[..., Awaitable[ApiKey]]:
    """Return the dependency that lets requests with a role pass."""

    async def check_request(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
    ) -> ApiKey:
        access: Access = request.app.state.access
        key = access.check(None if credentials is None else credentials.credentials, role)
        request.scope["deepmf.key"] = key.name
        return key

    return check_request
