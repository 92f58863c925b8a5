"""A client of the service: `Client` blocks, `AsyncClient` has the same methods to await.

Both return the types of `deepmf.serve.schemas`.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload
from urllib.parse import quote
from uuid import uuid4

from deepmf.errors import BadSetting, MissingDependency, ServiceError

try:
    import httpx2
    from pydantic import BaseModel, ValidationError
except ModuleNotFoundError as error:
    raise MissingDependency(f"the client needs {error.name}: pip install 'deepmf[client]'") from error

from deepmf.recommend.request import ServedOptions
from deepmf.serve import schemas as s
from deepmf.serve.schemas import Id

__all__ = ["AsyncClient", "Client"]

P = ParamSpec("P")
Result = TypeVar("Result", bound=BaseModel | str)
Item = TypeVar("Item")
Line = TypeVar("Line", bound=BaseModel)
Now = TypeVar("Now")
Later = TypeVar("Later")

# The value of an entry, a kind of feedback, or fields of the entry: {"value": 5, "time": "2026-05-01", "weight": 2}.
Value = float | str | Mapping[str, Any]
Values = Mapping[Any, Value]  # by id
Changes = Mapping[Any, Value | None]  # by id; None forgets the entry
Time = datetime | str | float  # text such as 2026-05-01T12:00:00Z, or Unix seconds
FeatureValues = Mapping[str, Any]


class Conditions(TypedDict, total=False):
    """The ETag that must still be valid for a write, and its Idempotency-Key."""

    if_match: str | None
    key: str | None


_PAGE = 1_000  # results in one response, the most that the service returns
_RETRIED = {429, 502, 503, 504}  # too many requests, and answers of proxies and of a service that starts or is busy
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0  # seconds


@dataclass(frozen=True)
class Call(Generic[Result]):
    """A request, and the type of its response; `content` is a body that is not JSON."""

    method: str
    path: str
    result: type[Result]
    body: Mapping[str, Any] | None = None
    content: bytes | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode_body(self) -> bytes | None:
        """Return the body; fields of JSON that are not set are left out."""
        if self.body is None:
            return self.content
        return _to_json({name: value for name, value in self.body.items() if value is not None})

    def decode(self, response: httpx2.Response) -> Result:
        """Return the result of a response; raise `ServiceError` if the service refused the request."""
        if not response.is_success:
            raise _read_error(response)
        if issubclass(self.result, BaseModel):
            try:
                return self.result.model_validate_json(response.content)
            except ValidationError as error:
                message = f"{response.url} did not answer as a deepmf service of this version does"
                raise ServiceError(message, status=response.status_code, code="not_understood") from error
        return self.result(response.text)


Written = Call[s.WriteResponse]


@dataclass(frozen=True)
class Listing(Generic[Item]):
    """A call that returns a page of results, and where the page has them."""

    call: Call[Any]
    read_items: Callable[[Any], Sequence[Item]]

    def at(self, offset: int) -> Call[Any]:
        """Return the call for the page that starts at an offset."""
        return replace(self.call, query={**self.call.query, "offset": offset, "limit": _PAGE})


class Method(Generic[P, Now, Later]):
    """A method of both clients, declared by the function that builds its call or listing.

    `client.method(...)` returns the result in `Client`, and a coroutine or an asynchronous iterator in `AsyncClient`.
    """

    def __init__(self, build: Callable[Concatenate[Any, P], Any], run: str) -> None:
        self.build = build
        self.run = run  # the name of the method of both clients that runs what was built

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Now]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Later]: ...

    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        if client is None:
            return self.build

        @functools.wraps(self.build)
        def call(*args: P.args, **named: P.kwargs) -> Any:
            return getattr(client, self.run)(self.build(client, *args, **named))

        return call


def _route(
    build: Callable[Concatenate[Any, P], Call[Result]],
) -> Method[P, Result, Coroutine[Any, Any, Result]]:
    return Method(build, "_send")


def _listing(build: Callable[Concatenate[Any, P], Listing[Item]]) -> Method[P, Iterator[Item], AsyncIterator[Item]]:
    """Declare a method that iterates over all pages of a listing."""
    return Method(build, "_iterate")


def _stream(
    build: Callable[Concatenate[Any, P], Call[Result]],
) -> Method[P, Iterator[Result], AsyncIterator[Result]]:
    """Declare a method that iterates over the lines of a response, each a result, while they arrive."""
    return Method(build, "_stream")


class _Routes:
    """The routes of the service. Each is a method of both clients and has the name of the route.

    Ids are text or integers. `history` and entries are mappings of ids to values, or to kinds of feedback. An entry
    that is written may have a time and a weight: `{"Alien": {"value": 5, "time": "2026-05-01", "weight": 2}}`. Queries
    are answered for the time `at`, by default now, if the model was fitted with times. Writes carry an
    Idempotency-Key, so that they are written once even if they are sent again; `key` sets it, for a program that may
    itself be restarted. `if_match` is the `etag` of an earlier response: the write fails (412) if somebody else wrote
    in between.
    """

    # Predictions

    @_route
    def predict(
        self,
        pairs: Sequence[tuple[Id, Id]] | None = None,
        *,
        history: Values | None = None,
        features: FeatureValues | None = None,
        columns: Sequence[Id] | None = None,
        unknown: Literal["error", "nan", "fallback"] = "error",
        at: Time | None = None,
    ) -> Call[s.PredictResponse]:
        """Predict pairs of a row and a column, or columns for a history or features that are not stored."""
        listed = None if pairs is None else [{"row": row, "column": column} for row, column in pairs]
        body = {"pairs": listed, **_describe_row(history, features), "columns": columns, "unknown": unknown, "at": at}
        return Call("POST", "/v1/predict", s.PredictResponse, body)

    @_route
    def recommend(
        self,
        row: Id | None = None,
        *,
        history: Values | None = None,
        features: FeatureValues | None = None,
        n: int = 10,
        reasons: int = 0,
        fallback: Literal["popular"] | None = None,
        **options: Unpack[ServedOptions],
    ) -> Call[s.RecommendResponse]:
        """Recommend columns to a row, or to a history or features that are not stored, by options of `Request`.

        With `fallback="popular"`, popular columns are recommended to a row that is not known or an empty history.
        """
        body = {
            "row": row,
            **_describe_row(history, features),
            "n": n,
            "reasons": reasons,
            "fallback": fallback,
            **options,
        }
        return Call("POST", "/v1/recommend", s.RecommendResponse, body)

    @_route
    def explain(
        self,
        column: Id,
        *,
        row: Id | None = None,
        history: Values | None = None,
        features: FeatureValues | None = None,
        n: int = 5,
        at: Time | None = None,
    ) -> Call[s.ExplainResponse]:
        """Explain a prediction by the entries and features of the row that raise or lower it."""
        body = {"row": row, **_describe_row(history, features), "column": column, "n": n, "at": at}
        return Call("POST", "/v1/explain", s.ExplainResponse, body)

    @_route
    def find_similar(
        self, column: Id | None = None, *, row: Id | None = None, n: int = 10, min_entries: int | None = None
    ) -> Call[s.SimilarResponse]:
        """Find the columns most similar to a column, or the rows most similar to a row (role rows)."""
        asked = {"column": column, "row": row, "n": n, "min_entries": min_entries}
        return Call("POST", "/v1/similar", s.SimilarResponse, asked)

    # Columns, entries and features

    @_route
    def search_columns(
        self, search: str = "", *, offset: int = 0, limit: int = 20, include_hidden: bool = False
    ) -> Call[s.ColumnsResponse]:
        """Search columns by their ids; return one page. `iterate_columns` reads all pages."""
        return _list("/v1/columns", s.ColumnsResponse, offset, limit, search=search, include_hidden=include_hidden)

    @_listing
    def iterate_columns(self, search: str = "", *, include_hidden: bool = False) -> Listing[s.ColumnSummary]:
        """Iterate over the columns that match a search."""
        call = _list("/v1/columns", s.ColumnsResponse, search=search, include_hidden=include_hidden)
        return Listing(call, lambda page: page.columns)

    @_route
    def get_row_entries(self, row: Id, *, offset: int = 0, limit: int = _PAGE) -> Call[s.EntriesResponse]:
        """Return one page of the entries of a row. `iterate_row_entries` reads all pages."""
        return _list(_to_path("rows", row, "entries"), s.EntriesResponse, offset, limit)

    @_listing
    def iterate_row_entries(self, row: Id) -> Listing[s.ListedEntry]:
        """Iterate over the entries of a row, ordered by column."""
        return Listing(_list(_to_path("rows", row, "entries"), s.EntriesResponse), lambda page: page.entries)

    @_route
    def put_row_entries(self, row: Id, entries: Values, **given: Unpack[Conditions]) -> Written:
        """Replace all entries of a row, known or new."""
        return _write_entries("PUT", "row", row, entries, **given)

    @_route
    def patch_row_entries(self, row: Id, entries: Changes, **given: Unpack[Conditions]) -> Written:
        """Write or forget (None) some entries of a row; the others stay."""
        return _write_entries("PATCH", "row", row, entries, **given)

    @_route
    def delete_row_entries(self, row: Id, **given: Unpack[Conditions]) -> Written:
        """Forget all entries and features of a row."""
        return _write("DELETE", ("rows", row, "entries"), **given)

    @_route
    def get_column_entries(self, column: Id, *, offset: int = 0, limit: int = _PAGE) -> Call[s.EntriesResponse]:
        """Return one page of the entries of a column (role rows). `iterate_column_entries` reads all pages."""
        return _list(_to_path("columns", column, "entries"), s.EntriesResponse, offset, limit)

    @_listing
    def iterate_column_entries(self, column: Id) -> Listing[s.ListedEntry]:
        """Iterate over the entries of a column, ordered by row (role rows)."""
        return Listing(_list(_to_path("columns", column, "entries"), s.EntriesResponse), lambda page: page.entries)

    @_route
    def put_column_entries(self, column: Id, entries: Values, **given: Unpack[Conditions]) -> Written:
        """Replace all entries of a column, known or new (role rows)."""
        return _write_entries("PUT", "column", column, entries, **given)

    @_route
    def patch_column_entries(self, column: Id, entries: Changes, **given: Unpack[Conditions]) -> Written:
        """Write or forget (None) some entries of a column; the others stay."""
        return _write_entries("PATCH", "column", column, entries, **given)

    @_route
    def delete_column_entries(self, column: Id, **given: Unpack[Conditions]) -> Written:
        """Forget all entries and features of a column (role rows)."""
        return _write("DELETE", ("columns", column, "entries"), **given)

    @_route
    def write_entries(
        self, entries: Iterable[tuple[Id, Id, Value | None]], *, key: str | None = None
    ) -> Call[s.BulkResponse]:
        """Write or forget (None) entries of any rows and columns: (row, column, value), at most 50,000 at once.

        The response lists the entries that were refused by their line, from 1; all others are written together.
        """
        lines = [_to_json({"row": row, "column": column, **_name_value(value)}) for row, column, value in entries]
        headers = {"Idempotency-Key": key or uuid4().hex}
        body = gzip.compress(b"\n".join(lines), compresslevel=1, mtime=0)
        more = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        return Call("POST", "/v1/entries/bulk", s.BulkResponse, content=body, headers={**headers, **more})

    @_stream
    def export_entries(self) -> Call[s.ListedEntry]:
        """Iterate over all entries of the service, ordered by row (role admin)."""
        return Call("GET", "/v1/export", s.ListedEntry)

    @_route
    def get_row_features(self, row: Id) -> Call[s.FeaturesResponse]:
        """Return the features of a row as the model encodes them."""
        return Call("GET", _to_path("rows", row, "features"), s.FeaturesResponse)

    @_route
    def put_row_features(self, row: Id, features: FeatureValues, **given: Unpack[Conditions]) -> Written:
        """Replace all features of a row, known or new."""
        return _write("PUT", ("rows", row, "features"), {"features": features}, **given)

    @_route
    def delete_row_features(self, row: Id, **given: Unpack[Conditions]) -> Written:
        """Forget the features of a row."""
        return _write("DELETE", ("rows", row, "features"), **given)

    @_route
    def get_column_features(self, column: Id) -> Call[s.FeaturesResponse]:
        """Return the features of a column as the model encodes them."""
        return Call("GET", _to_path("columns", column, "features"), s.FeaturesResponse)

    @_route
    def put_column_features(self, column: Id, features: FeatureValues, **given: Unpack[Conditions]) -> Written:
        """Replace all features of a column, known or new."""
        return _write("PUT", ("columns", column, "features"), {"features": features}, **given)

    @_route
    def delete_column_features(self, column: Id, **given: Unpack[Conditions]) -> Written:
        """Forget the features of a column."""
        return _write("DELETE", ("columns", column, "features"), **given)

    @_route
    def get_column_state(self, column: Id) -> Call[s.StateResponse]:
        """Return whether a column can be recommended, and from and until when."""
        return Call("GET", _to_path("columns", column, "state"), s.StateResponse)

    @_route
    def put_column_state(
        self,
        column: Id,
        *,
        visible: bool = True,
        from_: Time | None = None,
        until: Time | None = None,
        **given: Unpack[Conditions],
    ) -> Written:
        """Hide a column from recommendations, or show it from and until a time."""
        body = {"visible": visible, "from": from_, "until": until}
        return _write("PUT", ("columns", column, "state"), body, **given)

    @_route
    def delete_column_state(self, column: Id, **given: Unpack[Conditions]) -> Written:
        """Show a column again, at all times."""
        return _write("DELETE", ("columns", column, "state"), **given)

    @_route
    def get_dismissed(self, row: Id) -> Call[s.DismissedResponse]:
        """Return the columns that are never recommended to a row."""
        return Call("GET", _to_path("rows", row, "dismissed"), s.DismissedResponse)

    @_route
    def patch_dismissed(
        self,
        row: Id,
        *,
        add: Sequence[Id] = (),
        remove: Sequence[Id] = (),
        **given: Unpack[Conditions],
    ) -> Written:
        """Stop recommending some columns to a row, or recommend them again."""
        body = {"add": add, "remove": remove}
        return _write("PATCH", ("rows", row, "dismissed"), body, **given)

    # The model and the service

    @_route
    def get_model(self) -> Call[s.ModelResponse]:
        """Describe the model behind the service."""
        return Call("GET", "/v1/model", s.ModelResponse)

    @_route
    def reload_model(self, *, force: bool = False) -> Call[s.ModelResponse]:
        """Make the service load its model file again (role admin), with `force` also one of other labels."""
        return Call("POST", "/v1/model", s.ModelResponse, query={"force": force})

    @_route
    def get_statistics(self) -> Call[s.OperatorResponse]:
        """Return numbers of requests and learned entries."""
        return Call("GET", "/v1/operator", s.OperatorResponse)

    @_route
    def get_health(self) -> Call[s.HealthResponse]:
        """Report that the process runs."""
        return Call("GET", "/healthz", s.HealthResponse)

    @_route
    def get_readiness(self) -> Call[s.HealthResponse]:
        """Report that the model and the database answer; it waits for a service that starts."""
        return Call("GET", "/readyz", s.HealthResponse)

    @_route
    def get_metrics(self) -> Call[str]:
        """Return counters and timings in the format of Prometheus."""
        return Call("GET", "/metrics", str)


class _Connection:
    """The settings of both clients: where to send calls, and when to send them again."""

    def __init__(self, url: str, api_key: str | None, retries: int) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadSetting(f"the URL of a service starts with http:// or https://; got {url!r}")
        if retries < 0:
            raise BadSetting(f"retries must be 0 or more; got {retries}")
        self.url = url.rstrip("/")
        self.retries = retries
        self.headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}

    def describe(self, call: Call[Any]) -> dict[str, Any]:
        """Return the arguments of `httpx2.Client.request` for a call."""
        headers = {**self.headers, **call.headers}
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        return {
            "method": call.method,
            "url": f"{self.url}{call.path}",
            "params": call.query or None,
            "content": call.encode_body(),
            "headers": headers,
        }

    def explain(self, error: httpx2.TransportError, *, n_tries: int = 1) -> ServiceError:
        """Return the error for a service that does not answer."""
        tries = "one try" if n_tries == 1 else f"{n_tries} tries"
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        return ServiceError(f"{self.url} does not answer after {tries} ({reason})", code="no_answer")

    def judge(self, attempt: int, outcome: httpx2.Response | httpx2.TransportError) -> httpx2.Response | float:
        """Return a response that is final, or the seconds until the call is sent again.

        Raises `ServiceError` if the service could not be reached for the last time.
        """
        asked: str = ""
        if isinstance(outcome, httpx2.Response):
            if attempt >= self.retries or outcome.status_code not in _RETRIED:
                return outcome
            asked = outcome.headers.get("retry-after", "")
        elif attempt >= self.retries:
            raise self.explain(outcome, n_tries=attempt + 1) from outcome
        longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**attempt)
        # Random, so that clients that failed together do not return together.
        return random.uniform(0.5, 1.0) * longest + (min(float(asked), 60.0) if asked.isdigit() else 0.0)


class Client(_Routes):
    """A client of the service that blocks until the response is there; threads may share it.

    Queries and writes are sent again if the connection fails or the service is busy: every write has an
    Idempotency-Key, so it is written once.

    Parameters
    ----------
    url : where the service listens, such as `http://127.0.0.1:8000`.
    api_key : the text of an API key, if the service needs one.
    timeout : seconds to wait for a response.
    retries : how often a call is sent again, with growing pauses.
    transport : another transport of httpx2, such as one through a proxy.

    Examples
    --------
    .. code-block:: python

        with Client("http://127.0.0.1:8000") as client:
            client.put_row_entries("ann", {"Alien": 5, "Big": 2})
            for film in client.recommend("ann", n=10).best:
                print(film.column, film.expected)
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._connection = _Connection(url, api_key, retries)
        self._http = httpx2.Client(timeout=timeout, transport=transport)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _send(self, call: Call[Result]) -> Result:
        request = self._connection.describe(call)
        attempt = 0
        while True:
            outcome: httpx2.Response | httpx2.TransportError
            try:
                outcome = self._http.request(**request)
            except httpx2.TransportError as error:
                outcome = error
            judged = self._connection.judge(attempt, outcome)
            if isinstance(judged, httpx2.Response):
                return call.decode(judged)
            time.sleep(judged)
            attempt += 1

    def _stream(self, call: Call[Line]) -> Iterator[Line]:
        try:
            with self._http.stream(**self._connection.describe(call)) as response:
                if not response.is_success:
                    response.read()
                    raise _read_error(response)
                for line in response.iter_lines():
                    yield call.result.model_validate_json(line)
        except httpx2.TransportError as error:
            raise self._connection.explain(error) from error

    def _iterate(self, listing: Listing[Item]) -> Iterator[Item]:
        offset: int | None = 0
        while offset is not None:
            page = self._send(listing.at(offset))
            yield from listing.read_items(page)
            offset = page.next_offset


class AsyncClient(_Routes):
    """The same client for asyncio: `await client.recommend(...)`, `async for column in client.iterate_columns()`.

    Parameters are those of `Client`; `transport` is an asynchronous one.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._connection = _Connection(url, api_key, retries)
        self._http = httpx2.AsyncClient(timeout=timeout, transport=transport)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _send(self, call: Call[Result]) -> Result:
        request = self._connection.describe(call)
        attempt = 0
        while True:
            outcome: httpx2.Response | httpx2.TransportError
            try:
                outcome = await self._http.request(**request)
            except httpx2.TransportError as error:
                outcome = error
            judged = self._connection.judge(attempt, outcome)
            if isinstance(judged, httpx2.Response):
                return call.decode(judged)
            await asyncio.sleep(judged)
            attempt += 1

    async def _stream(self, call: Call[Line]) -> AsyncIterator[Line]:
        try:
            async with self._http.stream(**self._connection.describe(call)) as response:
                if not response.is_success:
                    await response.aread()
                    raise _read_error(response)
                async for line in response.aiter_lines():
                    yield call.result.model_validate_json(line)
        except httpx2.TransportError as error:
            raise self._connection.explain(error) from error

    async def _iterate(self, listing: Listing[Item]) -> AsyncIterator[Item]:
        offset: int | None = 0
        while offset is not None:
            page = await self._send(listing.at(offset))
            for item in listing.read_items(page):
                yield item
            offset = page.next_offset


def _to_path(axis: str, given: Id, what: str) -> str:
    if str(given) in ("", ".", ".."):
        raise BadSetting(f"the id {str(given)!r} cannot be part of a path; send it in the body of another request")
    return f"/v1/{axis}/{quote(str(given), safe='')}/{what}"


def _list(path: str, result: type[Result], offset: int = 0, limit: int = _PAGE, **query: Any) -> Call[Result]:
    return Call("GET", path, result, query={**query, "offset": offset, "limit": limit})


def _write(
    method: str,
    place: tuple[str, Id, str],
    body: Mapping[str, Any] | None = None,
    **given: Unpack[Conditions],
) -> Written:
    headers = {"Idempotency-Key": given.get("key") or uuid4().hex}
    if (etag := given.get("if_match")) is not None:
        headers["If-Match"] = etag
    return Call(method, _to_path(*place), s.WriteResponse, body, headers=headers)


def _write_entries(method: str, axis: str, label: Id, entries: Changes, **given: Unpack[Conditions]) -> Written:
    body = {"entries": _list_entries("column" if axis == "row" else "row", entries)}
    return _write(method, (f"{axis}s", label, "entries"), body, **given)


def _describe_row(history: Values | None, features: FeatureValues | None) -> dict[str, Any]:
    return {"history": None if history is None else _list_entries("column", history), "features": features}


def _list_entries(other: str, entries: Changes) -> list[dict[str, Any]]:
    return [{other: given, **_name_value(value)} for given, value in entries.items()]


def _name_value(value: Value | None) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    return {"kind" if isinstance(value, str) else "value": value}


def _to_json(content: Any) -> bytes:
    try:
        return json.dumps(content, allow_nan=False, default=_to_plain).encode()
    except ValueError as error:
        raise BadSetting("the values of a request must be finite numbers; it has NaN or infinity") from error


def _to_plain(value: Any) -> Any:
    """Return a number of numpy as one of Python, and a date as text."""
    if isinstance(value, date):
        return value.isoformat()
    try:
        return value.item()
    except AttributeError:
        raise TypeError(f"a request cannot hold {type(value).__name__} {value!r}") from None


def _read_error(response: httpx2.Response) -> ServiceError:
    try:
        detail = s.ErrorResponse.model_validate_json(response.content).error
        code, message = detail.code, detail.message
    except ValidationError:  # not the service's own answer: a proxy's, or another program's
        code, message = "not_understood", f"{response.url} answered {response.status_code} {response.reason_phrase}"
    return ServiceError(message, status=response.status_code, code=code)
