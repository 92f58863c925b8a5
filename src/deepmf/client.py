"""A client of the service; its methods return the types of `deepmf.serve.schemas`."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote
from uuid import uuid4

from deepmf.errors import BadSetting, MissingDependency, ServiceError

try:
    import httpx2
    from pydantic import BaseModel, ValidationError
except ModuleNotFoundError as error:
    raise MissingDependency(
        f"the client needs {error.name}: pip install 'deepmf[client]'"
    ) from error

from deepmf.recommend.request import ServedOptions
from deepmf.serve import schemas as s
from deepmf.serve.schemas import Id

__all__ = ["Client"]

Result = TypeVar("Result", bound=BaseModel)
Page = TypeVar("Page", s.ColumnsResponse, s.EntriesResponse)

# The value of an entry, or fields of the entry: {"value": 5, "time": "2026-05-01", "weight": 2}.
Value = float | Mapping[str, Any]
Values = Mapping[Any, Value]  # by id
Changes = Mapping[Any, Value | None]  # by id; None forgets the entry
Time = datetime | str | float  # text such as 2026-05-01T12:00:00Z, or Unix seconds
FeatureValues = Mapping[str, Any]


class Conditions(TypedDict, total=False):
    """The ETag that must still be valid for a write, and its Idempotency-Key."""

    if_match: str | None
    key: str | None


_PAGE = 1_000  # results in one response, the most that the service returns
# too many requests, and answers of proxies and of a service that starts or is busy
_RETRIED = {429, 502, 503, 504}
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0  # seconds


class Client:
    """A client of the service: each route is a method. Threads may share a client.

    Ids are text or integers. `history` and entries are mappings of ids to values. An entry that is
    written may have a time and a weight: `{"Alien": {"value": 5, "time": "2026-05-01", "weight":
    2}}`. Queries are answered for the time `at`, by default now, if the model was fitted with
    times.

    Calls are sent again if the connection fails or the service is busy. Every write has an
    Idempotency-Key, so that it is written once; `key` sets it, for a program that may itself be
    restarted. `if_match` is the `etag` of an earlier response: the write fails (412) if somebody
    else wrote in between.

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
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise BadSetting(
                f"the URL of a service starts with http:// or https://; got {url!r:.100}"
            )
        if not isinstance(retries, int) or retries < 0:
            raise BadSetting(f"retries must be 0 or more; got {retries!r:.100}")
        self.url = url.rstrip("/")
        self.retries = retries
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = httpx2.Client(headers=headers, timeout=timeout, transport=transport)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Predictions

    def predict(
        self,
        pairs: Sequence[tuple[Id, Id]] | None = None,
        *,
        history: Values | None = None,
        features: FeatureValues | None = None,
        columns: Sequence[Id] | None = None,
        unknown: Literal["error", "nan", "fallback"] = "error",
        at: Time | None = None,
    ) -> s.PredictResponse:
        """Predict pairs of a row and a column, or columns for a history or features that are not
        stored."""
        body = {
            "pairs": None if pairs is None else list(_name_fields(pairs, "row", "column")),
            **_describe_row(history, features),
            "columns": columns,
            "unknown": unknown,
            "at": at,
        }
        return self._send("POST", "/v1/predict", s.PredictResponse, body)

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
    ) -> s.RecommendResponse:
        """Recommend columns to a row, or to a history or features that are not stored, by options
        of `Request`.

        With `fallback="popular"`, popular columns are recommended to a row that is not known or an
        empty history.
        """
        body = {
            "row": row,
            **_describe_row(history, features),
            "n": n,
            "reasons": reasons,
            "fallback": fallback,
        }
        return self._send("POST", "/v1/recommend", s.RecommendResponse, {**body, **options})

    def explain(
        self,
        column: Id,
        *,
        row: Id | None = None,
        history: Values | None = None,
        features: FeatureValues | None = None,
        n: int = 5,
        at: Time | None = None,
    ) -> s.ExplainResponse:
        """Explain a prediction by the entries and features of the row that raise or lower it."""
        body = {"row": row, **_describe_row(history, features), "column": column, "n": n, "at": at}
        return self._send("POST", "/v1/explain", s.ExplainResponse, body)

    def find_similar(
        self,
        column: Id | None = None,
        *,
        row: Id | None = None,
        n: int = 10,
        min_entries: int | None = None,
    ) -> s.SimilarResponse:
        """Find the columns most similar to a column, or the rows most similar to a row (role
        rows)."""
        asked = {"column": column, "row": row, "n": n, "min_entries": min_entries}
        return self._send("POST", "/v1/similar", s.SimilarResponse, asked)

    # Columns, entries and features

    def search_columns(
        self, search: str = "", *, offset: int = 0, limit: int = 20, include_hidden: bool = False
    ) -> s.ColumnsResponse:
        """Search columns by their ids; return one page. `iterate_columns` reads all pages."""
        return self._get_page(
            "/v1/columns",
            s.ColumnsResponse,
            offset,
            limit,
            search=search,
            include_hidden=include_hidden,
        )

    def iterate_columns(
        self, search: str = "", *, include_hidden: bool = False
    ) -> Iterator[s.ColumnSummary]:
        """Iterate over the columns that match a search."""
        for page in self._iterate(
            "/v1/columns", s.ColumnsResponse, search=search, include_hidden=include_hidden
        ):
            yield from page.columns

    def get_row_entries(self, row: Id, *, offset: int = 0, limit: int = _PAGE) -> s.EntriesResponse:
        """Return one page of the entries of a row. `iterate_row_entries` reads all pages."""
        return self._get_page(_to_path("rows", row, "entries"), s.EntriesResponse, offset, limit)

    def iterate_row_entries(self, row: Id) -> Iterator[s.ListedEntry]:
        """Iterate over the entries of a row, ordered by column."""
        for page in self._iterate(_to_path("rows", row, "entries"), s.EntriesResponse):
            yield from page.entries

    def put_row_entries(
        self, row: Id, entries: Values, **given: Unpack[Conditions]
    ) -> s.WriteResponse:
        """Replace all entries of a row, known or new."""
        return self._write_entries("PUT", "row", row, entries, **given)

    def patch_row_entries(
        self, row: Id, entries: Changes, **given: Unpack[Conditions]
    ) -> s.WriteResponse:
        """Write or forget (None) some entries of a row; the others stay."""
        return self._write_entries("PATCH", "row", row, entries, **given)

    def delete_row_entries(self, row: Id, **given: Unpack[Conditions]) -> s.WriteResponse:
        """Forget all entries and features of a row."""
        return self._write("DELETE", _to_path("rows", row, "entries"), **given)

    def get_column_entries(
        self, column: Id, *, offset: int = 0, limit: int = _PAGE
    ) -> s.EntriesResponse:
        """Return one page of the entries of a column (role rows). `iterate_column_entries` reads
        all pages."""
        return self._get_page(
            _to_path("columns", column, "entries"), s.EntriesResponse, offset, limit
        )

    def iterate_column_entries(self, column: Id) -> Iterator[s.ListedEntry]:
        """Iterate over the entries of a column, ordered by row (role rows)."""
        for page in self._iterate(_to_path("columns", column, "entries"), s.EntriesResponse):
            yield from page.entries

    def put_column_entries(
        self, column: Id, entries: Values, **given: Unpack[Conditions]
    ) -> s.WriteResponse:
        """Replace all entries of a column, known or new (role rows)."""
        return self._write_entries("PUT", "column", column, entries, **given)

    def patch_column_entries(
        self, column: Id, entries: Changes, **given: Unpack[Conditions]
    ) -> s.WriteResponse:
        """Write or forget (None) some entries of a column; the others stay."""
        return self._write_entries("PATCH", "column", column, entries, **given)

    def delete_column_entries(self, column: Id, **given: Unpack[Conditions]) -> s.WriteResponse:
        """Forget all entries and features of a column (role rows)."""
        return self._write("DELETE", _to_path("columns", column, "entries"), **given)

    def write_entries(
        self, entries: Iterable[tuple[Id, Id, Value | None]], *, key: str | None = None
    ) -> s.BulkResponse:
        """Write or forget (None) entries of any rows and columns: (row, column, value), at most
        50,000 at once.

        The response lists the entries that were refused by their line, from 1; all others are
        written together.
        """
        lines = [
            _to_json(fields | _name_value(fields["value"]))
            for fields in _name_fields(entries, "row", "column", "value")
        ]
        headers = {
            "Idempotency-Key": _choose_key(key),
            "Content-Type": "application/x-ndjson",
            "Content-Encoding": "gzip",
        }
        body = gzip.compress(b"\n".join(lines), compresslevel=1, mtime=0)
        return _decode(
            self._request("POST", "/v1/entries/bulk", content=body, headers=headers), s.BulkResponse
        )

    def export_entries(self) -> Iterator[s.ListedEntry]:
        """Iterate over all entries of the service, ordered by row, while they arrive (role
        admin)."""
        try:
            with self._http.stream("GET", f"{self.url}/v1/export") as response:
                if not response.is_success:
                    response.read()
                    raise _read_error(response)
                for line in response.iter_lines():
                    yield s.ListedEntry.model_validate_json(line)
        except httpx2.TransportError as error:
            raise self._explain(error, n_tries=1) from error

    def get_row_features(self, row: Id) -> s.FeaturesResponse:
        """Return the features of a row as the model encodes them."""
        return self._send("GET", _to_path("rows", row, "features"), s.FeaturesResponse)

    def put_row_features(
        self, row: Id, features: FeatureValues, **given: Unpack[Conditions]
    ) -> s.WriteResponse:
        """Replace all features of a row, known or new."""
        return self._write(
            "PUT", _to_path("rows", row, "features"), {"features": features}, **given
        )

    def delete_row_features(self, row: Id, **given: Unpack[Conditions]) -> s.WriteResponse:
        """Forget the features of a row."""
        return self._write("DELETE", _to_path("rows", row, "features"), **given)

    def get_column_features(self, column: Id) -> s.FeaturesResponse:
        """Return the features of a column as the model encodes them."""
        return self._send("GET", _to_path("columns", column, "features"), s.FeaturesResponse)

    def put_column_features(
        self, column: Id, features: FeatureValues, **given: Unpack[Conditions]
    ) -> s.WriteResponse:
        """Replace all features of a column, known or new."""
        return self._write(
            "PUT", _to_path("columns", column, "features"), {"features": features}, **given
        )

    def delete_column_features(self, column: Id, **given: Unpack[Conditions]) -> s.WriteResponse:
        """Forget the features of a column."""
        return self._write("DELETE", _to_path("columns", column, "features"), **given)

    def get_column_state(self, column: Id) -> s.StateResponse:
        """Return whether a column can be recommended, and from and until when."""
        return self._send("GET", _to_path("columns", column, "state"), s.StateResponse)

    def put_column_state(
        self,
        column: Id,
        *,
        visible: bool = True,
        from_: Time | None = None,
        until: Time | None = None,
        **given: Unpack[Conditions],
    ) -> s.WriteResponse:
        """Hide a column from recommendations, or show it from and until a time."""
        body = {"visible": visible, "from": from_, "until": until}
        return self._write("PUT", _to_path("columns", column, "state"), body, **given)

    def delete_column_state(self, column: Id, **given: Unpack[Conditions]) -> s.WriteResponse:
        """Show a column again, at all times."""
        return self._write("DELETE", _to_path("columns", column, "state"), **given)

    def get_dismissed(self, row: Id) -> s.DismissedResponse:
        """Return the columns that are never recommended to a row."""
        return self._send("GET", _to_path("rows", row, "dismissed"), s.DismissedResponse)

    def patch_dismissed(
        self,
        row: Id,
        *,
        add: Sequence[Id] = (),
        remove: Sequence[Id] = (),
        **given: Unpack[Conditions],
    ) -> s.WriteResponse:
        """Stop recommending some columns to a row, or recommend them again."""
        body = {"add": add, "remove": remove}
        return self._write("PATCH", _to_path("rows", row, "dismissed"), body, **given)

    # The model and the service

    def get_model(self) -> s.ModelResponse:
        """Describe the model behind the service."""
        return self._send("GET", "/v1/model", s.ModelResponse)

    def reload_model(self) -> s.ModelResponse:
        """Make the service load its model file again (role admin)."""
        return self._send("POST", "/v1/model", s.ModelResponse)

    def get_statistics(self) -> s.OperatorResponse:
        """Return numbers of requests and learned entries."""
        return self._send("GET", "/v1/operator", s.OperatorResponse)

    def get_health(self) -> s.HealthResponse:
        """Report that the process runs."""
        return self._send("GET", "/healthz", s.HealthResponse)

    def get_readiness(self) -> s.HealthResponse:
        """Report that the model and the database answer; it waits for a service that starts."""
        return self._send("GET", "/readyz", s.HealthResponse)

    def get_metrics(self) -> str:
        """Return counters and timings in the format of Prometheus."""
        return self._request("GET", "/metrics").text

    # Sending

    def _send(
        self,
        method: str,
        path: str,
        result: type[Result],
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Result:
        """Send a request and return its response; fields of the body that are not set are left
        out."""
        named = dict(headers or {})
        content = None
        if body is not None:
            named["Content-Type"] = "application/json"
            content = _to_json({name: value for name, value in body.items() if value is not None})
        return _decode(
            self._request(method, path, content=content, params=query, headers=named), result
        )

    def _request(self, method: str, path: str, **given: Any) -> httpx2.Response:
        """Send a request, if need be several times; raise `ServiceError` unless it succeeds."""
        attempt = 0
        while True:
            asked = ""
            try:
                response = self._http.request(method, f"{self.url}{path}", **given)
            except httpx2.TransportError as error:
                if attempt >= self.retries:
                    raise self._explain(error, n_tries=attempt + 1) from error
            else:
                if response.is_success:
                    return response
                if attempt >= self.retries or response.status_code not in _RETRIED:
                    raise _read_error(response)
                asked = response.headers.get("retry-after", "")
            longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**attempt)
            # Random, so that clients that failed together do not return together.
            time.sleep(
                random.uniform(0.5, 1.0) * longest
                + (min(float(asked), 60.0) if asked.isdigit() else 0.0)
            )
            attempt += 1

    def _get_page(
        self, path: str, result: type[Result], offset: int, limit: int, **query: Any
    ) -> Result:
        return self._send("GET", path, result, query={**query, "offset": offset, "limit": limit})

    def _iterate(self, path: str, result: type[Page], **query: Any) -> Iterator[Page]:
        offset: int | None = 0
        while offset is not None:
            page = self._get_page(path, result, offset, _PAGE, **query)
            yield page
            offset = page.next_offset

    def _write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        **given: Unpack[Conditions],
    ) -> s.WriteResponse:
        headers = {"Idempotency-Key": _choose_key(given.get("key"))}
        if (etag := given.get("if_match")) is not None:
            headers["If-Match"] = etag
        return self._send(method, path, s.WriteResponse, body, headers=headers)

    def _write_entries(
        self, method: str, axis: s.Axis, label: Id, entries: Changes, **given: Unpack[Conditions]
    ) -> s.WriteResponse:
        body = {"entries": _list_entries("column" if axis == "row" else "row", entries)}
        return self._write(method, _to_path(f"{axis}s", label, "entries"), body, **given)

    def _explain(self, error: httpx2.TransportError, *, n_tries: int) -> ServiceError:
        tries = "one try" if n_tries == 1 else f"{n_tries} tries"
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        return ServiceError(
            f"{self.url} does not answer after {tries} ({reason})", code="no_answer"
        )


def _to_path(axis: str, given: Id, what: str) -> str:
    if isinstance(given, int) and not s.SMALLEST_ID <= given <= s.LARGEST_ID:
        raise BadSetting("an id that is an integer has at most 64 bits")
    text = str(given)
    if text in ("", ".", ".."):
        raise BadSetting(
            f"the id {text!r} cannot be part of a path; send it in the body of another request"
        )
    return f"/v1/{axis}/{quote(text, safe='')}/{what}"


def _choose_key(key: str | None) -> str:
    if key is None:
        return uuid4().hex
    if not isinstance(key, str) or not key or not key.isascii() or not key.isprintable():
        raise BadSetting(f"an Idempotency-Key is a text of printable ASCII; got {key!r:.100}")
    return key


def _name_fields(items: Iterable[Any], *names: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each item by name; raise `BadSetting` for items that have others."""
    expected = f"({', '.join(names)})"
    if not isinstance(items, Iterable):
        raise BadSetting(f"give a list of {expected}; got {type(items).__name__}")
    for item in items:
        try:
            fields = dict(zip(names, item, strict=True))
        except (TypeError, ValueError) as error:
            kind = type(item).__name__
            raise BadSetting(f"each item of the list is {expected}; got {kind}") from error
        yield fields


def _describe_row(history: Values | None, features: FeatureValues | None) -> dict[str, Any]:
    return {
        "history": None if history is None else _list_entries("column", history),
        "features": features,
    }


def _list_entries(other: str, entries: Any) -> list[dict[str, Any]]:
    if not isinstance(entries, Mapping):
        kind = type(entries).__name__
        raise BadSetting(
            f"entries are a mapping of ids to values, such as {{'Alien': 5}}; got {kind}"
        )
    return [{other: label, **_name_value(value)} for label, value in entries.items()]


def _name_value(value: Value | None) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {"value": value}


def _to_json(content: Any) -> bytes:
    try:
        return json.dumps(content, allow_nan=False, default=_to_plain).encode()
    except ValueError as error:
        raise BadSetting(
            "the numbers of a request must be finite and of fewer than 4,300 digits; it has NaN, "
            "infinity or a longer one"
        ) from error
    except TypeError as error:  # a key of a mapping
        raise BadSetting(f"a request cannot hold this ({error})") from error


def _to_plain(value: Any) -> Any:
    """Return an array or number of numpy as Python's, and a date as text."""
    if isinstance(value, date):
        return value.isoformat()
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "M":  # dates of numpy
        return value.astype(str).tolist()
    if kind in ("b", "i", "u", "f", "U", "O"):
        return value.tolist()
    raise BadSetting(f"a request cannot hold {type(value).__name__} {value!r:.100}")


def _decode(response: httpx2.Response, result: type[Result]) -> Result:
    try:
        return result.model_validate_json(response.content)
    except ValidationError as error:
        message = f"{response.url} did not answer as a deepmf service of this version does"
        raise ServiceError(message, status=response.status_code, code="not_understood") from error


def _read_error(response: httpx2.Response) -> ServiceError:
    try:
        detail = s.ErrorResponse.model_validate_json(response.content).error
        code, message = detail.code, detail.message
    except ValidationError:  # not the service's own answer: a proxy's, or another program's
        code, message = (
            "not_understood",
            f"{response.url} answered {response.status_code} {response.reason_phrase}",
        )
    return ServiceError(message, status=response.status_code, code=code)
