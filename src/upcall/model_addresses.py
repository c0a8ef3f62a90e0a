"""What is wrong with the address of a model server, its key, or the way there, in words that a user can act on.

It is stated before the first request: what the network says of such an address names neither the value nor the remedy.
No sentence here contains a key, a password, or the query of an address.
"""

from __future__ import annotations

import ipaddress
import os
import re
from importlib.util import find_spec
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

from upcall.lazy_pattern import LazyPattern

EXAMPLE = "http://localhost:8000/v1"

_AROUND = " \t\r\n\v\f\xa0\ufeff\u200b\u200c\u200d\u2060\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb<>,;"
"""What a copied address may have around it."""

_SCHEME = LazyPattern(r"(https?)://", re.IGNORECASE)
_NO_SCHEME = LazyPattern(r"^(?:[a-z]+[:\uff1a]?[/\\]+|https?:$|[/\\]+)", re.IGNORECASE)
"""What stands in front of a host in place of a scheme."""

_SECRET = LazyPattern(r"//[^/?#@]*@")
_OF_PLACEHOLDER = "${}<>%"
_LAST_PORT = 65_535

_API_PATHS = LazyPattern(r"/(?:(?:chat/)?completions|responses|models|messages|embeddings|api/(?:chat|generate))/*$")
"""The paths of requests, which are no part of a base URL."""


def mask_url(url: str) -> str:
    """Return an address without what may be secret in it: who logs in, and its query."""
    return _SECRET.sub("//[...]@", url.partition("?")[0])


def find_url_problem(url: str) -> str | None:
    """Return what is wrong with a base URL and what to write instead; None if it can be one."""
    plain = url.strip(_AROUND)
    if not plain:
        return f"The base URL is empty. Leave it out, or write one such as {EXAMPLE}."
    shown_url = f"The base URL {mask_url(url)!r}"
    if plain != url:
        return f"{shown_url} has blanks, quotes or other marks around it. Write {mask_url(plain)}."
    scheme = _SCHEME.match(url)
    if scheme is None:
        host = _NO_SCHEME.sub("", mask_url(url)).replace("\\", "/")
        guess = (
            f": http://{host}" if re.match(r"[\w.-]+(?:[:/.]|$)", host) and not set(host) & {*_OF_PLACEHOLDER} else ""
        )
        return f"{shown_url} must begin with http:// or https://{guess}."
    place = _place_of(url[scheme.end() :])
    problem = _find_place_problem(place)
    return None if problem is None else f"{shown_url} {problem} Write one such as {EXAMPLE}."


def _place_of(rest: str) -> str:
    """Return the host and the port of what stands behind a scheme."""
    return re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]


def _find_place_problem(place: str) -> str | None:
    """Return what is wrong with a host and its port."""
    if not place:
        return "has no host."
    if bad := next((each for each in place if each in _OF_PLACEHOLDER and "%25" not in place), None):
        return f"has {bad!r} in its host: a variable that was not replaced?"
    if bad := next((each for each in place if each.isspace() or not each.isprintable() or each in '\\"^`|'), None):
        return f"has {bad!r} in its host."
    host, port, problem = _split(place)
    if problem is None and port and not (re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) <= _LAST_PORT):
        problem = f"has the port {port!r}, which must be a number from 1 to {_LAST_PORT}."
    return problem or _find_host_problem(host)


def _split(place: str) -> tuple[str, str, str | None]:
    """Return the host, the port, and what is wrong with the brackets around an address of IPv6."""
    if not place.startswith("["):
        host, _, port = place.partition(":")
        is_bare = port.count(":") > 0 and re.fullmatch(r"[0-9a-fA-F:]+", place)
        return host, port, "has an address of IPv6 without its brackets [ and ]." if is_bare else None
    inner, closed, port = place[1:].partition("]")
    if not closed or (port and not port.startswith(":")):
        return inner, "", "has a bracket that is not closed."
    try:
        ipaddress.IPv6Address(inner.partition("%")[0])
    except ValueError:
        return inner, "", f"has {inner!r} in brackets, which is not an address of IPv6."
    return inner, port[1:], None


def _find_host_problem(host: str) -> str | None:
    if not host:
        return "has no host."
    if ":" in host:
        return None
    try:
        if re.fullmatch(r"[0-9]+(?:\.[0-9]+){3}", host):
            ipaddress.IPv4Address(host)
        else:
            host.encode("idna")
    except (ValueError, UnicodeError):
        return f"has the host {host!r}, which no server can have."
    return None


def find_key_problem(key: str) -> str | None:
    """Return what is wrong with a key, which is not shown, and what to do; None if it can be one."""
    if not key:
        return None
    bad = next((each for each in key if not " " <= each <= "~"), None)
    if bad is None and key == key.strip():
        return None
    bad = bad or " "
    what = "a line break" if bad in "\r\n" else "a blank" if bad.isspace() else f"a character (U+{ord(bad):04X})"
    where = "at its end" if key.rstrip(bad) != key else "at its beginning" if key.lstrip(bad) != key else "within it"
    return f"The API key has {what} {where}, which no key has. Set it again without, in OPENAI_API_KEY or api_key."


def describe_key_form(key: str) -> str:
    """Return what is unusual about the form of a key that was refused; empty if nothing is."""
    if key[:1] in "\"'" or key[-1:] in "\"'":
        return " The key has quotes around it: leave them out."
    if re.match(r"bearer\s", key, re.IGNORECASE):
        return " The key begins with 'Bearer', which is added by itself: leave it out."
    if set(key) & {"$", "{", "<"}:
        return " The key looks like a variable that was not replaced."
    return ""


def find_environment_problem() -> str | None:
    """Return which variable of the environment keeps a client from being made, and what to do; None if none does."""
    for name, value in os.environ.items():
        if value.strip() and name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            if problem := _find_proxy_problem(value):
                return f"The proxy {mask_url(value)!r} in {name} {problem} Correct it, or unset {name}."
        elif value and name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            if not Path(value).exists():
                return f"{name} names {value!r}, which is not there. Correct it, or unset {name}."
            if name == "SSL_CERT_FILE" and not _holds_certificates(value):
                return f"{name} names {value!r}, which holds no certificates. Correct it, or unset {name}."
    return None


def _find_proxy_problem(url: str) -> str | None:
    scheme, parted, rest = url.partition("://")
    if not parted:
        scheme, rest = "http", url
    if scheme.lower().startswith("socks") and find_spec("socksio") is None:
        return "needs a package: pip install socksio."
    if scheme.lower() not in ("http", "https", "socks5", "socks5h"):
        return "must begin with http://, https:// or socks5://."
    return _find_place_problem(rest.split("/")[0].rpartition("@")[2])


def _holds_certificates(file: str) -> bool:
    import ssl

    try:
        ssl.create_default_context(cafile=file)
    except OSError:
        return False
    return True


def find_environment_proxy(url: str) -> str | None:
    """Return the proxy that requests to a URL go through, with the variable that says so; None if there is none."""
    scheme, _, rest = url.partition("://")
    proxies = getproxies()
    name = scheme if scheme in proxies else "all"
    if name not in proxies or proxy_bypass(_place_of(rest)):
        return None
    return f"{mask_url(proxies[name])} ({name.upper()}_PROXY)"


def advise_on_path(url: str) -> str | None:
    """Return what may be wrong with the base URL of a request to `url` that no server knows; None for a usual one."""
    base = _API_PATHS.sub("", mask_url(url)).rstrip("/")
    if tail := _API_PATHS.search(base):
        return f"The base URL {base} ends with the path of a request: write {base[: tail.start()]}."
    if base.endswith("/v1/v1"):
        return f"The base URL {base} has /v1 twice: write {base.removesuffix('/v1')}."
    if base.count("/") == 2:
        return f"The base URL {base} has no path: most servers need {base}/v1."
    return None
