"""Tokens that issuers have signed (RFC 7519): their keys, and what holds of them."""
