"""Mail that shows somebody a question. Its link leads to the form, and answers nothing by itself."""

from __future__ import annotations

import asyncio
import socket
from email.headerregistry import Address
from email.message import EmailMessage
from functools import cache
from urllib.parse import quote

from jinja2 import Environment

from upcall import text
from upcall.errors import UnknownRun, UpcallError, missing_extra
from upcall.html_templates import load_templates
from upcall.notifications.attempt import TAKEN, Attempt, fail
from upcall.notifications.config import MailSettings
from upcall.notifications.outbox import Delivery, DeliveryState
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.storage.store import RunStore

MAX_SUBJECT_CHARS, MAX_TASK_CHARS = 120, 1_000
NOT_OPEN = Attempt(DeliveryState.DROPPED, "the question is no longer open")


def check_mail_library() -> None:
    """Refuse to continue without the mail library.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        import aiosmtplib  # noqa: F401  (reported at the start, not at the first mail)
    except ImportError as missing:
        raise missing_extra(f"Mail needs {missing.name}", "notifications") from missing


async def send_mail(store: RunStore, mail: MailSettings, public_url: str | None, delivery: Delivery) -> Attempt:
    """Send a question once, if it is still open and the user has an address."""
    try:
        run = await store.load_run(delivery.run_id)
    except UnknownRun:
        return NOT_OPEN
    except UpcallError as error:
        return fail(text.first_line(error))
    question = next((each for each in run.questions if each.id == delivery.content), None)
    if question is None:
        return NOT_OPEN
    address = mail.addresses.get(delivery.recipient)
    if address is None:
        return fail("the settings have no address of this user", for_good=True)
    return await _submit(mail, compose(run, question, delivery, mail.sender, address, public_url), address)


async def _submit(mail: MailSettings, message: EmailMessage, address: str) -> Attempt:
    import aiosmtplib

    password = mail.password.get_secret_value() if mail.password is not None else None
    try:
        async with asyncio.timeout(mail.timeout):
            await aiosmtplib.send(
                message,
                sender=mail.sender,
                recipients=[address],
                hostname=mail.host,
                port=mail.port,
                local_hostname=socket.gethostname(),  # Otherwise it is looked up on the network, in the event loop.
                username=mail.user,
                password=password,
                timeout=mail.timeout,
                use_tls=mail.security == "tls",
                start_tls=mail.security == "starttls",
            )
    except (TimeoutError, aiosmtplib.SMTPTimeoutError):
        return fail(f"no answer within {mail.timeout:g} s")
    except aiosmtplib.SMTPRecipientsRefused as error:
        codes = [each.code for each in error.recipients]
        return fail(f"the server refuses the address: {codes}", for_good=all(code >= 500 for code in codes))
    except aiosmtplib.SMTPResponseException as error:
        return fail(f"the server answers {error.code}")
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        return fail(f"cannot be reached: {type(error).__name__}")
    return TAKEN


def compose(
    run: Run, question: Question, delivery: Delivery, sender: str, address: str, public_url: str | None
) -> EmailMessage:
    """Return the mail: as text and as HTML. Only the run's owner sees more than the question."""
    asks = _clean(f"{question.asker} asks: {question.header or question.question}")
    # The email package decodes encoded words when it is given a header, and before Python 3.11.10 writes a newline out
    # of one as it is (CVE-2024-6923): it would begin another header.
    subject = text.one_line(asks.replace("=?", "= ?"), MAX_SUBJECT_CHARS)
    values = {
        "subject": subject,
        "question": question,
        "task": text.shorten(run.task, MAX_TASK_CHARS) if delivery.recipient == run.user else None,
        "link": _link(public_url, run.id, question.id) if public_url is not None else None,
    }
    message = EmailMessage()
    message["From"] = Address("upcall", addr_spec=sender)
    message["To"] = Address(addr_spec=address)
    message["Subject"] = subject
    # The same each time it is sent, so that a mail program that checks this shows it once.
    message["Message-ID"] = f"<{delivery.id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(_templates().get_template("question.txt.j2").render(values))
    message.add_alternative(_templates().get_template("question.html.j2").render(values), subtype="html")
    return message


def _link(public_url: str, run_id: str, question_id: str) -> str:
    return f"{public_url.rstrip('/')}/runs/{quote(run_id, safe='')}#q-{quote(question_id, safe='')}"


def _clean(value: object) -> str:
    return text.escape_controls(text.replace_surrogates(str(value).replace("\r\n", "\n")))


def _mark(value: object) -> str:
    return text.quote(_clean(value))


@cache
def _templates() -> Environment:
    return load_templates("upcall.notifications", clean=_clean, mark=_mark)
