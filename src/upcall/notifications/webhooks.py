"""Webhooks, signed according to Standard Webhooks (https://www.standardwebhooks.com)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from upcall.errors import missing_extra
from upcall.notifications.attempt import TAKEN, Attempt, fail
from upcall.notifications.config import WebhookSettings
from upcall.notifications.outbox import Delivery
from upcall.retry_after import read_retry_after

if TYPE_CHECKING:
    import httpx

GONE = 410


def make_client() -> httpx.AsyncClient:
    """Return a client that follows no redirects: only the operator decides where a webhook goes.

    Raises:
        ConfigurationError: a library is not installed.
    """
    try:
        import httpx
        import standardwebhooks  # noqa: F401  (reported at the start, not at the first delivery)
    except ImportError as missing:
        raise missing_extra(f"Webhooks need {missing.name}", "notifications") from missing
    return httpx.AsyncClient(follow_redirects=False)


def sign(webhook: WebhookSettings, delivery_id: str, at: datetime, body: str) -> dict[str, str]:
    """Return the headers that prove to the receiver that a body is ours, and when it was sent."""
    from standardwebhooks.webhooks import Webhook

    secrets = webhook.secret.get_secret_value().split()
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(each).sign(delivery_id, at, body) for each in secrets),
    }


async def post_webhook(client: httpx.AsyncClient, webhook: WebhookSettings, delivery: Delivery) -> Attempt:
    """Send a delivery once. The body of the response is not read."""
    import httpx

    headers = sign(webhook, delivery.id, datetime.now(UTC), delivery.content)
    headers |= {"Content-Type": "application/json", "User-Agent": "upcall"}
    try:
        async with (
            asyncio.timeout(webhook.timeout),
            client.stream(
                "POST", webhook.url, content=delivery.content, headers=headers, timeout=webhook.timeout
            ) as response,
        ):
            status, asked = response.status_code, read_retry_after(response.headers)
    except (TimeoutError, httpx.TimeoutException):
        return fail(f"no answer within {webhook.timeout:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        return fail(f"cannot be reached: {type(error).__name__}")
    if 200 <= status < 300:
        return TAKEN
    if 300 <= status < 400:
        return fail(f"HTTP {status}: redirects are not followed")
    return fail(f"HTTP {status}", asked or 0.0, for_good=status == GONE)
