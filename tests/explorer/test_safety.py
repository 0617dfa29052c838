"""Who may ask, and what every response says to a browser."""

from pathlib import Path

import pytest

from charllm.cli.serve import open_browser
from charllm.errors import SpecError
from charllm.explorer.safety import COOKIE, check_access, is_loopback
from tests.explorer.asking import LOCAL, Client

TOKEN = "a-token-of-some-length"


def test_every_response_forbids_what_pages_do_not_need() -> None:
    for path in ("/", "/api/choices", "/assets/report.js", "/nowhere"):
        headers = Client().get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] in ("no-store", "no-cache")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[", "10.0.0.1"])
def test_a_foreign_host_is_refused(host: str) -> None:
    assert Client().get("/api/choices", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8765", "127.0.0.1:1", "[::1]:8765"])
def test_names_of_this_machine_are_known(host: str) -> None:
    assert Client().get("/api/choices", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://["}, {"sec-fetch-site": "cross-site"},
     {"origin": "http://127.0.0.1:1"}],
)  # fmt: skip
def test_a_post_from_a_foreign_page_is_refused(headers: dict[str, str]) -> None:
    assert Client().post("/api/answers", json={}, headers=headers).status_code == 403
    own = Client().post("/api/answers", json={}, headers={"origin": LOCAL, "sec-fetch-site": "same-origin"})
    assert (own.status_code, own.json()["field"]) == (400, "client")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_token_is_made_and_asked_for_on_every_address(host: str) -> None:
    """Other users of a login node reach its loopback addresses."""
    for path in ("/", "/api/choices", "/api/store", "/assets/report.js"):
        assert Client(token=TOKEN).get(path).status_code == 401
    made = [check_access(host, None).token for _ in range(2)]
    assert all(len(token) >= 32 for token in made)
    assert made[0] != made[1]
    assert TOKEN not in repr(check_access("0.0.0.0", TOKEN))


def test_a_token_is_taken_from_a_header_and_for_the_page_from_the_address_that_sets_a_cookie() -> None:
    asked = Client("0.0.0.0", TOKEN, "http://192.0.2.7:8765")
    for refused in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": f"{COOKIE}="},
    ):
        assert asked.get("/api/choices", headers=refused).status_code == 401
    assert asked.get("/?token=wrong").status_code == 401
    assert asked.get(f"/api/choices?token={TOKEN}").status_code == 401
    assert asked.get("/api/choices", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    opened = asked.get(f"/?token={TOKEN}")
    assert opened.status_code == 200
    assert {"HttpOnly", "SameSite=Strict"} <= set(opened.headers["set-cookie"].split("; "))
    assert asked.get("/assets/explorer.js").status_code == 200
    assert asked.get("/assets/explorer.js", headers={"host": "evil.example"}).status_code == 421


def test_what_a_browser_sends_to_other_ports_opens_nothing_but_the_page() -> None:
    """Cookies of a host go to all of its ports, where others may listen."""
    asked = Client(token=TOKEN)
    cookie = asked.get(f"/?token={TOKEN}").headers["set-cookie"].split(";")[0]
    assert TOKEN not in cookie
    key = cookie.partition("=")[2]
    for offered in ({"cookie": cookie}, {"cookie": f"{COOKIE}={TOKEN}"}, {"authorization": f"Bearer {key}"}):
        assert Client(token=TOKEN).get("/api/choices", headers=offered).status_code == 401
    assert Client(token=TOKEN).get(f"/?token={key}").status_code == 401
    assert Client(token=TOKEN).get("/", headers={"cookie": cookie}).status_code == 200


@pytest.mark.parametrize("token", ["", "short", "with a line\nbreak in it", "größer als nötig wäre"])
def test_a_weak_token_is_refused(token: str) -> None:
    with pytest.raises(SpecError, match="--token"):
        check_access("127.0.0.1", token)


def test_loopback_is_told_from_the_rest() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.7", "example.org", "")))


@pytest.mark.parametrize(
    "path", ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%2fapp.py", "/assets/app.py"]
)
def test_only_files_of_the_front_end_are_sent(path: str) -> None:
    assert Client().get(path).status_code == 404


def test_a_file_that_has_not_changed_is_not_sent_again() -> None:
    first = Client().get("/assets/explorer.js")
    again = Client().get("/assets/explorer.js", headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


def test_bodies_are_bounded_and_of_one_type() -> None:
    json_type = {"content-type": "application/json"}
    assert Client().post("/api/answers", content=b"x" * 70_000, headers=json_type).status_code == 413
    assert Client().post("/api/answers", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    assert Client().get("/api/answers").status_code == 405
    refused = Client().post("/api/changes", content=b"[[", headers=json_type)
    assert (refused.status_code, refused.json()["field"]) == (400, "body")


def test_choices_name_what_a_request_may_hold() -> None:
    choices = Client().get("/api/choices").json()
    assert {"llama3-70b", "mixtral-8x7b"} <= {model["name"] for model in choices["models"]}
    (cluster,) = [each for each in choices["clusters"] if each["name"] == "charllm-ppt-h200"]
    assert round(cluster.pop("memory_gib")) == 140
    assert cluster == {"name": "charllm-ppt-h200", "gpus": 32, "gpu": "h200", "nodes": 4, "power_cap_w": 700.0}
    assert "throughput" in choices["objectives"]
    assert "fsdp" in choices["frameworks"]
    assert choices["limits"]["words"]["clock_cap"]["high"] == pytest.approx(10_000)
    assert choices["limits"]["words"]["tp"]["low"] == 1


def test_without_a_store_there_is_nothing_to_open(tmp_path: Path) -> None:
    listed = Client().get("/api/store").json()
    assert listed["entries"] == []
    assert "charllm serve STORE" in listed["note"]
    refused = Client().get("/api/live", params={"path": str(tmp_path)})
    assert (refused.status_code, refused.json()["field"]) == (400, "path")


def test_a_browser_is_opened_through_a_private_file_so_that_no_list_of_processes_shows_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    open_browser(f"http://127.0.0.1:8765/?token={TOKEN}", str(tmp_path))
    (page,) = tmp_path.iterdir()
    assert opened == [page.as_uri()]
    assert TOKEN in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
