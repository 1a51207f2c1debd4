"""`callout` asks HTTP services before a call is sent and after its tool has answered (docs/callout.md).

`callout_section.py` reads the keys. `callout_messages.py` writes questions and reads answers, by the schemas in this
folder. `callout_client.py` calls one service. `callouts.py` does so around each call, as hooks that follow those of the
config.
"""
