"""Where notifications go, according to the settings."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol, Self, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from upcall.setting_types import About, AnySection, AtLeastOne, Seconds, Section, Url, no_flag

EventName: TypeAlias = Literal[
    "run.started",
    "run.waiting",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "run.expired",
    "question.asked",
    "question.assigned",
    "question.answered",
    "question.overdue",
    "question.reminded",
]
MailEvent: TypeAlias = Literal["question.asked", "question.assigned", "question.reminded"]
SECRET_PREFIX = "whsec_"


def _check_secret(value: SecretStr) -> SecretStr:
    for each in value.get_secret_value().split() or [""]:
        try:
            size = len(base64.b64decode(each.removeprefix(SECRET_PREFIX), validate=True))
        except (binascii.Error, ValueError):
            size = 0
        if not 24 <= size <= 64 or not each.startswith(SECRET_PREFIX):
            raise PydanticCustomError(
                "secret",
                "it is whsec_ and 24 to 64 random bytes as base64, as from: "
                'echo "whsec_$(openssl rand -base64 32)"; two with a space between while you change it',
            )
    return value


class WebhookSettings(BaseModel, extra="forbid"):
    """A program that is notified about runs.

    Attributes:
        secret: the secret that proves who sent it; of two, the first is the new one.
        texts: whether it also gets the texts of tasks and questions; it never gets answers.
        tries: how often a delivery is sent before it is given up.
        timeout: seconds that one try may take.
    """

    url: Url
    secret: Annotated[SecretStr, AfterValidator(_check_secret)]
    events: Annotated[Sequence[EventName], Field(min_length=1)] = get_args(EventName)
    texts: bool = False
    tries: AtLeastOne = 10
    timeout: Seconds = 15


def _check_address(value: str) -> str:
    from email.errors import MessageError  # With the grammar of addresses: only senders of mail need it.
    from email.headerregistry import Address

    try:
        parsed = Address(addr_spec=value)
        has_both = bool(parsed.username) and (parsed.domain == "localhost" or "." in parsed.domain.strip("."))
    except (MessageError, ValueError, IndexError):  # The parser reads beyond the end of some truncated addresses.
        has_both = False
    if not (has_both and value.isprintable() and value.isascii() and len(value) <= 254):
        raise PydanticCustomError("address", "it is not an email address such as alice@example.org")
    return value


MailAddress = Annotated[str, AfterValidator(_check_address)]


class MailSettings(BaseModel, extra="forbid"):
    """The SMTP server that sends questions, and the addresses that get them.

    Attributes:
        security: how the connection is secured; ``none`` is for a server on this machine.
        addresses: the users' addresses. Nobody else gets mail.
        tries: how often a mail is sent before it is given up.
        timeout: seconds that one try may take.
    """

    host: str
    port: Annotated[int, BeforeValidator(no_flag), Field(ge=1, le=65535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password: SecretStr | None = None
    sender: MailAddress
    addresses: dict[str, MailAddress]
    events: Annotated[Sequence[MailEvent], Field(min_length=1)] = get_args(MailEvent)
    tries: AtLeastOne = 10
    timeout: Seconds = 30

    @model_validator(mode="after")
    def _has_both_or_none(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise PydanticCustomError("login", "give it a user and a password, or neither")
        return self


WebhookName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]


class NotificationsSettings(Section):
    """Who else is notified of what happens to runs."""

    webhooks: Annotated[
        dict[WebhookName, WebhookSettings],
        About(
            "programs to notify about runs, by name: `url`, `secret`, `events`, `texts`, `tries`, `timeout`; see "
            "[Webhooks and mail](guides/notifications.md)",
            when="to tell another program when something is asked or done",
            effect="these programs are notified of your runs",
        ),
    ] = {}
    mail: Annotated[
        MailSettings | None,
        About(
            "the SMTP server that questions are sent through, and the addresses of users; see [Webhooks and "
            "mail](guides/notifications.md#mail)",
            when="to notify people of questions",
            effect="this server gets mail about your runs",
        ),
    ] = None


@dataclass(frozen=True)
class Notifications:
    """Who is notified, where and about what.

    Attributes:
        roles: users by role.
        public_url: where browsers find the service, for links.
    """

    webhooks: Mapping[str, WebhookSettings]
    mail: MailSettings | None
    roles: Mapping[str, Collection[str]]
    public_url: str | None

    @property
    def is_any(self) -> bool:
        """Whether anybody is notified of anything."""
        return bool(self.webhooks) or self.mail is not None


class _Users(Protocol):
    @property
    def roles(self) -> Mapping[str, Collection[str]]: ...


class NotifiedSettings(Protocol):
    """The settings that say who is notified."""

    @property
    def users(self) -> _Users:
        """The section about users."""

    @property
    def sections(self) -> Mapping[str, Section]:
        """All sections by name."""

    def section(self, kind: type[AnySection]) -> AnySection:
        """Return a section by its class."""


def notifications_of(settings: NotifiedSettings) -> Notifications:
    """Return who is notified of what, according to the settings."""
    chosen = settings.section(NotificationsSettings)
    found = Notifications(chosen.webhooks, chosen.mail, settings.users.roles, None)
    if not found.is_any:
        return found
    # Where browsers find the service, if one is installed: it is another guest.
    server = settings.sections.get("server")
    return replace(found, public_url=getattr(server, "public_url", None))
