"""Proof that a delivery comes from this allocator, as Standard Webhooks writes it (https://www.standardwebhooks.com).

The secret of a webhook is made from the secret of the ledger and the webhook's id, so it is stored nowhere.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final

PREFIX: Final = "whsec_"


def secret_of(key: bytes, webhook_id: str) -> str:
    """The secret as receivers are given it."""
    return PREFIX + base64.b64encode(_raw(key, webhook_id)).decode()


def signed(key: bytes, webhook_id: str, message_id: str, at: datetime, body: str) -> Mapping[str, str]:
    """The headers that prove a body."""
    timestamp = str(int(at.timestamp()))
    mac = hmac.digest(_raw(key, webhook_id), f"{message_id}.{timestamp}.{body}".encode(), hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
    }


def _raw(key: bytes, webhook_id: str) -> bytes:
    return hmac.digest(key, webhook_id.encode(), hashlib.sha256)
