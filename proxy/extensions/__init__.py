"""The plugins that ship with the proxy, each in its own folder with a `plugin.py` (`proxy/plugin.py`).

No module outside of a folder names a module in it (tests/test_architecture.py), so a folder can be taken away
(tests/extensions/test_locks.py).
"""
