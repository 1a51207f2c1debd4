"""State that several processes share in a Redis or Valkey: `state: {backend: redis}`.

`fallback.py` makes a store of the remote one and of this process's memory, which is in while the remote one is away
(`journal.py`). `redis_remote.py` is the remote one. `scripts.py` runs in the server, `operations.py` writes requests,
reads replies and makes batches in order, and `client.py` holds the connections. Only that file uses the library
`redis`. `redis_section.py` reads the keys.
"""
