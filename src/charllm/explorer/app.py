"""The explorer's web application: what may be asked over HTTP, and who answers it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from charllm.errors import CharllmError, SpecError
from charllm.explorer.choices import list_choices
from charllm.explorer.frontend import assets
from charllm.explorer.live import Lookout
from charllm.explorer.request import MOST_BODY_BYTES, PlanRequest, RunRequest, read_plan_request, read_run_request
from charllm.explorer.safety import MOST_ANSWERED, Access, Guard
from charllm.explorer.store import find_inside, is_stored, list_store
from charllm.explorer.stream import Events, Latest
from charllm.explorer.workers import Pool, Reply
from charllm.measure.live.watcher import check_run
from charllm.units import format_bytes

LONGEST_BODY_S = 10.0
COUPLED_NICE, PLAN_NICE = 5, 10
USUAL_FAST_S, LONGEST_FAST_WAIT_S = 0.01, 0.1
"""Who would wait longer for a fast answer is told at once when to ask again."""
MOST_PLANS = 8
"""Searches that may wait: there is one worker for them."""
USUAL_PLAN_S, LONGEST_PLAN_S = 10.0, 90.0
"""A search is ended after so long, with its worker."""
ANSWERS, PAGES, CHANGES = range(3)
"""Which of the slow jobs goes first."""
MOST_COMPARED = 8
LONGEST_PAGE_S = 60.0
"""For the page of a large study."""


class Explorer:
    """What the application holds while it runs."""

    def __init__(self, store: Path | None) -> None:
        self.store = store
        self.fast = Pool(1, store, most_waiting=MOST_ANSWERED, longest_wait_s=LONGEST_FAST_WAIT_S, job_s=USUAL_FAST_S)
        self.slow = Pool(2, store, nice=COUPLED_NICE, most_waiting=MOST_ANSWERED)
        self.plans = Pool(1, store, nice=PLAN_NICE, most_waiting=MOST_PLANS, job_s=USUAL_PLAN_S)
        self.planning = asyncio.Lock()
        self.latest, self.lookout = Latest(), Lookout()
        self._look: asyncio.Task[dict[str, Any]] | None = None

    async def answers(self, wanted: RunRequest) -> AsyncGenerator[Reply]:
        """Yield the fast answer, then the coupled one."""
        fast = await self.fast.run({"kind": "fast", "words": wanted.words}, wanted.client)
        yield fast
        if fast.event != "error" and wanted.coupled:
            yield await self.slow.run({"kind": "coupled", "words": wanted.words}, wanted.client, ANSWERS)

    async def changes(self, wanted: RunRequest) -> AsyncGenerator[Reply]:
        """Yield what single changes would bring."""
        yield await self.slow.run({"kind": "changes", "words": wanted.words}, wanted.client, CHANGES)

    async def plan(self, wanted: PlanRequest) -> AsyncGenerator[Reply]:
        """Yield how far the search is, then the page of the plan. Its worker starts when it is first asked for."""
        async with self.planning:
            if not self.plans.is_started:
                await self.plans.start()
        job = {"kind": "plan", **wanted._asdict()}
        async with contextlib.aclosing(self.plans.stream(job, wanted.client, LONGEST_PLAN_S)) as events:
            async for reply in events:
                yield reply

    async def page(self, paths: list[str], client: str) -> AsyncGenerator[Reply]:
        """Yield the page of a stored run or study, or of several runs side by side."""
        folders = [await asyncio.to_thread(find_inside, self.store, path) for path in paths]
        for path, folder in zip(paths, folders, strict=True):
            if not is_stored(folder):
                raise SpecError("path", path, "a finished run or study; `charllm show` finishes a recording")
        job = {"kind": "page", "folders": [str(folder) for folder in folders]}
        yield await self.slow.run(job, client, PAGES, LONGEST_PAGE_S)

    async def listing(self) -> dict[str, Any]:
        """List the store; all who ask during one look get what it finds."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(asyncio.to_thread(list_store, self.store))
        return await asyncio.shield(self._look)


def build_app(store: Path | None, access: Access) -> FastAPI:
    """Build the application; its workers start with it and end with it."""
    explorer = Explorer(store)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            await asyncio.gather(explorer.fast.start(), explorer.slow.start(), asyncio.to_thread(list_choices))
            yield
        finally:
            explorer.lookout.close()
            await asyncio.gather(*(pool.close() for pool in (explorer.fast, explorer.slow, explorer.plans)))

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.explorer = explorer
    app.add_middleware(Guard, access=access)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(CharllmError, _refused)
    app.add_exception_handler(Exception, _failed)
    _add_files(app)
    _add_answers(app)
    _add_plan(app)
    _add_store(app)
    return app


def _add_files(app: FastAPI) -> None:
    @app.get("/")
    async def index(request: Request) -> Response:
        return _file(request, "index.html")

    @app.get("/assets/{name}")
    async def asset(request: Request, name: str) -> Response:
        return _file(request, name)

    @app.get("/api/choices")
    async def choices() -> JSONResponse:
        return JSONResponse(list_choices())


def _add_answers(app: FastAPI) -> None:
    @app.post("/api/answers")
    async def answers(request: Request) -> Response:
        explorer, wanted = _explorer(request), read_run_request(await _read_body(request))
        return _stream(explorer, wanted, explorer.answers(wanted), "answers", "changes")

    @app.post("/api/changes")
    async def changes(request: Request) -> Response:
        explorer, wanted = _explorer(request), read_run_request(await _read_body(request))
        return _stream(explorer, wanted, explorer.changes(wanted), "changes")


def _add_plan(app: FastAPI) -> None:
    @app.post("/api/plan")
    async def plan(request: Request) -> Response:
        explorer, wanted = _explorer(request), read_plan_request(await _read_body(request))
        return Events(explorer.plan(wanted), explorer.latest.held(wanted.client, "plan"))


def _add_store(app: FastAPI) -> None:
    @app.get("/api/store")
    async def store(request: Request) -> JSONResponse:
        return JSONResponse(await _explorer(request).listing())

    @app.get("/api/store/page")
    async def page(request: Request, path: str = "") -> Response:
        return _page(request, [path])

    @app.get("/api/store/compare")
    async def compare(request: Request, path: Annotated[list[str], Query()] = []) -> Response:  # noqa: B006
        if not 2 <= len(path) <= MOST_COMPARED:
            raise SpecError("path", len(path), f"2 to {MOST_COMPARED} runs to compare")
        return _page(request, path)

    @app.get("/api/live")
    async def live(request: Request, path: str = "") -> Response:
        explorer = _explorer(request)
        folder = await asyncio.to_thread(find_inside, explorer.store, path)
        try:
            check_run(folder)
        except SpecError:
            raise SpecError("path", path, "the folder of a measurement") from None
        return Events(explorer.lookout.follow(folder, path), explorer.latest.held(object(), "live"))


def _explorer(request: Request) -> Explorer:
    explorer: Explorer = request.app.state.explorer
    return explorer


def _stream(explorer: Explorer, wanted: RunRequest, events: AsyncGenerator[Reply], *kinds: str) -> Events:
    """Answer a client, whose earlier requests of these kinds end now."""
    return Events(events, explorer.latest.held(wanted.client, *kinds))


def _page(request: Request, paths: list[str]) -> Events:
    explorer, client = _explorer(request), request.client.host if request.client else ""
    return Events(explorer.page(paths, client), explorer.latest.held(object(), "page"), streamed=False)


async def _read_body(request: Request) -> bytes:
    """Read a body of bounded size in bounded time."""
    body = b""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "a body of application/json is expected")
    try:
        async with asyncio.timeout(LONGEST_BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BODY_BYTES:
                    raise HTTPException(413, f"a body of at most {format_bytes(MOST_BODY_BYTES)} is expected")
    except TimeoutError:
        raise HTTPException(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed before the body had arrived") from None
    return body


def _file(request: Request, name: str) -> Response:
    found = assets().get(name)
    if found is None:
        raise HTTPException(404, "there is no such file")
    headers = {"etag": found.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type=found.type, headers=headers)


async def _refused(_request: Request, error: Exception) -> Response:
    """Write what is wrong with a request as JSON, with the field that is to blame."""
    if isinstance(error, HTTPException):
        status, field, message = error.status_code, "", str(error.detail)
    else:
        status, field, message = 400, getattr(error, "field", ""), str(error)
    return Response(
        json.dumps({"status": status, "field": field, "message": message}), status, media_type="application/json"
    )


async def _failed(_request: Request, error: Exception) -> Response:
    """Say no more of a fault of ours than its kind; the server prints the rest."""
    body = {"status": 500, "field": "", "message": f"the request failed ({type(error).__name__})"}
    return JSONResponse(body, 500)
