"""The web, arXiv and Wikipedia, against real servers on loopback that speak their protocols."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from files_to_read import pdf
from tables import rows
from web_servers import Request, Sent, serving

from upcall.addresses import is_public
from upcall.research.network_sources import network_sources
from upcall.research.settings import ResearchSettings
from upcall.research.sources import SourceUnavailable
from upcall.research.sources.arxiv import Arxiv
from upcall.research.sources.documents import Documents
from upcall.research.sources.fences import parse_fenced
from upcall.research.sources.http import MAX_BYTES, fetch
from upcall.research.sources.web import Brave, Ddgs, Tavily, Web
from upcall.research.sources.wikipedia import Wikipedia
from upcall.research.sources_workbench import SourcesWorkbench
from upcall.settings import Settings

KEY = "tvly-very-secret"
ARTICLE = """<html><head><title>Wind</title></head><body><article><h1>Wind power</h1><p>Wind power grew by ten percent.
Everybody who has a roof put up panels too, and the grid was extended in the north and in the south.</p></article>"""


def as_json(value: object) -> Sent:
    return Sent(json.dumps(value), "application/json")


def web(*hosts: str) -> Web:
    return Web(Tavily(KEY), private_hosts=hosts)


# -- web search -------------------------------------------------------------------------------------------------------

PAGES = [
    {"url": "https://a.example/1", "title": "Wind", "content": "It grew.", "score": 0.9},
    {"url": "javascript:alert(1)", "title": "Bad", "content": "x"},
    {"url": "https://b.example/2", "title": "Sun", "content": "It grew more."},
]


async def test_tavily_is_asked_with_the_key_in_a_header() -> None:
    with serving({"/search": as_json({"results": PAGES})}) as server:
        hits = await Web(Tavily(KEY, server.url)).search("  wind\npower ", 5)
    assert [(hit.source, hit.ref, hit.title, hit.text) for hit in hits] == [
        ("web", "https://a.example/1", "Wind", "It grew."),
        ("web", "https://b.example/2", "Sun", "It grew more."),
    ]
    (request,) = server.requests
    assert (request.method, request.headers["Authorization"]) == ("POST", f"Bearer {KEY}")
    assert json.loads(request.body) == {"query": "wind power", "max_results": 5}


async def test_brave_is_asked_with_the_key_in_a_header() -> None:
    results = {"web": {"results": [{"url": "https://a.example", "title": "Wind", "description": "It grew."}]}}
    with serving({"/res/v1/web/search": as_json(results)}) as server:
        (hit,) = await Web(Brave(KEY, server.url)).search("wind", 50)
    assert (hit.ref, hit.title, hit.text) == ("https://a.example", "Wind", "It grew.")
    (request,) = server.requests
    assert (request.headers["X-Subscription-Token"], request.query["q"], request.query["count"]) == (KEY, "wind", "20")


async def test_ddgs_without_a_network_says_so() -> None:
    with pytest.raises(SourceUnavailable, match=r"Web search \(ddgs\) cannot be reached"):
        await Web(Ddgs(proxy="http://127.0.0.1:9")).search("wind")


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (Sent(status=401), "Tavily refuses access (HTTP 401)."),
        (Sent(status=429), "Tavily is overloaded or broken (HTTP 429)."),
        (Sent(status=503), "Tavily is overloaded or broken (HTTP 503)."),
        (Sent("<html>"), "Tavily sent something that is not JSON."),
    ],
)
async def test_search_that_fails_is_a_line_without_its_key(
    answer: Sent, output: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(answer) as server:
        workbench = SourcesWorkbench([Web(Tavily(KEY, server.url))])
        result = await workbench.call_tool("search_web", {"words": "wind"})
    assert (result.is_error, result.to_text()) == (True, f"{output} Go on without it, and say so.")
    assert KEY not in caplog.text


@pytest.mark.parametrize("answer", [{}, {"results": None}, {"results": [1, {"url": 5}]}, [], 7])
async def test_odd_answer_is_no_hit(answer: object) -> None:
    with serving(as_json(answer)) as server:
        assert await Web(Tavily(KEY, server.url)).search("wind") == []


async def test_server_that_is_missing_is_a_line_for_models() -> None:
    with serving(Sent()) as server:
        pass
    with pytest.raises(SourceUnavailable, match=r"Tavily cannot be reached \(ConnectError\)"):
        await Web(Tavily(KEY, server.url)).search("wind")


# -- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_page_is_read_as_its_text_and_fetched_once() -> None:
    with serving({"/a": Sent(ARTICLE)}) as server:
        source = web("127.0.0.1")
        workbench = SourcesWorkbench([source])
        result = await workbench.call_tool("read_page", {"address": f"{server.url}/a"})
        await workbench.call_tool("read_page", {"address": f"{server.url}/a", "start": 2})
    (shown,) = parse_fenced(result.to_text())
    assert (shown.source, shown.ref) == ("web", f"{server.url}/a")
    assert "Wind power grew by ten percent." in shown.text
    assert len(server.requests) == 1


@pytest.mark.slow
async def test_pdf_on_the_web_is_read_by_pages(tmp_path: Path) -> None:
    data = pdf(tmp_path / "a.pdf", ["First.", "Second."]).read_bytes()
    with serving({"/a": Sent(data, "application/pdf")}) as server:
        passage = await web("127.0.0.1").read(f"{server.url}/a", 2)
    assert (passage.place, passage.text) == ("page 2", "Second.")


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (Sent(b"\x89PNG", "image/png"), "The page is image/png, which cannot be read as text."),
        (Sent(b"%PDF", "application/pdf"), "The page cannot be read: it is damaged or no PDF"),
        (Sent(status=404), r"The page has nothing there \(HTTP 404\)"),
        (Sent(status=302, headers={"Location": "/a"}), "The page redirects more than 5 times"),
    ],
    ids=["image", "damaged", "missing", "loop"],
)
async def test_page_that_cannot_be_read_says_why(answer: Sent, output: str) -> None:
    with serving({"/a": answer}) as server, pytest.raises(ValueError, match=output):
        await web("127.0.0.1").read(f"{server.url}/a")


async def test_page_that_is_too_large_is_given_up() -> None:
    large = Sent(b"x" * (MAX_BYTES + 1), "text/plain")
    with serving(large) as server, pytest.raises(SourceUnavailable, match="The page sent more than 10 MB"):
        await web("127.0.0.1").read(f"{server.url}/a")


@pytest.mark.slow
async def test_page_that_never_ends_is_given_up() -> None:
    text = r"The page did not answer within 0\.3 seconds"
    with serving(Sent("begun", forever=True)) as server, pytest.raises(SourceUnavailable, match=text):
        await fetch("The page", f"{server.url}/a", seconds=0.3)


# -- private addresses ------------------------------------------------------------------------------------------------

HOSTS = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::1]", "[::]"]
HOSTS += ["[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "127.0.0.1.", "localhost."]


@pytest.mark.parametrize("host", HOSTS)
async def test_no_way_of_writing_it_reaches_this_machine(host: str) -> None:
    with serving(Sent(ARTICLE)) as server, pytest.raises((ValueError, SourceUnavailable)):
        await web().read(f"http://{host}:{server.port}/a")
    assert server.requests == []


@pytest.mark.parametrize(
    "address",
    rows("network_sources/an_address_that_is_not_of_the_public_internet_is_none"),
)
def test_address_outside_the_public_internet_is_refused(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e"])
def test_address_of_the_public_internet_is_one(address: str) -> None:
    assert is_public(address)


@pytest.mark.skipif(not (shutil.which("unshare") and shutil.which("ip")), reason="no namespaces of networks")
def test_public_address_of_this_machine_is_none() -> None:
    code = "from upcall.addresses import is_public; print(is_public('93.184.215.14'), is_public('93.184.215.15'))"
    script = f'ip address add 93.184.215.14/32 dev lo && exec {sys.executable} -c "{code}"'
    done = subprocess.run(["unshare", "-rn", "sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


async def resolved(host: str, port: int) -> Sequence[str]:
    return {
        "one.test": ["127.0.0.1"],
        "two.test": ["93.184.215.14", "10.0.0.1"],
        "site.test": ["127.0.0.1"],
    }.get(host, [host])


@pytest.mark.parametrize("host", ["one.test", "two.test"])
async def test_name_with_a_private_address_is_refused(host: str) -> None:
    source, text = Web(Tavily(KEY), resolve=resolved), f"{host} is a private address, which is not read"
    with serving(Sent(ARTICLE)) as server, pytest.raises(ValueError, match=text):
        await source.read(f"http://{host}:{server.port}/a")
    assert server.requests == []


@pytest.mark.slow
async def test_connection_goes_to_the_address_that_was_checked() -> None:
    """No second look-up that could tell something else: only the first one knows this name."""
    with serving({"/a": Sent(ARTICLE)}) as server:
        source = Web(Tavily(KEY), private_hosts=["site.test"], resolve=resolved)
        passage = await source.read(f"http://site.test:{server.port}/a")
    assert "Wind power grew" in passage.text
    assert [request.headers["Host"] for request in server.requests] == [f"site.test:{server.port}"]


async def test_redirect_to_a_private_address_is_refused() -> None:
    with serving(Sent(ARTICLE)) as inner:
        for target in (f"{inner.url}/a", f"http://one.test:{inner.port}/a", "http://169.254.169.254/latest/meta-data"):
            redirect = Sent(status=302, headers={"Location": target})
            with serving(redirect) as outer:
                source = Web(Tavily(KEY), private_hosts=[f"site.test:{outer.port}"], resolve=resolved)
                with pytest.raises(ValueError, match="is a private address"):
                    await source.read(f"http://site.test:{outer.port}/a")
            assert len(outer.requests) == 1
    assert inner.requests == []


@pytest.mark.slow
async def test_redirect_within_what_is_allowed_is_followed() -> None:
    with serving({"/a": Sent(status=301, headers={"Location": "/b"}), "/b": Sent(ARTICLE)}) as server:
        passage = await Web(Tavily(KEY), private_hosts=["site.test"], resolve=resolved).read(
            f"http://site.test:{server.port}/a"
        )
    assert "Wind power grew" in passage.text


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://a.example/x", "/etc/passwd", "", "http://", "http://u:p@site.test/", "\x00"],
)
async def test_what_is_no_web_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"address|UnsupportedProtocol"):
        await Web(Tavily(KEY), resolve=resolved).read(address)


# -- Wikipedia --------------------------------------------------------------------------------------------------------


def wikipedia(request: Request) -> Sent:
    if request.query.get("list") == "search":
        found = [{"title": "Wind power", "snippet": 'The <span class="searchmatch">wind</span> &amp; more'}]
        return as_json({"query": {"search": found}})
    pages = [{"title": "Wind power", "extract": "Wind power is power.\n\n== History ==\nIt is old."}]
    missing = [{"title": request.query["titles"], "missing": True}]
    return as_json({"query": {"pages": pages if request.query["titles"] == "Wind power" else missing}})


async def test_wikipedia_is_searched_and_read() -> None:
    with serving(wikipedia) as server:
        source = Wikipedia(base_url=f"{server.url}/w/api.php")
        (hit,) = await source.search("wind", 3)
        passage = await source.read(hit.ref, 3)
        with pytest.raises(ValueError, match="There is no article 'Wynd'"):
            await source.read("Wynd")
    assert (hit.ref, hit.text) == ("Wind power", "The wind & more")
    assert (passage.ref, passage.place, passage.text) == ("Wind power", "lines 3-4", "== History ==\nIt is old.")
    assert server.requests[0].headers["User-Agent"].startswith("upcall/")


# -- arXiv ------------------------------------------------------------------------------------------------------------

FEED = """<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom"><title>q</title>
<entry><id>http://arxiv.org/abs/2401.01234v2</id><published>2024-01-02T00:00:00Z</published>
<title>Wind and
  Sun</title><summary>  We show that
wind grows. </summary><author><name>Ada Lovelace</name></author><author><name>Alan Turing</name></author></entry>
<entry><id>http://arxiv.org/api/errors#x</id><title>Error</title><summary>bad</summary></entry></feed>"""


async def test_arxiv_is_searched() -> None:
    with serving({"/api": Sent(FEED, "application/atom+xml")}) as server:
        (hit,) = await Arxiv(f"{server.url}/api", server.url).search("wind: AND sun", 3)
    assert (hit.ref, hit.title, hit.place) == ("2401.01234v2", "Wind and Sun", "abstract")
    assert hit.text == "Wind and Sun\nAda Lovelace, Alan Turing, 2024-01-02\nWe show that wind grows."
    assert server.requests[0].query["search_query"] == "all:wind AND all:AND AND all:sun"


async def test_paper_is_read_by_its_pages(tmp_path: Path) -> None:
    data = pdf(tmp_path / "a.pdf", ["First.", "Second."]).read_bytes()
    with serving({"/pdf/2401.01234": Sent(data, "application/pdf")}) as server:
        source = Arxiv(f"{server.url}/api", f"{server.url}/pdf")
        first, second = await source.read("2401.01234"), await source.read("arXiv:2401.01234", 2)
    assert (first.place, second.text, len(server.requests)) == ("pages 1-2", "Second.", 1)


async def test_paper_that_is_unavailable_gives_its_abstract() -> None:
    with serving({"/api": Sent(FEED, "application/atom+xml")}) as server:
        passage = await Arxiv(f"{server.url}/api", f"{server.url}/pdf").read("2401.01234v2")
    assert passage.place == "abstract"
    assert passage.note == "Only the abstract can be had. arXiv has nothing there (HTTP 404)."
    assert "We show that wind grows." in passage.text


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><feed xmlns="http://www.w3.org/2005/Atom">&b;</feed>'


@pytest.mark.parametrize("feed", [BOMB, "<feed", "", '<!DOCTYPE x SYSTEM "file:///etc/passwd"><feed/>'])
async def test_feed_that_is_invalid_or_a_bomb_is_refused(feed: str) -> None:
    with serving(Sent(feed, "application/atom+xml")) as server:
        source = Arxiv(server.url, server.url)
        if feed.endswith("<feed/>"):
            assert await source.search("wind") == []  # No entity is read.
        else:
            with pytest.raises(SourceUnavailable, match="arXiv sent something that is not a feed"):
                await source.search("wind")


@pytest.mark.parametrize("ref", ["../../etc/passwd", "2401.01234/../x", "http://a.example", "", "1"])
async def test_only_an_arxiv_id_is_read(ref: str) -> None:
    with pytest.raises(ValueError, match="is not an arXiv id"):
        await Arxiv("http://127.0.0.1:9", "http://127.0.0.1:9").read(ref)


# -- as they are configured -------------------------------------------------------------------------------------------


def test_network_is_used_only_where_configured() -> None:
    assert network_sources(ResearchSettings()) == []


def test_settings_turn_sources_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", KEY)
    settings = Settings.read(None, research={"sources": ["wikipedia", "web", "arxiv", "web"]})
    workbench = SourcesWorkbench(network_sources(settings.section(ResearchSettings)))
    names = [schema["name"] for schema in workbench.schemas()]
    assert names[:4] == ["search_wikipedia", "read_article", "search_web", "read_page"]
    assert names[4:] == ["search_arxiv", "read_paper"]
    assert KEY not in repr(settings)


def test_source_without_its_key_explains_it_without_tools() -> None:
    settings = Settings.read(None, research={"sources": ["web", "wikipedia"], "web_search": "tavily"})
    workbench = SourcesWorkbench(network_sources(settings.section(ResearchSettings)))
    assert workbench.problems == ("web needs a key: set TAVILY_API_KEY",)
    assert [schema["name"] for schema in workbench.schemas()] == ["search_wikipedia", "read_article"]


def test_only_documents_are_looked_into_without_a_network(tmp_path: Path) -> None:
    (tmp_path / "wind.md").write_text("Wind.")
    workbench = SourcesWorkbench([Documents([tmp_path]), Wikipedia()])
    assert workbench.local_tools == {"search_documents", "read_document"} < workbench.source_tools
