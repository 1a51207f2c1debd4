"""`toolcall-proxy basic-hash` prints the salted hash of a password that it reads from standard input."""

from __future__ import annotations

import argparse
import hashlib
import hmac
import secrets
import sys
from typing import Any


def register(subparsers: Any) -> None:
    """Describes the verb."""
    subparsers.add_parser("basic-hash", help="hash a password for `basic_users`", description=__doc__)


def run(args: argparse.Namespace) -> int:
    """Prints the hash; gives the exit code."""
    print(hash_password(sys.stdin.readline().rstrip("\n"), secrets.token_bytes(16)))
    return 0


def hash_password(password: str, salt: bytes) -> str:
    """`SALT:HASH`, both in hexadecimal."""
    return f"{salt.hex()}:{hashlib.pbkdf2_hmac('sha256', password.encode(), salt, 10_000).hex()}"


def is_password(password: str, hashed: str) -> bool:
    """Returns whether a password has this hash."""
    return hmac.compare_digest(hash_password(password, bytes.fromhex(hashed.partition(":")[0])), hashed)
