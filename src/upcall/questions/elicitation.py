"""A question that an MCP server has for its user (``elicitation/create``): as a question of a run, and the answer back.

A form is one question with these fields, a page is shown with its address. Only the human answers: these are risk
confirmations, so no fact, no earlier answer, no other agent and no default stands in. What a server suggests for a
field is shown with it, and does not stand in it.

Specification: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from upcall.errors import UnusableSchema, UserInputRequired
from upcall.questions.answer import Answer, Outcome
from upcall.questions.answer_form import AnswerForm
from upcall.questions.elicited_form import ElicitedForm
from upcall.questions.json_values import find_problem, is_entangled, resolve_root
from upcall.questions.question import MAX_LABEL_CHARS, ClarificationType, Option, Side
from upcall.questions.tool_context import find_answer
from upcall.text import one_line, quote, shorten, unify_minus

ElicitResult: TypeAlias = dict[str, Any]
"""What the server gets: its ``action`` (accept, decline or cancel), and the ``content`` of a form."""

MAX_MESSAGE_CHARS = 2_000
MAX_URL_CHARS = 1_000

_MADE_OF_OTHERS = ("$ref", "allOf", "anyOf", "oneOf")

_YES, _NO = "elicitation:yes", "elicitation:no"

_NO_PASSWORD = "No server may ask for a password or a key in this way."


class UnusableRequest(Exception):
    """A server asks for what cannot be asked of the user; the text says why, in one line."""


class _Spec(BaseModel, defer_build=True):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class _Const(_Spec):
    const: str
    title: str | None = None


class _Items(_Spec):
    enum: tuple[str, ...] = ()
    any_of: tuple[_Const, ...] = ()


class _Field(_Spec):
    """One value: the flat subset of JSON Schema that a field of the protocol has, `enumNames` of its older version
    too."""

    type: Literal["string", "number", "integer", "boolean", "array"] = "string"
    title: str | None = None
    description: str | None = None
    enum: tuple[str, ...] = ()
    enum_names: tuple[str, ...] = ()
    one_of: tuple[_Const, ...] = ()
    items: _Items = _Items()

    def choices(self) -> list[tuple[str, str]]:
        """Return what may be chosen, each with its title."""
        titled = self.one_of or self.items.any_of
        if titled:
            return [(each.const, each.title or each.const) for each in titled]
        values = self.enum or self.items.enum
        names = self.enum_names if len(self.enum_names) == len(values) else values
        return list(zip(values, names, strict=True))


class _Request(_Spec):
    mode: Literal["form", "url"] = "form"
    message: str = ""
    requested_schema: dict[str, JsonValue] = {}
    url: str = ""


def digest_request(params: Mapping[str, Any]) -> str:
    """Return a digest of what a request asks: by it a server that asks the same again is known. Of a page's address
    only the host counts: the rest often is another one each time."""
    read = {name: params.get(name) for name in ("mode", "message", "requestedSchema")}
    read["host"] = "/".join(str(params.get("url") or "").split("/", 3)[:3])
    return blake2b(json.dumps(read, sort_keys=True).encode(errors="replace"), digest_size=16).hexdigest()


def answer_request(params: Mapping[str, Any], server: str, call: str, earlier: int = 0) -> ElicitResult:
    """Return the result of a server's request, from the answers that the tool call that runs was given.

    Args:
        params: the request's, as JSON with the protocol's names.
        server: how the person knows the server.
        call: in which call it asks.
        earlier: how often this call was asked the same already: those answers do not count again.

    Raises:
        UserInputRequired: the person has to be asked (once more).
        UnusableRequest: it cannot be put.
    """
    try:
        request = _Request.model_validate(params)
    except ValidationError as error:
        raise UnusableRequest(f"its form cannot be shown ({_name_problem(error)})") from error
    where = f" Asked {'again ' if earlier else ''}in the call {call}{f' (number {earlier + 1})' if earlier else ''}."
    if request.mode == "url":
        return _answer_page(request, server, where)
    return _answer_form(request, server, where)


def _answer_page(request: _Request, server: str, where: str) -> ElicitResult:
    host, warning = _check_address(request.url)
    text = f"{_introduce(server, 'wants you to open a page', request.message)}\n{request.url}\nHost: {host}"
    options = [
        Option(label="Done, I was there", id=_YES, side=Side.YES),
        Option(label="No, I do not open it", id=_NO, side=Side.NO),
    ]
    context = f"Nothing opens it but you, in your browser, if you trust {host}.{warning}{where}"
    answer = _find(text, options, context)
    return {"action": "accept"} if _read_choice(answer, options) == _YES else _refusal(answer)


def _check_address(url: str) -> tuple[str, str]:
    """Return the host of a page, and what is odd about its address, if anything.

    Raises:
        UnusableRequest: it is not an address of a page, or cannot be shown whole.
    """
    try:
        parts = urlsplit(url)
        host, has_user = parts.hostname or "", parts.username is not None
        ascii_host = host.encode("idna").decode()
    except (ValueError, UnicodeError) as error:
        raise UnusableRequest("the address of its page is not a web address") from error
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        raise UnusableRequest("the address of its page is not a web address")
    if len(url) > MAX_URL_CHARS:
        raise UnusableRequest(f"the address of its page is too long to be shown (at most {MAX_URL_CHARS} characters)")
    odd = []
    if has_user:
        odd.append("a name stands before the @, which may pass for the host")
    if "xn--" in ascii_host:
        odd.append("the host is written with letters that may look like others")
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        odd.append("it is not encrypted")
    return ascii_host, f" Take care: {'; '.join(odd)}." if odd else ""


def _answer_form(request: _Request, server: str, where: str) -> ElicitResult:
    asks = _introduce(server, "asks", request.message)
    whole = resolve_root(request.requested_schema)
    if not whole.get("properties"):
        if whole.get("type", "object") != "object" or any(each in whole for each in _MADE_OF_OTHERS):
            raise UnusableRequest("its form cannot be shown (it is not an object with fields)")
        options = [Option(label="Yes", id=_YES, side=Side.YES), Option(label="No", id=_NO, side=Side.NO)]
        answer = _find(asks, options, f"Yes accepts it.{where}")
        return {"action": "accept", "content": {}} if _read_choice(answer, options) == _YES else _refusal(answer)
    try:
        form = ElicitedForm(request.requested_schema)
    except UnusableSchema as error:
        raise UnusableRequest(f"its form cannot be shown ({error})") from error
    wrong, draft = "", None
    for number in count(1):  # Each answer that the server would not take makes it another question.
        answer = _find(asks, (), f"{wrong}{_NO_PASSWORD}{where}", form.schema, draft)
        if answer.outcome is not Outcome.ANSWERED:
            return _refusal(answer)
        draft = json.loads(answer.text)
        content = form.read(draft)
        problem = form.find_problem(content)
        if problem is None:
            return {"action": "accept", "content": content}
        times = "" if number == 1 else f" ({number} times so far)"
        wrong = f"What was answered does not fit{times}: {problem}. "
    raise AssertionError("numbers do not end")


class ValueForm:
    """What an asker outside wants to get: one value, described like a field of a form, or an object of several fields.

    Raises:
        UnusableRequest: it cannot be asked for.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        schema = self._schema = resolve_root(schema)
        self.has_fields = schema.get("type") == "object" or "properties" in schema
        """Whether it is an object, whose schema is that of the answer."""
        try:
            if self.has_fields:
                AnswerForm.of(schema)
            elif is_entangled(schema):
                raise UnusableRequest("its schema has too many alternatives in one another")
            self._field = _Field.model_validate({} if self.has_fields else schema)
        except ValidationError as error:
            raise UnusableRequest(f"its schema cannot be asked for ({_name_problem(error)})") from error
        except UnusableSchema as error:
            raise UnusableRequest(str(error)) from error
        is_flag = self._field.type == "boolean"
        self._values: dict[str, JsonValue] = {"Yes": True, "No": False} if is_flag else dict(_list_options(self._field))

    @property
    def labels(self) -> list[str]:
        """What may be chosen; nothing if any text may be."""
        return [*self._values]

    @property
    def several(self) -> bool:
        """Whether several of them may be chosen."""
        return self._field.type == "array"

    def read(self, answer: Answer) -> tuple[JsonValue, str | None]:
        """Return the value that a person gave, and what is wrong with it."""
        if self.has_fields:  # The question may have been asked without this schema.
            try:
                return dict(AnswerForm.of(self._schema).check(json.loads(answer.text))), None
            except (ValueError, TypeError, AttributeError) as error:
                return None, one_line(str(error), 200)
        value = _read_value(self._field, answer, self._values)
        problem = "it is none of the values" if value is None else find_problem(self._schema, value)
        return (value, None) if problem is None else (None, problem)


def _name_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return one_line(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}", 200)


def _list_options(field: _Field) -> Iterator[tuple[str, JsonValue]]:
    """Yield the choices by labels that differ in more than their case."""
    taken: set[str] = set()
    for value, title in field.choices():
        plain = one_line(title, MAX_LABEL_CHARS - 100) or "(empty)"
        label, number = plain, 1
        if label.casefold() in taken and value != title:
            label = f"{plain} ({one_line(value, 60)})"
        while label.casefold() in taken:
            number += 1
            label = f"{plain} ({number})"
        taken.add(label.casefold())
        yield label, value


def _read_value(field: _Field, answer: Answer, values: Mapping[str, JsonValue]) -> JsonValue:
    """Read the value that a person gave; None if it is none of those to choose from."""
    parts = list(answer.selected) or ([part.strip() for part in answer.text.split(",")] if values else [answer.text])
    if values:
        by_label = {label.casefold(): value for label, value in values.items()}
        known = [by_label[each.casefold()] for each in parts if each.casefold() in by_label]
        if len(known) < len(parts):
            return None
        return known if field.type == "array" else known[0]
    match field.type:
        case "array":
            return [part.strip() for part in answer.text.split(",") if part.strip()]
        case "integer" | "number":
            return _read_number(answer.text)
        case _:
            return answer.text


def _read_number(text: str) -> JsonValue:
    """Read a number as it is written; what is none stays text, which no schema of a number takes."""
    for kind in (int, float):
        try:
            return kind(unify_minus(text.strip()))
        except ValueError:
            continue
    return text


def _introduce(server: str, does: str, message: str) -> str:
    body = shorten(message.strip(), MAX_MESSAGE_CHARS, " [... cut]")
    return f"The MCP server {one_line(server, 80)} {does}:\n{quote(body)}"


def _find(
    text: str,
    options: Sequence[Option],
    context: str,
    schema: Mapping[str, JsonValue] | None = None,
    draft: Mapping[str, JsonValue] | None = None,
) -> Answer:
    kind = ClarificationType.RISK_CONFIRMATION.value
    free = None if schema is not None else False
    return find_answer(
        UserInputRequired(
            text,
            options,
            context=context,
            clarification_type=kind,
            again=True,
            allow_free_text=free,
            schema=schema,
            draft=draft,
        )
    )


def _read_choice(answer: Answer, options: Sequence[Option]) -> str | None:
    """Return the id of the one option that the person chose."""
    ids = [each.id for each in options if each.label in answer.selected]
    return ids[0] if len(ids) == 1 and answer.outcome is Outcome.ANSWERED else None


def _refusal(answer: Answer) -> ElicitResult:
    """Return the result of what was not accepted: declined by the person, or answered by nobody."""
    is_refusal = answer.outcome in (Outcome.ANSWERED, Outcome.DECLINED, Outcome.SKIPPED)
    return {"action": "decline" if is_refusal else "cancel"}
