"""Ask an application without a network: a client that keeps its cookies, as a browser does."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from charllm.explorer.app import build_app
from charllm.explorer.safety import check_access

LOCAL = "http://127.0.0.1:8765"


class Client:
    """Asks for what needs no worker: the application's workers are not started. A token that is given is not sent."""

    def __init__(
        self, host: str = "127.0.0.1", token: str | None = None, address: str = LOCAL, store: Path | None = None
    ) -> None:
        access = check_access(host, token)
        self._app, self._address = build_app(store, access), address
        self._headers = {} if token else {"authorization": f"Bearer {access.token}"}
        self._cookies = httpx.Cookies()

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self._ask("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self._ask("POST", path, **more)

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url=self._address, cookies=self._cookies, headers=self._headers
            ) as http:
                response = await http.request(method, path, **more)
                self._cookies = http.cookies
                return response

        return asyncio.run(ask())
